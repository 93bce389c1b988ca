// SPDX-License-Identifier: Apache-2.0
// proto/detect_fields: a rule that needs a field which none of its kinds of events has is refused; the fields of a kind are those that
// detect_fill() finds in its events.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/detect.h"
#include "proto/validate.h"

static const uint8_t seed[16] = {1};

static int
read_files(const struct detect_file *files, size_t n, struct err *e)
{
    struct detect *d = NULL;
    const int r = detect_read(files, n, &detect_bounds_host, seed, &d, e);
    detect_free(d);
    return r;
}

static int
read_rules(const char *text, struct err *e)
{
    const struct detect_file files[] = {detect_tripwire_file(), {"r.yaml", text, strlen(text)}};
    return read_files(files, 2, e);
}

static void
refused(const char *text, const char *says)
{
    struct err e = {.text = ""};
    if (read_rules(text, &e) == 0)
        fail_msg("%s is accepted", text);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    if (strcmp(e.text, says) != 0)
        fail_msg("\"%s\" is not \"%s\"", e.text, says);
}

static void
accepted(const char *text)
{
    struct err e = {.text = ""};
    if (read_rules(text, &e) < 0)
        fail_msg("%s: %s", text, e.text);
}

#define RULE(rest) "rules: [{id: r, severity: info, message: m, " rest "}]"
#define HAS(field, kinds)                                                                          \
    "rule r: its kinds of events have no field " field                                             \
    ", so this never matches; these have it: " kinds
#define NONE_HAS_ALL                                                                               \
    "rule r: none of its kinds of events has all of these fields, so this never matches"

static void
a_field_that_no_kind_has_is_refused_where_it_stands(void **state)
{
    (void)state;
    refused(
        "rules:\n  - id: r\n    severity: info\n    message: m\n    match:\n      kinds: [denied, "
        "connect]\n      all:\n        - comm: {exact: [a]}\n          arguments: {glob: "
        "[\"*\"]}\n",
        "r.yaml:9:22: arguments: " HAS("arguments", "exec, dangerous_call, io_uring"));
    refused(RULE("match: {kinds: [exec], all: [{comm: {exact: [x]}}, {path: {exact: [/a]}}]}"),
            "r.yaml:1:103: path: " HAS("path", "file_transfer, sensitive_open"));
    refused(
        RULE("match: {kinds: [exec], any: [{comm: {exact: [x]}}, {port: {min: 1}}]}"),
        "r.yaml:1:103: port: " HAS("port", "connect, denied, lookup, flow, flow_ended, listen"));
    refused(RULE("match: {kinds: [exec], not: [{error: {exact: [1]}}]}"),
            "r.yaml:1:82: error: " HAS("error", "sensitive_open, dangerous_call, io_uring"));
    refused(RULE("match: {kinds: [exec]}, exceptions: [{reason: x, match: {rule: {exact: [a]}}}]"),
            "r.yaml:1:108: rule: " HAS("rule", "finding"));
    refused(RULE("match: {kinds: [exec]}, aggregate: {function: distinct, of: destination, "
                 "threshold: 3}"),
            "r.yaml:1:105: of: " HAS("destination",
                                     "credential_refused, handshake_refused, connect, denied, "
                                     "lookup, flow, flow_ended, listen"));
    refused(RULE("aggregate: {function: sequence, steps: [{kinds: [exec]}, {kinds: [exit], all: "
                 "[{uid: {exact: [0]}}]}]}"),
            "r.yaml:1:130: uid: " HAS("uid", "exec"));
    refused(RULE("match: {kinds: [sensitive_open], all: [{own_tool: {exact: [1]}}]}"),
            "r.yaml:1:95: own_tool: rule r: only tripwires have the field own_tool");
}

static void
fields_of_different_kinds_are_in_no_event_together(void **state)
{
    (void)state;
    refused(RULE("match: {kinds: [exec, denied], all: [{cwd: {exact: [/a]}, port: {min: 1}}]}"),
            "r.yaml:1:82: " NONE_HAS_ALL);
    refused(RULE("match: {kinds: [exec, denied], all: [{cwd: {exact: [/a]}}, {port: {min: 1}}]}"),
            "r.yaml:1:104: " NONE_HAS_ALL);
    refused(RULE("match: {kinds: [exec, denied], all: [{cwd: {exact: [/a]}}], not: [{port: {min: "
                 "1}}]}"),
            "r.yaml:1:111: " NONE_HAS_ALL);
    accepted(RULE("match: {kinds: [exec, denied], any: [{cwd: {exact: [/a]}}, {port: {min: 1}}]}"));
    accepted(RULE("match: {kinds: [exec, exit], all: [{cwd: {exact: [/a]}}]}"));
}

static void
what_tripwires_have_is_theirs_and_later_files_may_name_it(void **state)
{
    (void)state;
    accepted(
        "rules: [{id: sensitive-path, tripwire: true, severity: info, exceptions: [{reason: x, "
        "match: {own_tool: {exact: [1]}}}]}]");
    accepted("rules: [{id: oom, tripwire: true, severity: info, aggregate: {threshold: 2}}]");
    refused("rules: [{id: oom, tripwire: true, severity: info, exceptions: [{reason: x, match: "
            "{own_tool: {exact: [1]}}}]}]",
            "r.yaml:1:94: own_tool: rule oom: its kinds of events have no field own_tool, so this "
            "never matches; these have it: sensitive_open, dangerous_call");
}

// ---- events with everything

static Stockade__V1__Execution execution = STOCKADE__V1__EXECUTION__INIT;
static Stockade__V1__ProcessExit ended = STOCKADE__V1__PROCESS_EXIT__INIT;
static Stockade__V1__FileOpen file = STOCKADE__V1__FILE_OPEN__INIT;
static Stockade__V1__SignalSent sent = STOCKADE__V1__SIGNAL_SENT__INIT;
static Stockade__V1__SystemCall call = STOCKADE__V1__SYSTEM_CALL__INIT;
static Stockade__V1__Denial denial = STOCKADE__V1__DENIAL__INIT;
static Stockade__V1__Flow flow = STOCKADE__V1__FLOW__INIT;
static Stockade__V1__JobFacts job = STOCKADE__V1__JOB_FACTS__INIT;
static Stockade__V1__LimitHit limit = STOCKADE__V1__LIMIT_HIT__INIT;
static Stockade__V1__Finding finding = STOCKADE__V1__FINDING__INIT;
static Stockade__V1__RemoteTerminal terminal = STOCKADE__V1__REMOTE_TERMINAL__INIT;
static Stockade__V1__ProfileScore score = STOCKADE__V1__PROFILE_SCORE__INIT;
static Stockade__V1__CredentialRefused credential = STOCKADE__V1__CREDENTIAL_REFUSED__INIT;
static Stockade__V1__FileTransfer transfer = STOCKADE__V1__FILE_TRANSFER__INIT;

static void
fill_details(void)
{
    static const char *texts[] = {"x"};
    execution.path = execution.arguments = execution.cwd = "x";
    file.path = file.operation = call.name = limit.name = finding.rule = terminal.shell = "x";
    denial.operation = denial.protocol = denial.reason = "x";
    denial.destination = "192.0.2.1:1";
    flow.protocol = "tcp";
    flow.destination = "192.0.2.1:1";
    job.reason = "x";
    score.calls = texts;
    score.n_calls = 1;
    credential.reason = credential.address = "x";
    transfer.path = transfer.direction = "x";
}

#define ROW(kind, member, case)                                                                    \
    {                                                                                              \
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_##kind, STOCKADE__V1__EVENT__DETAIL_##case, &(member) \
    }
static const struct {
    Stockade__V1__EventKind kind;
    Stockade__V1__Event__DetailCase detail;
    const void *member;
} rows[] = {
    ROW(JOB_ENDED, job, JOB),
    ROW(LIMIT_HIT, limit, LIMIT),
    ROW(FILE_TRANSFER, transfer, TRANSFER),
    ROW(CREDENTIAL_REFUSED, credential, CREDENTIAL),
    ROW(HANDSHAKE_REFUSED, credential, CREDENTIAL),
    ROW(EXEC, execution, EXECUTION),
    ROW(EXIT, ended, EXIT),
    ROW(SENSITIVE_OPEN, file, FILE),
    ROW(SIGNAL, sent, SIGNAL),
    ROW(DANGEROUS_CALL, call, CALL),
    ROW(IO_URING, call, CALL),
    ROW(OUT_OF_MEMORY, job, _NOT_SET),
    ROW(REMOTE_TERMINAL, terminal, TERMINAL),
    ROW(CONNECT, flow, FLOW),
    ROW(DENIED, denial, DENIAL),
    ROW(LISTEN, flow, FLOW),
    ROW(PROFILE, score, SCORE),
    ROW(FINDING, finding, FINDING),
    ROW(GAP, job, _NOT_SET),
};

// A rule that needs the field of events of this kind; without the tripwires, whose reading takes most of the time.
static bool
may_have(Stockade__V1__EventKind kind, const ProtobufCFieldDescriptor *f)
{
    char text[512], lower[64] = "";
    const char *name =
        protobuf_c_enum_descriptor_get_value(&stockade__v1__event_kind__descriptor, (int)kind)
            ->name +
        strlen("EVENT_KIND_");
    for (size_t i = 0; name[i] != '\0'; i++)
        lower[i] = (char)(name[i] == '_' ? '_' : name[i] | ' ');
    const char *value = "{exact: [\"1\"]}";
    if (f->type != PROTOBUF_C_TYPE_MESSAGE)
        value = "[\"a=b\"]";
    else if (f->descriptor == &stockade__v1__detection_networks__descriptor)
        value = "{within: [10.0.0.0/8]}";
    else if (f->descriptor == &stockade__v1__detection_number__descriptor)
        value = "{exact: [1]}";
    (void)snprintf(text, sizeof text,
                   "rules: [{id: r, severity: info, message: m, match: {kinds: [%s], all: [{%s: "
                   "%s}]}}]",
                   lower, f->name, value);
    struct err e = {.text = ""};
    const struct detect_file file_of_rule = {"r.yaml", text, strlen(text)};
    const int r = read_files(&file_of_rule, 1, &e);
    if (r < 0 && strstr(e.text, "have no field") == NULL &&
        strstr(e.text, "only tripwires") == NULL)
        fail_msg("%s: %s", text, e.text);
    return r == 0;
}

static void
the_table_has_what_events_have(void **state)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__detection_fields__descriptor;
    struct detect_event ev;
    (void)state;
    fill_details();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
        const uint32_t kind = rows[i].kind;
        // jobs, transfers and credentials are of no process, and so are limits and gaps
        m.comm = kind >= 16 && kind < 64 ? "x" : "";
        m.template_ = m.sandbox_name = m.tenant = "x";
        m.kind = rows[i].kind;
        m.detail_case = rows[i].detail;
        memcpy((void *)&m.job, (const void *)&rows[i].member, sizeof(void *));
        detect_fill(&m, 1, &ev);
        for (unsigned k = 0; k < type->n_fields; k++) {
            const uint32_t field = type->fields[k].id - 1;
            const bool has = (ev.has >> field & 1) != 0 || field == DETECT_LABELS;
            // a name takes the place of the address in a destination
            const bool also = field == DETECT_NAME && (ev.has >> DETECT_PORT & 1) != 0;
            if (may_have(m.kind, &type->fields[k]) != (has || also))
                fail_msg("kind %u, field %s: %d", kind, type->fields[k].name, has);
        }
    }
}

static int
set_up(void **state)
{
    struct err e;
    (void)state;
    return validate_init(&e);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_that_no_kind_has_is_refused_where_it_stands),
        cmocka_unit_test(fields_of_different_kinds_are_in_no_event_together),
        cmocka_unit_test(what_tripwires_have_is_theirs_and_later_files_may_name_it),
        cmocka_unit_test(the_table_has_what_events_have),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
