// events: what happens in sandboxes, one line each.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "cli_commands.h"
#include "cli_json.h"
#include "cli_text.h"

enum { TEXT_MAX = 1024, SHORT_SANDBOX = 12, SHORT_JOB = 8 };

struct view {
    const struct options *o;
    bool broken; // stdout takes no more
};

static void
print_fact(const struct stockade_fact *f)
{
    char text[TEXT_MAX];
    if (f->type == STOCKADE_FACT_TEXT) {
        const char *quote = strchr(f->text, ' ') != NULL ? "\"" : "";
        (void)printf(" %s=%s%s%s", f->name, quote, text_clean(f->text, text, sizeof text), quote);
    } else if (f->type == STOCKADE_FACT_SIGNED) {
        (void)printf(" %s=%" PRId64, f->name, (int64_t)f->number);
    } else if (f->type == STOCKADE_FACT_REAL) {
        (void)printf(" %s=%g", f->name, f->real);
    } else if (f->type == STOCKADE_FACT_BOOL) {
        if (f->number != 0)
            (void)printf(" %s", f->name);
    } else if (f->number != 0 || strcmp(f->name, "code") == 0) {
        (void)printf(" %s=%" PRIu64, f->name, f->number);
    }
}

static void
print_event(const struct stockade_event *e)
{
    char when[32] = "", comm[TEXT_MAX];
    time_t seconds = (time_t)(e->time_ns / 1000000000);
    struct tm tm;
    if (localtime_r(&seconds, &tm) != NULL)
        (void)strftime(when, sizeof when, "%H:%M:%S", &tm);
    (void)printf("%s.%03d %-8s %-15s %.*s %-*.*s", when, (int)(e->time_ns / 1000000 % 1000),
                 cli_severity_name(e->severity), e->kind, SHORT_SANDBOX, e->sandbox_id, SHORT_JOB,
                 SHORT_JOB, e->process_id);
    if (e->pid != 0)
        (void)printf(" %s(%u)", text_clean(e->comm, comm, sizeof comm), e->pid);
    for (size_t i = 0; i < e->facts_n; i++)
        print_fact(&e->facts[i]);
    (void)putchar('\n');
}

static int
on_event(void *cookie, const struct stockade_event *e)
{
    struct view *v = cookie;
    if (v->o->json)
        v->broken = json_put(json_of_event(e)) != EXIT_OK;
    else
        print_event(e);
    v->broken = v->broken || fflush(stdout) != 0;
    return v->broken;
}

static int
on_gap(void *cookie, uint64_t from, uint64_t to, uint64_t count, const char *reason)
{
    struct view *v = cookie;
    char text[64];
    if (v->o->json) {
        v->broken = json_put(json_pack("{s{sI sI sI ss}}", "gap", "from_sequence", (json_int_t)from,
                                       "to_sequence", (json_int_t)to, "count", (json_int_t)count,
                                       "reason", reason)) != EXIT_OK;
        return v->broken || fflush(stdout) != 0;
    }
    (void)fprintf(stderr, "stockade events: %" PRIu64 " to %" PRIu64 " are missing (%s)\n", from,
                  to, text_clean(reason, text, sizeof text));
    return 0;
}

int
cli_events(const struct command *c, const struct options *o)
{
    struct stockade_events_options eo = STOCKADE_EVENTS_OPTIONS_INIT;
    struct stockade_error e;
    char id[65];
    const char *only = id;
    int code = EXIT_OK;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    struct view v = {.o = o};
    const struct stockade_event_handlers h = {on_event, on_gap, &v};
    eo.tenant = o->tenant;
    eo.kinds = o->event_kinds;
    eo.kinds_n = o->event_kinds_n;
    eo.severity = cli_severity_number(o->severity);
    eo.kept_only = !o->follow;
    eo.from_sequence = o->from != 0 || o->follow ? o->from : 1;
    if (o->sandbox != NULL) {
        eo.sandboxes = &only;
        eo.sandboxes_n = 1;
    }
    bool whole = o->sandbox != NULL && strlen(o->sandbox) == 32; // one that is gone has events too
    if (whole)
        (void)snprintf(id, sizeof id, "%s", o->sandbox);
    if (o->sandbox == NULL || whole || cli_find_sandbox(s, c, o->sandbox, id, &code)) {
        int rc = stockade_events(s, &eo, &h, &e);
        if (v.broken)
            code = EXIT_SIGNAL + SIGPIPE;
        else if (rc < 0)
            code = cli_fail(c, "", &e);
    }
    stockade_close(s);
    return code;
}
