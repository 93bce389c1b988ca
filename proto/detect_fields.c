// SPDX-License-Identifier: Apache-2.0
// See detect.h: which fields the events of a kind can have. A rule that needs a field of other kinds would never match, and nobody would
// notice: it is refused.
//
// The table follows detect_fill(). A field that only some events of a kind have is in it.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config_read.h"
#include "detect_private.h"
#include "yaml_tree.h"

#define BIT(name)  (UINT64_C(1) << DETECT_##name)
#define KIND(name) STOCKADE__V1__EVENT_KIND__EVENT_KIND_##name

// Of the sandbox, and of each event.
#define EACH   (BIT(TEMPLATE) | BIT(SANDBOX_NAME) | BIT(TENANT) | BIT(LABELS) | BIT(TIME))
#define TARGET (BIT(DESTINATION) | BIT(ADDRESS) | BIT(PORT) | BIT(NAME) | BIT(PROTOCOL))

static const uint64_t fields[DETECT_KINDS] = {
    [KIND(SANDBOX_CREATED)] = EACH,
    [KIND(SANDBOX_DELETED)] = EACH | BIT(REASON),
    [KIND(SANDBOX_PAUSED)] = EACH,
    [KIND(SANDBOX_RESUMED)] = EACH,
    [KIND(POLICY_CHANGED)] = EACH | BIT(REASON),
    [KIND(JOB_STARTED)] = EACH | BIT(EXECUTABLE),
    [KIND(JOB_ENDED)] = EACH | BIT(REASON) | BIT(CODE) | BIT(SIGNAL),
    [KIND(LIMIT_HIT)] = EACH | BIT(REASON),
    [KIND(SANDBOX_ASLEEP)] = EACH | BIT(REASON),
    [KIND(SANDBOX_AWAKE)] = EACH,
    [KIND(FILE_TRANSFER)] = EACH | BIT(PATH) | BIT(OPERATION) | BIT(BYTES),
    [KIND(CREDENTIAL_REFUSED)] = EACH | BIT(REASON) | BIT(DESTINATION),
    [KIND(HANDSHAKE_REFUSED)] = EACH | BIT(REASON) | BIT(DESTINATION),
    [KIND(EXEC)] = EACH | BIT(COMM) | BIT(EXECUTABLE) | BIT(ARGUMENTS) | BIT(CWD) | BIT(UID) |
                   BIT(UNNAMED) | BIT(ON_SOCKET) | BIT(UNNAMED_ARGUMENT) | BIT(UNPROFILED) |
                   BIT(INODE),
    [KIND(EXIT)] = EACH | BIT(COMM) | BIT(CODE) | BIT(SIGNAL),
    [KIND(SENSITIVE_OPEN)] =
        EACH | BIT(COMM) | BIT(PATH) | BIT(OPERATION) | BIT(FLAGS) | BIT(ERROR),
    [KIND(SIGNAL)] = EACH | BIT(COMM) | BIT(SIGNAL),
    [KIND(DANGEROUS_CALL)] = EACH | BIT(COMM) | BIT(CALL) | BIT(ARGUMENTS) | BIT(ERROR),
    [KIND(IO_URING)] = EACH | BIT(COMM) | BIT(CALL) | BIT(ARGUMENTS) | BIT(ERROR),
    [KIND(OUT_OF_MEMORY)] = EACH | BIT(COMM),
    [KIND(REMOTE_TERMINAL)] = EACH | BIT(COMM) | BIT(EXECUTABLE) | BIT(ON_SOCKET),
    [KIND(CONNECT)] = EACH | BIT(COMM) | TARGET,
    [KIND(DENIED)] = EACH | BIT(COMM) | TARGET | BIT(OPERATION) | BIT(REASON),
    [KIND(LOOKUP)] = EACH | BIT(COMM) | TARGET | BIT(REASON),
    [KIND(FLOW)] = EACH | BIT(COMM) | TARGET | BIT(REASON),
    [KIND(FLOW_ENDED)] = EACH | BIT(COMM) | TARGET | BIT(REASON) | BIT(BYTES) | BIT(IN_BYTES),
    [KIND(LISTEN)] = EACH | BIT(COMM) | TARGET,
    [KIND(PROFILE)] = EACH | BIT(COMM) | BIT(CALL) | BIT(UNSEEN) | BIT(FIRST_REFUSAL),
    [KIND(FINDING)] = EACH | BIT(COMM) | BIT(RULE),
    [KIND(GAP)] = EACH,
};

// What the broker adds for tripwires.
static uint64_t
fields_of(uint32_t kind, bool tripwire)
{
    uint64_t has = fields[kind];
    if (tripwire && (kind == KIND(SENSITIVE_OPEN) || kind == KIND(DANGEROUS_CALL)))
        has |= BIT(OWN_TOOL);
    if (tripwire && kind == KIND(SENSITIVE_OPEN))
        has |= BIT(REASON);
    return tripwire && kind == KIND(PROFILE) ? has | BIT(PROFILE) : has;
}

// Whether one of the kinds has all of the fields.
static bool
has_all(const uint64_t kinds[2], uint64_t wanted, bool tripwire)
{
    for (uint32_t k = 0; k < DETECT_KINDS; k++)
        if ((kinds[k / 64] >> k % 64 & 1) != 0 && (wanted & ~fields_of(k, tripwire)) == 0)
            return true;
    return false;
}

// ---- refusals

struct checking {
    const struct config_reader *file;
    const struct detect_rule *rule;
    uint64_t kinds[2]; // those that can match
};

// "exec, exit": the kinds that have a field, as rules name them.
static void
list_kinds(int field, bool tripwire, char *out, size_t n)
{
    const ProtobufCEnumDescriptor *d = &stockade__v1__event_kind__descriptor;
    size_t at = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < d->n_values; i++) {
        const char *name = d->values[i].name + strlen("EVENT_KIND_");
        if ((fields_of((uint32_t)d->values[i].value, tripwire) >> field & 1) == 0 ||
            at + strlen(name) + sizeof ", " > n)
            continue;
        at += (size_t)snprintf(out + at, n - at, "%s", at > 0 ? ", " : "");
        for (; *name != '\0'; name++)
            out[at++] = (char)tolower((unsigned char)*name);
        out[at] = '\0';
    }
}

static int
fail_field(const struct checking *c, struct yaml_node *node, int field)
{
    char kinds[200];
    list_kinds(field, c->rule->m->tripwire, kinds, sizeof kinds);
    if (kinds[0] == '\0')
        return config_fail(c->file, node, "rule %s: only tripwires have the field %s",
                           c->rule->m->id, detect_field_name[field]);
    return config_fail(c->file, node,
                       "rule %s: its kinds of events have no field %s, so this never matches; "
                       "these have it: %s",
                       c->rule->m->id, detect_field_name[field], kinds);
}

static uint64_t
fields_in(const struct detect_parts *p)
{
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < p->n; i++)
        wanted |= UINT64_C(1) << p->part[i].field;
    return wanted;
}

// `also`: fields that the same event must have, of items before this one.
static int
check_parts(const struct checking *c, const struct detect_parts *p, uint64_t also,
            struct yaml_node *node)
{
    const bool tripwire = c->rule->m->tripwire;
    for (uint32_t i = 0; i < p->n; i++) {
        const int field = (int)p->part[i].field;
        if (!has_all(c->kinds, UINT64_C(1) << field, tripwire))
            return fail_field(c, detect_node(node, detect_field_name[field]), field);
    }
    if (has_all(c->kinds, fields_in(p) | also, tripwire))
        return 0;
    return config_fail(c->file, node,
                       "rule %s: none of its kinds of events has all of these fields, so this "
                       "never matches",
                       c->rule->m->id);
}

// `all`: its fields are added to *also.
static int
check_list(const struct checking *c, uint32_t n, const struct detect_parts *parts, bool all,
           uint64_t *also, struct yaml_node *list)
{
    struct yaml_node *it = list->child;
    for (uint32_t i = 0; i < n && it != NULL; i++, it = it->next) {
        const int r = check_parts(c, &parts[i], *also, it);
        if (r < 0)
            return r;
        *also |= all ? fields_in(&parts[i]) : 0;
    }
    return 0;
}

// The kinds that have the fields of `all` are added to *live: exceptions are about them.
static int
check_match(struct checking *c, const struct detect_match *m, struct yaml_node *node,
            uint64_t live[2])
{
    uint64_t all = 0;
    memcpy(c->kinds, m->kinds, sizeof c->kinds);
    int r = check_list(c, m->all_n, m->all, true, &all, detect_node(node, "all"));
    if (r == 0)
        r = check_list(c, m->any_n, m->any, false, &all, detect_node(node, "any"));
    if (r == 0)
        r = check_list(c, m->not_n, m->not, false, &all, detect_node(node, "not"));
    for (uint32_t k = 0; k < DETECT_KINDS; k++)
        if ((all & ~fields_of(k, c->rule->m->tripwire)) == 0)
            live[k / 64] |= c->kinds[k / 64] & UINT64_C(1) << k % 64;
    return r;
}

// Those of this file come after those of earlier files, which were checked there.
static int
check_exceptions(const struct checking *c, struct yaml_node *node)
{
    const struct detect_rule *r = c->rule;
    struct yaml_node *list = detect_node(node, "exceptions");
    uint32_t own = 0;
    if (list == node)
        return 0;
    for (const struct yaml_node *it = list->child; it != NULL; it = it->next)
        own++;
    const uint32_t from = r->exceptions_n > own ? r->exceptions_n - own : 0;
    struct yaml_node *it = list->child;
    for (uint32_t i = from; i < r->exceptions_n && it != NULL; i++, it = it->next) {
        const int rc = check_parts(c, &r->exception[i], 0, detect_node(it, "match"));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int
detect_check_fields(const struct config_reader *file, const struct detect_rule *r,
                    struct yaml_node *node)
{
    struct checking c = {file, r, {0, 0}};
    struct yaml_node *aggregate = detect_node(node, "aggregate");
    struct yaml_node *step = detect_node(aggregate, "steps")->child;
    const bool sequence =
        r->function == STOCKADE__V1__DETECTION_FUNCTION__DETECTION_FUNCTION_SEQUENCE;
    uint64_t live[2] = {0, 0};
    int rc = 0;
    if (r->matches_n == 0) // the broker's own code decides
        return 0;
    for (uint32_t i = 0; i < r->matches_n && rc == 0; i++) {
        rc = check_match(&c, &r->match[i], sequence ? step : detect_node(node, "match"), live);
        step = sequence ? step->next : NULL;
    }
    memcpy(c.kinds, live, sizeof live);
    if (rc == 0 && r->of >= 0 && !has_all(live, UINT64_C(1) << r->of, r->m->tripwire))
        rc = fail_field(&c, detect_node(aggregate, "of"), r->of);
    return rc == 0 ? check_exceptions(&c, node) : rc;
}
