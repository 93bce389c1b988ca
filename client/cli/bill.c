// SPDX-License-Identifier: Apache-2.0
// See bill.h.
#include "bill.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "proto/plural.h"
#include "cli.h"
#include "record.h"
#include "text.h"
#include "units.h"

enum { TEXT_MAX = 64, SENTENCE_MAX = 1024 };

#define ROW(field)                                                                                 \
    {                                                                                              \
#field, offsetof(struct stockade_bill, field)                                              \
    }
const struct bill_row bill_rows[] = {
    ROW(wall_us),
    ROW(queue_us),
    ROW(setup_us),
    ROW(cpu_user_ns),
    ROW(cpu_system_ns),
    ROW(memory_peak_bytes),
    ROW(faults_minor),
    ROW(faults_major),
    ROW(io_read_bytes),
    ROW(io_write_bytes),
    ROW(io_read_ops),
    ROW(io_write_ops),
    ROW(pids_peak),
    ROW(switches_voluntary),
    ROW(switches_involuntary),
    ROW(throttled_ns),
    ROW(output_bytes),
    ROW(output_cut_bytes),
    {0},
};

// ---- units

enum unit { UNIT_US, UNIT_NS, UNIT_BYTES, UNIT_COUNT };

static char *
show(const struct stockade_figure *f, enum unit unit, char *out, size_t n)
{
    if (f->source == STOCKADE_SOURCE_UNKNOWN)
        (void)snprintf(out, n, "not known");
    else if (unit == UNIT_COUNT)
        (void)snprintf(out, n, "%" PRIu64, f->value);
    else if (unit == UNIT_BYTES)
        return units_show_bytes(f->value, out, n);
    else
        return units_show_ns(unit == UNIT_NS                ? f->value
                             : f->value > UINT64_MAX / 1000 ? UINT64_MAX
                                                            : f->value * 1000,
                             out, n);
    return out;
}

static struct stockade_figure
sum(struct stockade_figure a, struct stockade_figure b)
{
    if (a.source == STOCKADE_SOURCE_UNKNOWN || b.source == STOCKADE_SOURCE_UNKNOWN)
        return (struct stockade_figure){0};
    a.value = a.value > UINT64_MAX - b.value ? UINT64_MAX : a.value + b.value;
    return a;
}

// One line: a subject, its main figure, and further figures.
struct part {
    const char *name; // text before it
    size_t offset;
    enum unit unit;
};

struct line {
    const char *subject;
    struct part main, beside[3];
};

#define PART(name, field, unit)                                                                    \
    {                                                                                              \
        name, offsetof(struct stockade_bill, field), unit                                          \
    }
static const struct line lines[] = {
    {"wall time",
     PART("", wall_us, UNIT_US),
     {PART("queue", queue_us, UNIT_US), PART("set-up", setup_us, UNIT_US)}},
    {"memory peak", PART("", memory_peak_bytes, UNIT_BYTES), {{0}}},
    {"page faults",
     PART("", faults_minor, UNIT_COUNT),
     {PART("with I/O", faults_major, UNIT_COUNT)}},
    {"read", PART("", io_read_bytes, UNIT_BYTES), {PART("operations", io_read_ops, UNIT_COUNT)}},
    {"written",
     PART("", io_write_bytes, UNIT_BYTES),
     {PART("operations", io_write_ops, UNIT_COUNT)}},
    {"processes", PART("", pids_peak, UNIT_COUNT), {{0}}},
    {"switches",
     PART("", switches_voluntary, UNIT_COUNT),
     {PART("preempted", switches_involuntary, UNIT_COUNT)}},
    {"output", PART("", output_bytes, UNIT_BYTES), {PART("cut", output_cut_bytes, UNIT_BYTES)}},
};

static const struct stockade_figure *
at(const struct stockade_bill *b, size_t offset)
{
    return bill_figure(b, &(struct bill_row){.offset = offset});
}

static void
print_line(const struct stockade_bill *b, const struct line *l, bool one_shot, FILE *to)
{
    char text[TEXT_MAX];
    const struct stockade_figure *main = at(b, l->main.offset);
    (void)fprintf(to, "  %-12s %12s", l->subject, show(main, l->main.unit, text, sizeof text));
    for (const struct part *p = l->beside; p->name != NULL; p++)
        (void)fprintf(to, "%s%s %s", p == l->beside ? "   " : ", ", p->name,
                      show(at(b, p->offset), p->unit, text, sizeof text));
    if (main->scope == STOCKADE_SCOPE_SANDBOX && !one_shot)
        (void)fprintf(to, "   (whole sandbox)");
    (void)fputc('\n', to);
}

static void
print_cpu(const struct stockade_bill *b, bool one_shot, FILE *to)
{
    char all[TEXT_MAX], user[TEXT_MAX], kernel[TEXT_MAX], throttled[TEXT_MAX];
    struct stockade_figure total = sum(b->cpu_user_ns, b->cpu_system_ns);
    (void)fprintf(to, "  %-12s %12s   user %s, kernel %s, throttled %s%s\n", "cpu time",
                  show(&total, UNIT_NS, all, sizeof all),
                  show(&b->cpu_user_ns, UNIT_NS, user, sizeof user),
                  show(&b->cpu_system_ns, UNIT_NS, kernel, sizeof kernel),
                  show(&b->throttled_ns, UNIT_NS, throttled, sizeof throttled),
                  total.scope == STOCKADE_SCOPE_SANDBOX && !one_shot ? "   (whole sandbox)" : "");
}

// ---- the end of a job

char *
bill_show_limit(const char *name, uint64_t value, char *out, size_t n)
{
    size_t length = strlen(name);
    if (length > 6 && strcmp(name + length - 6, "_bytes") == 0)
        return units_show_bytes(value, out, n);
    if (length > 3 && strcmp(name + length - 3, "_ms") == 0)
        return units_show_ns(value > UINT64_MAX / 1000000 ? UINT64_MAX : value * 1000000, out, n);
    if (strcmp(name, "cpu_millis") == 0)
        (void)snprintf(out, n, "%" PRIu64 ".%03" PRIu64 " CPUs", value / 1000, value % 1000);
    else
        (void)snprintf(out, n, "%" PRIu64, value);
    return out;
}

char *
bill_limit_name(const char *limit, char *out, size_t n)
{
    const char *option = cli_option_of_limit(limit);
    return text_clean(option != NULL ? option : limit, out, n);
}

// "; --timeout raises it": the option that raises a limit, if the command has it; else "".
static char *
limit_hint(const struct command *c, const char *limit, const char *before, char *out, size_t n)
{
    const char *option = cli_option_of_limit(limit);
    bool own = option != NULL && options_long(c->options, option, strlen(option)) != NULL;
    out[0] = '\0';
    if (own)
        (void)snprintf(out, n, "%s--%s raises it", before, option);
    else if (option != NULL)
        (void)snprintf(out, n, "%s'stockade create --%s' sets it", before, option);
    return out;
}

static void
limit_sentence(const struct command *c, const struct stockade_result *r, char *out, size_t n)
{
    char value[TEXT_MAX], name[TEXT_MAX], hint[TEXT_MAX];
    const struct stockade_limit_hit *hit = &r->limits[0];
    (void)snprintf(out, n, "ended by the limit %s of %s%s",
                   bill_limit_name(hit->name, name, sizeof name),
                   bill_show_limit(hit->name, hit->value, value, sizeof value),
                   limit_hint(c, hit->name, "; ", hint, sizeof hint));
}

// Limits that make part of a job fail without ending it. Waiting for a CPU is no failure, and output is reported
// separately.
static bool
is_worth_a_line(const char *limit)
{
    static const char *const names[] = {"memory_bytes", "disk_bytes", "inodes",
                                        "pids",         "files",      "file_size_bytes"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], limit) == 0)
            return true;
    return false;
}

char *
bill_limits_met(const struct command *c, const struct stockade_result *r, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->limits_n && at < n; i++) {
        char value[TEXT_MAX], name[TEXT_MAX], hint[TEXT_MAX];
        const struct stockade_limit_hit *hit = &r->limits[i];
        if (!is_worth_a_line(hit->name))
            continue;
        int more = snprintf(out + at, n - at, "%s%s of %s (%s)",
                            at == 0 ? "it reached the limit " : ", and ",
                            bill_limit_name(hit->name, name, sizeof name),
                            bill_show_limit(hit->name, hit->value, value, sizeof value),
                            limit_hint(c, hit->name, "", hint, sizeof hint));
        at += more > 0 ? (size_t)more : 0;
    }
    return out;
}

char *
bill_sentence(const struct command *c, const struct stockade_result *r, char *out, size_t n)
{
    char reason[SENTENCE_MAX];
    text_clean(r->reason, reason, sizeof reason);
    out[0] = '\0';
    if (r->outcome == STOCKADE_OUTCOME_EXITED)
        return out;
    if (r->outcome == STOCKADE_OUTCOME_LIMIT && r->limits_n > 0) {
        limit_sentence(c, r, out, n);
        return out;
    }
    static const char *const what[] = {
        [STOCKADE_OUTCOME_SIGNALED] = "ended by signal",
        [STOCKADE_OUTCOME_LIMIT] = "ended by a limit",
        [STOCKADE_OUTCOME_REFUSED] = "refused by policy",
        [STOCKADE_OUTCOME_FAILED] = "Stockade failed",
        [STOCKADE_OUTCOME_NOT_EXECUTED] = "could not be executed",
        [STOCKADE_OUTCOME_CANCELLED] = "cancelled",
    };
    bool known = r->outcome < sizeof what / sizeof what[0] && what[r->outcome] != NULL;
    const char *start =
        known ? what[r->outcome] : "ended in a way that this client version does not know";
    if (r->outcome == STOCKADE_OUTCOME_SIGNALED) {
        const char *abbreviation = sigabbrev_np((int)(r->signal & 0x7f));
        (void)snprintf(out, n, "%s %u%s%s", start, r->signal, abbreviation != NULL ? " SIG" : "",
                       abbreviation != NULL ? abbreviation : "");
    } else {
        (void)snprintf(out, n, "%s%s%s", start, reason[0] != '\0' ? ": " : "", reason);
    }
    return out;
}

static void
print_limits(const struct stockade_result *r, FILE *to)
{
    char name[TEXT_MAX], value[TEXT_MAX], over[TEXT_MAX];
    for (size_t i = 0; i < r->limits_n; i++) {
        const struct stockade_limit_hit *hit = &r->limits[i];
        (void)fprintf(to, "  limit hit    %s of %s", bill_limit_name(hit->name, name, sizeof name),
                      bill_show_limit(hit->name, hit->value, value, sizeof value));
        if (hit->count)
            (void)fprintf(to, ", denied %" PRIu64 " %s\n", hit->over,
                          plural(hit->over, "time", "times"));
        else if (hit->over > 0)
            (void)fprintf(to, ", %s over\n",
                          bill_show_limit(hit->name, hit->over, over, sizeof over));
        else
            (void)fputc('\n', to);
    }
}

void
bill_print(const struct command *c, const char *sandbox, const struct stockade_result *r, FILE *to)
{
    char text[SENTENCE_MAX];
    bool one_shot = c->operand == OPERAND_COMMAND;
    bill_sentence(c, r, text, sizeof text);
    if (text[0] == '\0')
        (void)snprintf(text, sizeof text, "exited with %u", r->exit_code);
    (void)fprintf(to, "bill: %s\n", text);
    print_line(&r->bill, &lines[0], one_shot, to);
    print_cpu(&r->bill, one_shot, to);
    for (size_t i = 1; i < sizeof lines / sizeof lines[0]; i++)
        print_line(&r->bill, &lines[i], one_shot, to);
    print_limits(r, to);
    for (size_t i = 0; i < r->bill.unknown_n; i++)
        (void)fprintf(to, "  not known    %s\n", text_clean(r->bill.unknown[i], text, sizeof text));
    record_print_for_bill(r->record, sandbox, to);
}
