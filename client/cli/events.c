// SPDX-License-Identifier: Apache-2.0
// events: one line per event.
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "commands.h"
#include "feed.h"
#include "json.h"
#include "sink.h"
#include "text.h"
#include "units.h"

enum { TEXT_MAX = 1024, SHORT_JOB = 8 };

struct view {
    const struct command *c;
    const struct options *o;
    int code; // not EXIT_OK: stdout is closed
};

// Fields that a line of text omits; JSON has them.
static bool
says_little(const struct stockade_fact *f)
{
    static const char *const names[] = {"severity", "flags",     "hint",
                                        "sequence", "threshold", "score"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(f->name, names[i]) == 0)
            return true;
    return strcmp(f->name, "count") == 0 && f->number <= 1;
}

static bool
ends_with(const char *name, const char *unit)
{
    size_t n = strlen(name), u = strlen(unit);
    return n > u && strcmp(name + n - u, unit) == 0;
}

// A number with its unit, and its name without the unit: "cpu=25.7 ms" for cpu_ns.
static void
print_number(const char *name, uint64_t v)
{
    char text[64];
    int n = (int)strlen(name);
    if (ends_with(name, "_ns"))
        (void)printf(" %.*s=%s", n - 3, name, units_show_ns(v, text, sizeof text));
    else if (ends_with(name, "_us") && v < UINT64_MAX / 1000)
        (void)printf(" %.*s=%s", n - 3, name, units_show_ns(v * 1000, text, sizeof text));
    else if (ends_with(name, "_bytes"))
        (void)printf(" %.*s=%s", n - 6, name, units_show_bytes(v, text, sizeof text));
    else if (strcmp(name, "error") == 0 && v < INT32_MAX && strerrorname_np((int)v) != NULL)
        (void)printf(" error=%s", strerrorname_np((int)v));
    else
        (void)printf(" %s=%" PRIu64, name, v);
}

// Text with blanks is quoted; text with quotes is not.
static void
print_text(const char *name, const char *value)
{
    char flat[TEXT_MAX], clean[TEXT_MAX];
    const char *quote = strpbrk(value, " \n\t") != NULL && strchr(value, '"') == NULL ? "\"" : "";
    text_flat(value, flat, sizeof flat);
    (void)printf(" %s=%s%s%s", name, quote, text_clean(flat, clean, sizeof clean), quote);
}

static void
print_fact(const struct stockade_fact *f)
{
    if (says_little(f))
        return;
    if (f->type == STOCKADE_FACT_TEXT)
        print_text(f->name, f->text);
    else if (f->type == STOCKADE_FACT_SIGNED)
        (void)printf(" %s=%" PRId64, f->name, (int64_t)f->number);
    else if (f->type == STOCKADE_FACT_REAL)
        (void)printf(" %s=%g", f->name, f->real);
    else if (f->type == STOCKADE_FACT_BOOL)
        (void)(f->number != 0 && printf(" %s", f->name));
    else if (f->number != 0 || strcmp(f->name, "code") == 0)
        print_number(f->name, f->number);
}

static void
print_event(const struct stockade_event *e)
{
    char when[32] = "", comm[TEXT_MAX], kind[32] = "", box[CLI_SHORT_ID_SIZE],
         job[CLI_SHORT_ID_SIZE];
    time_t seconds = (time_t)(e->time_ns / 1000000000);
    struct tm tm;
    if (localtime_r(&seconds, &tm) != NULL)
        (void)strftime(when, sizeof when, "%H:%M:%S", &tm);
    for (size_t i = 0; e->kind[i] != '\0' && i + 1 < sizeof kind; i++)
        kind[i] = (char)tolower((unsigned char)e->kind[i]);
    (void)printf("%s.%03d %-8s %-15s %s %-*.*s", when, (int)(e->time_ns / 1000000 % 1000),
                 cli_severity_name(e->severity), kind, cli_short_id(e->sandbox_id, box), SHORT_JOB,
                 SHORT_JOB, cli_short_id(e->process_id, job));
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
        v->code = json_put(json_of_event(e));
    else
        print_event(e);
    if (v->code == EXIT_OK)
        v->code = cli_flush(v->c);
    return v->code;
}

static int
on_gap(void *cookie, uint64_t from, uint64_t to, uint64_t count, const char *reason)
{
    struct view *v = cookie;
    char text[64];
    if (v->o->json) {
        v->code = json_put(json_of_gap(from, to, count, reason));
        return v->code;
    }
    if (strcmp(reason, "restarted") == 0)
        (void)fprintf(stderr,
                      "stockade events: the broker was restarted; events from %" PRIu64
                      " until the restart are missing\n",
                      from);
    else
        (void)fprintf(stderr, "stockade events: %" PRIu64 " to %" PRIu64 " are missing (%s)\n",
                      from, to, text_clean(reason, text, sizeof text));
    return 0;
}

static void
on_connection(void *cookie, const struct stockade_error *lost)
{
    const struct view *v = cookie;
    cli_connection(v->c, lost);
}

// Shows events up to the last kept one, or, with --follow, until the reader closes stdout.
static int
show(const struct command *c, struct stockade *s, const struct stockade_events_options *eo,
     const struct options *o)
{
    struct view v = {.c = c, .o = o};
    const struct stockade_event_handlers h = {on_event, on_gap, &v};
    const struct feed_options feeding = {.s = s, .outlet = true};
    struct stockade_error e;
    struct feed *feed = feed_start(&feeding);
    if (feed == NULL)
        return EXIT_PROBLEM;
    int rc = stockade_events(s, eo, &h, &e);
    (void)feed_stop(feed);
    if (v.code != EXIT_OK)
        return v.code;
    if (rc < 0 && sink_is_gone())
        return EXIT_PIPE;
    return rc < 0 ? cli_fail(c, "", &e) : EXIT_OK;
}

int
cli_events(const struct command *c, const struct options *o)
{
    struct stockade_events_options eo = STOCKADE_EVENTS_OPTIONS_INIT;
    char id[CLI_ID_SIZE];
    const char *only = id;
    int code = EXIT_OK;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    eo.tenant = o->tenant;
    eo.kinds = o->event_kinds;
    eo.kinds_n = o->event_kinds_n;
    eo.severity = cli_severity_number(o->severity);
    eo.kept_only = !o->follow;
    eo.reconnect = o->follow;
    eo.on_connection = on_connection;
    eo.from_sequence = o->from != 0 || o->follow ? o->from : 1;
    if (o->sandbox != NULL) {
        eo.sandboxes = &only;
        eo.sandboxes_n = 1;
    }
    if (o->sandbox == NULL || cli_find_sandbox_id(s, c, o->sandbox, id, &code))
        code = show(c, s, &eo, o);
    stockade_close(s);
    return code;
}
