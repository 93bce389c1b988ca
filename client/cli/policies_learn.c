// SPDX-License-Identifier: Apache-2.0
// policy learn: a policy from the records of jobs: of those that are named, of all of a sandbox, or of the last one.
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "learn.h"
#include "policies.h"
#include "proto/validate.h"

// Events of a job or of a sandbox that are being read.
struct reading {
    struct learning *l;
    const char *template; // instead of that of the events; NULL: none
    bool begun;           // its first event is still kept, so all that followed are
    bool gap;
    int rc; // of adding
    struct err why;
};

static int
on_event(void *cookie, const struct stockade_event *event)
{
    struct reading *r = cookie;
    Stockade__V1__Event m = *(const Stockade__V1__Event *)event->message;
    if (m.kind == STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_STARTED ||
        m.kind == STOCKADE__V1__EVENT_KIND__EVENT_KIND_SANDBOX_CREATED)
        r->begun = true;
    if (m.kind == STOCKADE__V1__EVENT_KIND__EVENT_KIND_GAP)
        r->gap = true;
    if (r->template != NULL)
        m.template_ = r->template;
    r->rc = learning_add_event(r->l, &m, &r->why);
    return r->rc;
}

// A gap before the first event of the job, which may be of other jobs, does not count.
static int
on_gap(void *cookie, uint64_t from, uint64_t to, uint64_t count, const char *reason)
{
    struct reading *r = cookie;
    (void)from;
    (void)to;
    (void)count;
    (void)reason;
    r->gap |= r->begun;
    return 0;
}

// Adds the kept events of a job, or of a sandbox, about paths.
static int
add_events(const struct policing *p, struct stockade *s, struct learning *l, const char *job,
           const char *box)
{
    static const char *const of_job[] = {"sensitive_open", "job_started", "gap"};
    static const char *const of_box[] = {"sensitive_open", "sandbox_created", "gap",
                                         "file_transfer"};
    struct reading r = {.l = l, .template = p->o->template_name};
    const struct stockade_event_handlers h = {.on_event = on_event, .on_gap = on_gap, .cookie = &r};
    struct stockade_events_options eo = STOCKADE_EVENTS_OPTIONS_INIT;
    struct stockade_error e;
    eo.process_id = job;
    eo.sandboxes = box != NULL ? &box : NULL;
    eo.sandboxes_n = box != NULL ? 1 : 0;
    eo.kinds = box != NULL ? of_box : of_job;
    eo.kinds_n = box != NULL ? 4 : 3;
    eo.from_sequence = 1;
    eo.kept_only = true;
    const int rc = stockade_events(s, &eo, &h, &e);
    const char *what = box != NULL ? "sandbox" : "job", *id = box != NULL ? box : job;
    if (r.rc < 0)
        return policies_fail(p, &r.why);
    if (rc < 0)
        r.rc = learning_note(l, &r.why, "%s %.12s: its events cannot be read: %.200s", what, id,
                             e.text);
    else if (!r.begun || r.gap)
        r.rc = learning_note(
            l, &r.why, "%s %.12s: not all its events are kept, so paths are missing", what, id);
    return r.rc < 0 ? policies_fail(p, &r.why) : EXIT_OK;
}

// events: adds those of the job, too; otherwise it is one of many, whose record may be forgotten.
static int
add_job(const struct policing *p, struct stockade *s, struct learning *l, const char *id,
        bool events)
{
    const struct stockade_job *j = NULL;
    struct stockade_error e;
    struct err why;
    int code = EXIT_OK;
    if (stockade_inspect(s, id, &j, &e) < 0 && !events && e.code == STOCKADE_NOT_FOUND)
        return learning_note(l, &why, "job %.12s: its record is not kept any more", id) < 0
                   ? policies_fail(p, &why)
                   : EXIT_OK;
    if (j == NULL)
        return cli_fail(p->c, id != NULL ? id : "", &e);
    const struct learnt_job job = {
        .template = p->o->template_name != NULL ? p->o->template_name : j->template_name,
        .id = j->process.id,
        .args = j->process.args,
        .args_n = j->process.args_n,
        .record = j->record.message,
        .ended = j->process.result != NULL,
    };
    if (learning_add(l, &job, &why) < 0)
        code = policies_fail(p, &why);
    else if (events)
        code = add_events(p, s, l, j->process.id, NULL);
    stockade_free(j);
    return code;
}

static int
add_sandbox(const struct policing *p, struct stockade *s, struct learning *l)
{
    char id[65], page[64] = "";
    int code = EXIT_OK;
    if (!cli_find_sandbox(s, p->c, p->o->sandbox, id, &code))
        return code;
    do {
        const struct stockade_processes *all = NULL;
        struct stockade_error e;
        if (stockade_processes(s, id, page, &all, &e) < 0)
            return cli_fail_sandbox(s, p->c, p->o->sandbox, &e);
        for (size_t i = 0; i < all->n && code == EXIT_OK; i++)
            code = add_job(p, s, l, all->items[i].id, false);
        (void)snprintf(page, sizeof page, "%s", all->next_page);
        stockade_free(all);
    } while (code == EXIT_OK && page[0] != '\0');
    return code == EXIT_OK ? add_events(p, s, l, NULL, id) : code;
}

static int
add_all(const struct policing *p, struct stockade *s, struct learning *l)
{
    int code = EXIT_OK;
    if (p->o->sandbox != NULL)
        code = add_sandbox(p, s, l);
    for (int i = 0; i < p->words_n && code == EXIT_OK; i++)
        if (cli_names_process(p->c, p->words[i], &code))
            code = add_job(p, s, l, p->words[i], true);
    return p->words_n == 0 && p->o->sandbox == NULL ? add_job(p, s, l, NULL, true) : code;
}

int
policies_learn_job(const struct command *c, const struct options *o, struct stockade *s,
                   const char *process)
{
    const struct policing p = {.c = c, .o = o};
    struct learning *l = learning_new();
    struct err e;
    if (l == NULL || sodium_init() < 0 || validate_init(&e) < 0) {
        learning_free(l);
        return policies_no_memory(&p);
    }
    int code = add_job(&p, s, l, process, true);
    if (code == EXIT_OK && learning_save(l, o->learn_file, &e) < 0)
        code = policies_fail(&p, &e);
    learning_free(l);
    return code;
}

int
policies_learn(const struct policing *p)
{
    struct err e;
    int code = EXIT_OK;
    struct learning *l = learning_new();
    struct stockade *s = l != NULL ? cli_open(p->c, p->o, &code) : NULL;
    if (l == NULL)
        return policies_no_memory(p);
    if (s != NULL)
        code = add_all(p, s, l);
    if (s != NULL && code == EXIT_OK &&
        learning_save(l, p->o->learn_file != NULL ? p->o->learn_file : "-", &e) < 0)
        code = policies_fail(p, &e);
    stockade_close(s);
    learning_free(l);
    return code;
}
