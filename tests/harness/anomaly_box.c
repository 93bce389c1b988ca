// SPDX-License-Identifier: Apache-2.0
// See anomaly_box.h.
#include "tests/harness/anomaly_box.h"

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

int
set_up(void **state)
{
    (void)state;
    anomaly_config_usual(&policy);
    box_init(&box, &policy, 1000, on_raise, &box);
    memset(raised, 0, sizeof raised);
    memset(counted, 0, sizeof counted);
    memset(answered, 0, sizeof answered);
    now_ns = 1000 * S;
    return 0;
}

void
event(uint32_t kind, const void *body, size_t n)
{
    struct event e = {
        .time_ns = now_ns, .kind = (uint16_t)kind, .size = (uint32_t)n, .comm = "job"};
    box_event(&box, &e, body, BOX_EXE_KNOWN);
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
    box_event(&box, &e, &x, exe);
}
