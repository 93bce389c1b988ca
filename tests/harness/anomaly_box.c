// SPDX-License-Identifier: Apache-2.0
// See anomaly_box.h.
#include "tests/harness/anomaly_box.h"

#include "proto/detect.h"
#include "proto/validate.h"
#include "server/sandbox/sandbox.h"
#include "server/telemetry/event_draft.h"

struct anomaly_config policy;

struct box box;

uint64_t now_ns;

unsigned raised[ANOMALY_RULES]; // reported findings

unsigned counted[ANOMALY_RULES]; // withheld findings

unsigned answered[ANOMALY_RULES]; // repeated responses

uint32_t about; // number of the job of the last finding

double score;

char said[FINDING_TEXT_MAX];

static void
on_raise(void *cookie, enum box_voice voice, enum anomaly_rule rule, double s, const char *text)
{
    assert_ptr_equal(cookie, &box);
    answered[rule]++;
    counted[rule] += voice == BOX_COUNT;
    if (voice != BOX_REPORT)
        return;
    raised[rule]++;
    about = box.job != NULL ? box.job->number : 0;
    score = s;
    (void)snprintf(said, sizeof said, "%s", text);
}

static struct detect *rules; // the conditions that ship

static void
load_rules(void)
{
    static const uint8_t seed[16] = {0};
    const struct detect_file file = detect_tripwire_file();
    struct err e;
    assert_int_equal(validate_init(&e), 0);
    detect_free(rules);
    rules = NULL;
    if (detect_read(&file, 1, &detect_bounds_host, seed, &rules, &e) < 0)
        fail_msg("%s", e.text);
}

int
set_up(void **state)
{
    (void)state;
    if (rules == NULL)
        load_rules();
    anomaly_config_usual(&policy);
    static struct box_evidence evidence;
    box_init(&box, &evidence, &policy, 1000, on_raise, &box);
    enter(NULL);
    memset(raised, 0, sizeof raised);
    memset(counted, 0, sizeof counted);
    memset(answered, 0, sizeof answered);
    now_ns = 1000 * S;
    return 0;
}

void
enter(struct box_job *j)
{
    box_enter(&box, j, rules);
}

int
tear_down(void **state)
{
    (void)state;
    detect_free(rules);
    rules = NULL;
    return 0;
}

// As telemetry passes it on: with its message.
void
give(const struct event *e, const void *body, enum box_exe exe)
{
    static struct event_draft o;
    static struct template template;
    static struct sandbox sandbox = {.spec.template = &template};
    static struct telemetry_box nowhere = {.sandbox = &sandbox};
    struct detect_event ev;
    const struct telemetry_kind *row = telemetry_kind(e->kind);
    memset(&o, 0, sizeof o);
    stockade__v1__event__init(&o.m);
    if (row == NULL || e->size < row->size) {
        box_event(&box, e, body, exe, NULL);
        return;
    }
    o.box = &nowhere;
    o.m.kind = row->kind;
    o.m.comm = "job";
    row->fill(&o, body);
    detect_fill(&o.m, e->time_ns, &ev);
    box_event(&box, e, body, exe, &ev);
}

void
event(uint32_t kind, const void *body, size_t n)
{
    struct event e = {
        .time_ns = now_ns, .kind = (uint16_t)kind, .size = (uint32_t)n, .comm = "job"};
    give(&e, body, BOX_EXE_KNOWN);
}

void
dial(uint32_t kind, uint8_t host, uint16_t port)
{
    struct net_event e = {.address = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = host},
                          .port = port,
                          .family = 2,
                          .hook = NET_HOOK_CONNECT};
    event(kind, &e, sizeof e);
}

void
exec_path(const char *path, bool memfd, enum box_exe exe, uint64_t inode)
{
    struct watch_exec x = {.exe = {.inode = inode}, .memfd = memfd};
    struct event e = {.time_ns = now_ns, .kind = EVENT_EXEC, .size = sizeof x};
    x.path_n = (uint32_t)strlen(path);
    memcpy(x.path, path, x.path_n);
    give(&e, &x, exe);
}
