// SPDX-License-Identifier: Apache-2.0
// Sandboxes: create, ls, get, update, rm, pause, resume, sleep, wake.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "cli.h"
#include "bill.h"
#include "commands.h"
#include "json.h"
#include "pages.h"
#include "policy.h"
#include "text.h"
#include "units.h"

enum { CELL_MAX = 512 };

int
cli_create(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    struct stockade_create_options co = STOCKADE_CREATE_OPTIONS_INIT;
    co.template_name = o->template_name;
    co.name = o->name;
    co.limits = o->limits;
    struct stockade_policy policy;
    if (options_policy(o, &policy))
        co.policy = &policy;
    co.labels = o->labels;
    co.labels_n = o->labels_n;
    co.mounts = o->mounts;
    co.mounts_n = o->mounts_n;
    co.ttl_ms = o->ttl_ms;
    co.snapshot = o->snapshot;
    co.sleep_after_ms = o->sleep_after_ms;
    if (stockade_create(s, &co, &box, &e) < 0)
        code = cli_fail(c, "", &e);
    else if (o->json)
        code = json_put(json_of_sandbox(box));
    else {
        (void)puts(box->id);
        code = cli_flush(c);
    }
    if (box != NULL && code != EXIT_OK)
        (void)fprintf(stderr,
                      "stockade create: sandbox %s exists\n  hint: stockade rm %s removes it\n",
                      box->id, box->id);
    stockade_free(box);
    stockade_close(s);
    return code;
}

// ---- all sandboxes

struct listing {
    const struct options *o;
    struct table *table;
    json_t *array;
    int64_t now;
};

static void
join_labels(const struct stockade_sandbox *box, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < box->labels_n && at < n; i++) {
        int more = snprintf(out + at, n - at, "%s%s=%s", i == 0 ? "" : ",", box->labels[i].name,
                            box->labels[i].value);
        at += more > 0 ? (size_t)more : 0;
    }
}

static bool
list_one(void *cookie, const struct stockade_sandbox *box)
{
    struct listing *l = cookie;
    if (l->array != NULL)
        return json_array_append_new(l->array, json_of_sandbox(box)) == 0;
    if (l->o->quiet)
        return puts(box->id) >= 0;
    char id[CLI_SHORT_ID_SIZE], jobs[16], memory[32], age[16], left[16] = "-", names[CELL_MAX];
    (void)snprintf(jobs, sizeof jobs, "%u", box->processes);
    if (box->expires_ms != 0)
        units_show_age(box->expires_ms - l->now, left, sizeof left);
    join_labels(box, names, sizeof names);
    return table_row(
        l->table,
        (const char *[]){l->o->no_trunc ? box->id : cli_short_id(box->id, id),
                         box->name[0] != '\0' ? box->name : "-", cli_state_name(box->state),
                         box->template_name, jobs,
                         units_show_bytes(box->limits.memory_bytes, memory, sizeof memory),
                         units_show_age(l->now - box->created_ms, age, sizeof age), left,
                         names[0] != '\0' ? names : "-"});
}

int
cli_ls(const struct command *c, const struct options *o)
{
    static const char *const head[] = {"SANDBOX", "NAME", "STATE",   "TEMPLATE", "JOBS",
                                       "MEMORY",  "AGE",  "ENDS IN", "LABELS"};
    struct stockade_error e;
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    struct listing l = {.o = o, .now = now_wall_ms()};
    l.table = table_new(head, sizeof head / sizeof head[0]);
    l.array = o->json ? json_array() : NULL;
    if (l.table == NULL || pages_sandboxes(s, o->labels, o->labels_n, list_one, &l, &e) < 0)
        code = l.table == NULL ? EXIT_PROBLEM : cli_fail(c, "", &e);
    code = json_end_listing(o, l.table, l.array, code);
    stockade_close(s);
    return code;
}

// ---- one sandbox

static void
print_limits(const struct stockade_limits *l)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"memory_bytes", l->memory_bytes},
        {"cpu_millis", l->cpu_millis},
        {"cpu_weight", l->cpu_weight},
        {"cpu_time_ms", l->cpu_time_ms},
        {"wall_ms", l->wall_ms},
        {"pids", l->pids},
        {"files", l->files},
        {"file_size_bytes", l->file_size_bytes},
        {"disk_bytes", l->disk_bytes},
        {"inodes", l->inodes},
        {"output_bytes", l->output_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[32], value[32];
        (void)printf("  %-16s %s\n", bill_limit_name(rows[i].name, name, sizeof name),
                     rows[i].value == 0
                         ? "none"
                         : bill_show_limit(rows[i].name, rows[i].value, value, sizeof value));
    }
}

static void
print_sandbox(const struct stockade_sandbox *box)
{
    char text[CELL_MAX], age[16], left[16];
    int64_t now = now_wall_ms();
    (void)printf("id        %s\n", text_clean(box->id, text, sizeof text));
    if (box->name[0] != '\0')
        (void)printf("name      %s\n", text_clean(box->name, text, sizeof text));
    (void)printf("state     %s\n", cli_state_name(box->state));
    (void)printf("template  %s\n", text_clean(box->template_name, text, sizeof text));
    cli_print_policy(&box->policy);
    if (box->sleep != NULL && box->sleep->awake_ms == 0)
        (void)printf("asleep    %s, %s on the disk%s\n",
                     units_show_age(now - box->sleep->asleep_ms, age, sizeof age),
                     units_show_bytes(box->sleep->bytes, text, sizeof text),
                     box->sleep->fell_back ? "; lost since it had been woken up" : "");
    if (box->sleep_after_ms != 0)
        (void)printf("sleeps    after %s without use\n",
                     units_show_age((int64_t)box->sleep_after_ms, left, sizeof left));
    (void)printf("jobs      %u\n", box->processes);
    (void)printf("age       %s\n", units_show_age(now - box->created_ms, age, sizeof age));
    if (box->expires_ms != 0)
        (void)printf("ends in   %s\n", units_show_age(box->expires_ms - now, left, sizeof left));
    for (size_t i = 0; i < box->labels_n; i++) {
        (void)printf("label     %s=", text_clean(box->labels[i].name, text, sizeof text));
        (void)printf("%s\n", text_clean(box->labels[i].value, text, sizeof text));
    }
    for (size_t i = 0; i < box->mounts_n; i++) {
        (void)printf("volume    %s at ", text_clean(box->mounts[i].volume, text, sizeof text));
        (void)printf("%s%s\n", text_clean(box->mounts[i].path, text, sizeof text),
                     box->mounts[i].read_only ? ", read-only" : "");
    }
    (void)printf("limits\n");
    print_limits(&box->limits);
}

int
cli_get(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    char id[65];
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (!cli_find_sandbox(s, c, o->args[0], id, &code))
        ; // the failure was reported
    else if (stockade_get(s, id, &box, &e) < 0)
        code = cli_fail_sandbox(s, c, o->args[0], &e);
    else if (o->json)
        code = json_put(json_of_sandbox(box));
    else
        print_sandbox(box);
    stockade_free(box);
    stockade_close(s);
    return code;
}

// ---- several sandboxes: successes are printed, failures are reported, and the first failure gives the exit code

struct acting;
typedef int act_fn(const struct acting *a, const char *id, const struct stockade_sandbox **out,
                   struct stockade_error *e);

struct acting {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    act_fn *act;
    json_t *done;
    int code;
};

// Only what is not 0, on stderr: stdout has the names of those that are asleep or awake now.
static void
say_lost(const struct stockade_sandbox *box, const char *typed)
{
    const struct stockade_sleep *l = box->sleep;
    const struct {
        uint32_t n;
        const char *one, *many;
    } rows[] = {
        {l->processes_ended, "process ended", "processes ended"},
        {l->contexts_ended, "context ended, with its variables",
         "contexts ended, with their variables"},
        {l->operations_ended, "operation on files ended", "operations on files ended"},
        {l->connections_closed, "connection was closed", "connections were closed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].n > 0)
            (void)fprintf(stderr, "%s: %u %s when it fell asleep\n", typed, rows[i].n,
                          plural(rows[i].n, rows[i].one, rows[i].many));
    if (l->fell_back)
        (void)fprintf(stderr,
                      "%s: it was lost while it was awake: what it wrote after it had fallen "
                      "asleep is lost\n",
                      typed);
}

static act_fn sleep_one, wake_one;

static void
act_on(struct acting *a, const char *typed)
{
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    char id[65];
    int code = EXIT_OK;
    if (!cli_find_sandbox(a->s, a->c, typed, id, &code))
        ; // the failure was reported
    else if (a->act(a, id, &box, &e) < 0)
        // with --all, a sandbox that was removed in the meantime is no failure
        code = a->o->all && e.code == STOCKADE_NOT_FOUND ? EXIT_OK
                                                         : cli_fail_sandbox(a->s, a->c, typed, &e);
    else if (a->o->json)
        (void)json_array_append_new(a->done,
                                    box != NULL ? json_of_sandbox(box) : json_string(typed));
    else
        (void)puts(typed);
    if (box != NULL && box->sleep != NULL && (a->act == sleep_one || a->act == wake_one))
        say_lost(box, typed);
    stockade_free(box);
    if (a->code == EXIT_OK)
        a->code = code;
}

static int
remove_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
           struct stockade_error *e)
{
    (void)out;
    return stockade_delete(a->s, id, e);
}

static int
pause_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
          struct stockade_error *e)
{
    return stockade_pause(a->s, id, out, e);
}

static int
resume_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
           struct stockade_error *e)
{
    return stockade_resume(a->s, id, out, e);
}

static int
sleep_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
          struct stockade_error *e)
{
    return stockade_sleep(a->s, id, a->o->stop, out, e);
}

static int
wake_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
         struct stockade_error *e)
{
    return stockade_wake(a->s, id, out, e);
}

static int
update_one(const struct acting *a, const char *id, const struct stockade_sandbox **out,
           struct stockade_error *e)
{
    const struct options *o = a->o;
    return stockade_update(a->s, id, o->ttl_ms, o->labels, o->labels_n, out, e);
}

// Collects the ids first, then acts: removing while paging would skip some.
static bool
collect(void *cookie, const struct stockade_sandbox *box)
{
    return json_array_append_new(cookie, json_string(box->id)) == 0;
}

static void
act_on_all(struct acting *a)
{
    struct stockade_error e;
    json_t *ids = json_array();
    if (pages_sandboxes(a->s, a->o->labels, a->o->labels_n, collect, ids, &e) < 0)
        a->code = cli_fail(a->c, "", &e);
    for (size_t i = 0; i < json_array_size(ids); i++)
        act_on(a, json_string_value(json_array_get(ids, i)));
    json_decref(ids);
}

static int
act(const struct command *c, const struct options *o, act_fn *fn)
{
    struct acting a = {.c = c, .o = o, .act = fn, .done = json_array()};
    cli_errors_as_json(false); // the array of what worked is the one document
    a.s = cli_open(c, o, &a.code);
    if (a.s == NULL) {
        json_decref(a.done);
        return a.code;
    }
    if (o->all)
        act_on_all(&a);
    for (int i = 0; i < o->args_n; i++)
        act_on(&a, o->args[i]);
    stockade_close(a.s);
    int written = o->json ? json_put_list(json_incref(a.done)) : EXIT_OK;
    json_decref(a.done);
    return a.code != EXIT_OK ? a.code : written;
}

int
cli_rm(const struct command *c, const struct options *o)
{
    if (o->all == (o->args_n > 0))
        return cli_usage(c, o->all ? "--all cannot be used with names" : "no sandbox was named",
                         "name one or more sandboxes, or use --all");
    return act(c, o, remove_one);
}

int
cli_pause(const struct command *c, const struct options *o)
{
    return act(c, o, pause_one);
}

int
cli_resume(const struct command *c, const struct options *o)
{
    return act(c, o, resume_one);
}

int
cli_sleep(const struct command *c, const struct options *o)
{
    return act(c, o, sleep_one);
}

int
cli_wake(const struct command *c, const struct options *o)
{
    return act(c, o, wake_one);
}

int
cli_update(const struct command *c, const struct options *o)
{
    if (o->ttl_ms == 0 && o->labels_n == 0)
        return cli_usage(c, "there is nothing to change", "use --ttl TIME or --label KEY=VALUE");
    return act(c, o, update_one);
}
