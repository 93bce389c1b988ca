// SPDX-License-Identifier: Apache-2.0
// See policy_private.h: one rule, from its message to what a decision needs. An error names the place in the file.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy_private.h"
#include "proto/arena.h"
#include "proto/config_read.h"
#include "proto/glob.h"
#include "proto/language.h"
#include "proto/quantity.h"
#include "proto/rules.h"
#include "proto/validate.h"
#include "server/policy/network.h"

#define MS_PER_DAY UINT64_C(86400000)
#define NS_PER_MS  UINT64_C(1000000)

typedef Stockade__V1__PolicyMatch policy_match;

// ---- locations in the file

static struct yaml_node *
child(struct yaml_node *n, const char *key)
{
    for (struct yaml_node *it = n->child; it != NULL; it = it->next)
        if (it->key != NULL && strcmp(it->key, key) == 0)
            return it;
    return n;
}

static struct yaml_node *
nth(struct yaml_node *n, size_t i)
{
    struct yaml_node *it = n->child;
    for (; it != NULL && i > 0; i--)
        it = it->next;
    return it != NULL ? it : n;
}

// ---- methods

static const char prefix[] = "/stockade.v1.";

const char *
policy_method_name(uint32_t i)
{
    const struct method_rules *m = i < POLICY_METHODS_MAX ? validate_method_at(i) : NULL;
    if (m == NULL)
        return NULL;
    return strncmp(m->path, prefix, sizeof prefix - 1) == 0 ? m->path + sizeof prefix - 1 : m->path;
}

uint32_t
policy_method(const char *name)
{
    uint32_t low = 0, high = 0;
    while (policy_method_name(high) != NULL)
        high++;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(policy_method_name(middle), name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return POLICY_METHODS_MAX;
}

static bool
any_method(const char *pattern)
{
    const char *name = NULL;
    for (uint32_t i = 0; (name = policy_method_name(i)) != NULL; i++)
        if (glob_match(pattern, name, strlen(name)))
            return true;
    return false;
}

static int
check_methods(const struct config_reader *f, const policy_match *m, struct yaml_node *n)
{
    for (size_t i = 0; i < m->n_methods; i++)
        if (!any_method(m->methods[i]))
            return config_fail(f, nth(child(n, "methods"), i),
                               "%.96s: no method has this name; 'ProcessService/*' is one pattern",
                               m->methods[i]);
    return 0;
}

static int
check_languages(const struct config_reader *f, const policy_match *m, struct yaml_node *n)
{
    struct err why;
    for (size_t i = 0; i < m->n_languages; i++)
        if (!language_any(m->languages[i], &why))
            return config_fail(f, nth(child(n, "languages"), i), "%.300s", why.text);
    return 0;
}

// ---- commands

uint32_t
policy_program(const char *word)
{
    uint32_t h = UINT32_C(2166136261); // FNV-1a
    for (const char *p = word; *p != '\0'; p++)
        h = (h ^ (uint8_t)*p) * UINT32_C(16777619);
    return h != 0 ? h : 1;
}

static bool
read_command(struct arena *a, const char *text, struct policy_command *out)
{
    size_t room = 1;
    for (const char *p = text; *p != '\0'; p++)
        room += *p == ' ';
    out->word = arena_alloc(a, room * sizeof(void *));
    for (const char *p = text + strspn(text, " "); *p != '\0' && out->word != NULL;) {
        const size_t length = strcspn(p, " ");
        out->word[out->n] = arena_copy(a, p, length);
        if (out->word[out->n++] == NULL)
            return false;
        p += length;
        p += strspn(p, " ");
    }
    if (out->word == NULL)
        return false;
    out->more = out->n > 0 && strcmp(out->word[out->n - 1], "...") == 0;
    out->n -= out->more;
    if (out->n > 0 && glob_is_plain(out->word[0]))
        out->program = policy_program(out->word[0]);
    return true;
}

static int
read_commands(const struct config_reader *f, struct arena *a, const policy_match *m,
              struct yaml_node *n, struct policy_rule *out)
{
    out->commands = arena_alloc(a, (m->n_commands + 1) * sizeof *out->commands);
    for (size_t i = 0; i < m->n_commands; i++) {
        if (out->commands == NULL || !read_command(a, m->commands[i], &out->commands[i]))
            return err_sys(f->e, ENOMEM, "read %s", f->name);
        if (out->commands[i].n == 0 && !out->commands[i].more)
            return config_fail(f, nth(child(n, "commands"), i), "it has no word");
    }
    out->commands_n = m->n_commands;
    return 0;
}

// ---- destinations

int
policy_read_destinations(size_t n, const char *const *words, struct network **out, size_t *wrong,
                         struct err *e)
{
    struct network *to = network_new();
    int r = 0;
    if (to == NULL)
        return err_sys(e, ENOMEM, "read destinations");
    if (n > 0)
        to->mode = NET_ALLOWLIST;
    for (size_t i = 0; i < n && r == 0; i++) {
        *wrong = i;
        if (strcmp(words[i], "*") == 0)
            to->mode = NET_OPEN;
        else
            r = network_add_target(to, words[i], e);
    }
    if (r == 0)
        *out = to;
    else
        network_unref(to);
    return r;
}

static int
read_destinations(const struct config_reader *f, const policy_match *m, struct yaml_node *n,
                  struct policy_rule *out)
{
    struct err why;
    size_t wrong = 0;
    if (m->n_destinations == 0)
        return 0;
    if (policy_read_destinations(m->n_destinations, m->destinations, &out->destinations, &wrong,
                                 &why) < 0)
        return config_fail(f, nth(child(n, "destinations"), wrong), "%.300s", why.text);
    return 0;
}

// ---- limits

int
policy_read_limits(const Stockade__V1__PolicyLimits *m, struct limits *out, struct err *e)
{
    *out = (struct limits){0};
    if (m == NULL)
        return 0;
    const struct {
        enum limit limit;
        const char *text;
    } rows[] = {
        {LIMIT_MEMORY_BYTES, m->memory},
        {LIMIT_CPU_MILLIS, m->cpus},
        {LIMIT_CPU_TIME_MS, m->cpu_time},
        {LIMIT_WALL_MS, m->timeout},
        {LIMIT_PIDS, m->pids},
        {LIMIT_DISK_BYTES, m->disk},
        {LIMIT_OUTPUT_BYTES, m->output},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct limit_row *row = &limit_table[rows[i].limit];
        const struct quantity_unit *units = limits_units((int)rows[i].limit);
        char least[QUANTITY_TEXT], most[QUANTITY_TEXT];
        uint64_t v = 0;
        if (rows[i].text[0] == '\0')
            continue;
        int r = quantity_read(rows[i].text, units, &v);
        if (r == -EINVAL)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: must be %s", row->key,
                           quantity_forms(units));
        if (r < 0 || v < row->min || v > row->max)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: must be from %s to %s", row->key,
                           quantity_write(row->min, units, least),
                           quantity_write(row->max, units, most));
        out->v[rows[i].limit] = v;
    }
    return 0;
}

static int
read_limits(const struct config_reader *f, const Stockade__V1__PolicyLimits *m, struct yaml_node *n,
            struct limits *out)
{
    struct err why;
    if (policy_read_limits(m, out, &why) < 0)
        return config_fail(f, n, "%.300s", why.text);
    return 0;
}

// ---- time

static int
read_period(const struct config_reader *f, const char *text, struct yaml_node *n, uint64_t most_ms,
            uint64_t *out)
{
    char most[QUANTITY_TEXT];
    int r = quantity_read(text, quantity_time_ms, out);
    if (r == 0 && *out > 0 && *out <= most_ms)
        return 0;
    return config_fail(f, n, "must be a time, such as 30s, 1m or 2h, at most %s",
                       quantity_write(most_ms, quantity_time_ms, most));
}

static uint16_t
minute_of(const char *text)
{
    return (uint16_t)((text[0] - '0') * 600 + (text[1] - '0') * 60 + (text[3] - '0') * 10 +
                      (text[4] - '0'));
}

static int
read_times(const struct config_reader *f, const Stockade__V1__PolicyTimes *m, struct yaml_node *n,
           struct policy_rule *out)
{
    static const char *const days[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
    if (m == NULL)
        return 0;
    if ((m->from[0] == '\0') != (m->until[0] == '\0'))
        return config_fail(f, n, "from and until must both be there, or neither");
    for (size_t i = 0; i < m->n_days; i++)
        for (unsigned k = 0; k < 7; k++)
            if (strcmp(days[k], m->days[i]) == 0)
                out->days |= (uint8_t)(1U << k);
    if (m->n_days == 0)
        out->days = 0x7f;
    if (m->from[0] != '\0') {
        out->from = minute_of(m->from);
        out->until = minute_of(m->until);
        if (out->from == out->until)
            return config_fail(f, n, "from and until are the same");
    }
    return 0;
}

static void
make_bucket(struct policy_bucket *b, uint64_t calls, uint64_t room, int of)
{
    b->calls = calls;
    b->step_ns = b->period_ms * NS_PER_MS / calls;
    b->step_ns = b->step_ns > 0 ? b->step_ns : 1;
    b->room_ns = b->step_ns * room;
    b->of = of;
}

static int
read_history(const struct config_reader *f, const Stockade__V1__PolicyHistory *m,
             struct yaml_node *n, struct policy_bucket *out)
{
    if (m == NULL)
        return 0;
    int r = read_period(f, m->period, child(n, "period"), 31 * MS_PER_DAY, &out->period_ms);
    if (r == 0)
        make_bucket(out, m->calls_over, m->calls_over, (int)m->of);
    return r;
}

static int
read_rate(const struct config_reader *f, const Stockade__V1__PolicyRate *m, struct yaml_node *n,
          struct policy_bucket *out)
{
    if (m == NULL)
        return 0;
    const uint64_t burst = m->burst != 0 ? m->burst : m->calls;
    int r = read_period(f, m->period, child(n, "period"), MS_PER_DAY, &out->period_ms);
    if (r < 0)
        return r;
    if (burst / m->calls * out->period_ms > 31 * MS_PER_DAY)
        return config_fail(f, child(n, "burst"), "it takes more than 31 days to fill");
    make_bucket(out, m->calls, burst, (int)m->of);
    return 0;
}

// ---- the rule

static int
read_match(const struct config_reader *f, struct arena *a, struct yaml_node *n,
           struct policy_rule *out)
{
    const policy_match *m = out->match;
    int r = check_methods(f, m, n);
    if (r == 0)
        r = check_languages(f, m, n);
    if (r == 0)
        r = read_commands(f, a, m, n, out);
    if (r == 0)
        r = read_destinations(f, m, n, out);
    if (r == 0)
        r = read_limits(f, m->limits_above, child(n, "limits_above"), &out->above);
    if (r == 0)
        r = read_limits(f, m->limits_within, child(n, "limits_within"), &out->within);
    if (r == 0)
        r = read_times(f, m->times, child(n, "times"), out);
    if (r == 0)
        r = read_history(f, m->history, child(n, "history"), &out->history);
    out->has_above = m->limits_above != NULL;
    out->has_within = m->limits_within != NULL;
    return r;
}

static int
check_verdict(const struct config_reader *f, const Stockade__V1__PolicyRule *m, struct yaml_node *n)
{
    const bool asks = m->verdict == STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_ASK;
    const bool limits = m->verdict == STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_LIMIT;
    if (m->ask != NULL && !asks)
        return config_fail(f, child(n, "ask"), "it belongs to the verdict ask");
    if (m->limit != NULL && !limits)
        return config_fail(f, child(n, "limit"), "it belongs to the verdict limit");
    if (asks && (m->ask == NULL || m->ask->n_approvers == 0))
        return config_fail(f, n, "the verdict ask needs ask.approvers");
    if (limits && (m->limit == NULL || (m->limit->limits == NULL && m->limit->rate == NULL)))
        return config_fail(f, n, "the verdict limit needs limit.limits or limit.rate");
    return 0;
}

static int
read_verdict(const struct config_reader *f, struct yaml_node *n, struct policy_rule *out)
{
    static const enum policy_verdict verdicts[] = {POLICY_DENY, POLICY_ALLOW, POLICY_DENY,
                                                   POLICY_ASK, POLICY_LIMIT};
    const Stockade__V1__PolicyRule *m = out->m;
    int r = check_verdict(f, m, n);
    out->verdict = verdicts[m->verdict];
    if (r == 0 && m->ask != NULL && m->ask->timeout[0] != '\0')
        r = read_period(f, m->ask->timeout, child(child(n, "ask"), "timeout"), 7 * MS_PER_DAY,
                        &out->timeout_ms);
    if (r == 0 && m->limit != NULL)
        r = read_limits(f, m->limit->limits, child(child(n, "limit"), "limits"), &out->most);
    if (r == 0 && m->limit != NULL)
        r = read_rate(f, m->limit->rate, child(child(n, "limit"), "rate"), &out->rate);
    return r;
}

int
policy_make_rule(const struct config_reader *file, struct arena *a, const char *layer,
                 const Stockade__V1__PolicyRule *m, struct yaml_node *n, struct policy_rule *out)
{
    static const policy_match every = STOCKADE__V1__POLICY_MATCH__INIT;
    out->m = m;
    out->match = m->match != NULL ? m->match : &every;
    out->timeout_ms = 600000;
    out->line = n->line;
    out->column = n->column;
    (void)snprintf(out->name, sizeof out->name, "%s/%s", layer, m->id);
    int r = read_match(file, a, child(n, "match"), out);
    return r == 0 ? read_verdict(file, n, out) : r;
}
