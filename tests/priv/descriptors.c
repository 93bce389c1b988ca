// SPDX-License-Identifier: Apache-2.0
// A broker without free descriptors: requests that need one fail with RESOURCE_EXHAUSTED, nothing else changes, and
// everything works again when there are some.
#include "tests/harness/broker.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <linux/capability.h>

enum { LIMIT = 200 };

static unsigned
descriptors(void)
{
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)broker.pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n - 2;
}

// Connections that use up the broker's descriptors, like a crowd of clients.
static int crowd[LIMIT];
static unsigned crowd_n;

static void
crowd_grows(void)
{
    static const char hello[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char answer[8];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const char *path = broker.address + strlen("ipc://");
    assert_true(strlen(path) < sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    crowd[crowd_n++] = fd;
}

// Leaves the broker about so many; the exact number depends on its pool.
static void
leave(unsigned more)
{
    while (descriptors() + more < LIMIT)
        crowd_grows();
}

static void
give_back(void)
{
    while (crowd_n > 0)
        (void)close(crowd[--crowd_n]);
}

// True: success. A failure must be RESOURCE_EXHAUSTED.
static bool
run_true(void)
{
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    (void)shell(&o.command, "true");
    if (stockade_run(broker.s, &o, NULL, &r, &e) < 0) {
        if (e.code != STOCKADE_RESOURCE_EXHAUSTED)
            fail_msg("%d: %s", e.code, e.text);
        return false;
    }
    bool well = r->outcome == STOCKADE_OUTCOME_EXITED;
    if (!well)
        fail_msg("outcome %u: %s", r->outcome, r->reason);
    stockade_free(r);
    return well;
}

// True: success. A failure must be RESOURCE_EXHAUSTED.
static bool
create_and_delete(void)
{
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    o.template_name = "small"; // a template without a pool
    if (stockade_create(broker.s, &o, &sb, &e) < 0) {
        if (e.code != STOCKADE_RESOURCE_EXHAUSTED)
            fail_msg("%d: %s", e.code, e.text);
        return false;
    }
    assert_int_equal(stockade_delete(broker.s, sb->id, &e), 0);
    stockade_free(sb);
    return true;
}

// The pool uses and releases descriptors at any time, so a single try may succeed.
static void
is_refused(bool (*what)(void))
{
    leave(0);
    wait_within("it is refused", WAIT_MS, !what()) leave(0);
    give_back();
}

static uint32_t
sandboxes(void)
{
    const struct stockade_info *info = NULL;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    uint32_t n = info->sandboxes;
    stockade_free(info);
    return n;
}

// Waits until the pool has exactly its two ready sandboxes.
static unsigned
settle(unsigned fds)
{
    unsigned now = 0;
    char what[80];
    (void)snprintf(what, sizeof what, "2 sandboxes, and at most %u descriptors", fds);
    wait_until(what, sandboxes() == 2 && (now = descriptors()) <= fds);
    return now;
}

static void
without_descriptors_requests_fail_and_the_broker_continues(void **state)
{
    (void)state;
    assert_true(run_true() && create_and_delete());
    (void)settle(LIMIT);
    time_passes("what was freed is still being given back", 500);
    unsigned fds = settle(LIMIT);
    is_refused(create_and_delete);
    is_refused(run_true);
    for (unsigned more = 2; more < 20;
         more += 2) { // the limit is reached at each step of the request
        leave(more);
        (void)create_and_delete();
        (void)run_true();
        give_back();
    }
    assert_true(run_true() && create_and_delete());
    (void)settle(fds + 2);
}

static void
info_says_that_the_limit_is_too_low(void **state)
{
    (void)state;
    const struct stockade_info *info = NULL;
    bool reported = false;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    for (size_t i = 0; i < info->degraded_n; i++)
        if (strstr(info->degraded[i], "broker-descriptors: at most 200 files may be open") != NULL)
            reported = true;
    assert_true(reported);
    stockade_free(info);
}

// The limit is inherited, and cannot be raised without CAP_SYS_RESOURCE.
static int
start_poor_broker(void **state)
{
    const struct rlimit l = {LIMIT, LIMIT};
    if (geteuid() == 0) { // otherwise the test is skipped
        assert_int_equal(prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
    }
    return start_broker(state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_descriptors_requests_fail_and_the_broker_continues),
        cmocka_unit_test(info_says_that_the_limit_is_too_low),
    };
    return cmocka_run_group_tests(tests, start_poor_broker, stop_broker);
}
