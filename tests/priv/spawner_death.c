// SPDX-License-Identifier: Apache-2.0
// The end of the broker, of the spawner, and signals: what ends with them, and what the next start finds.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

enum { SANDBOXES_N = 20 };

static pid_t
guest_pid(const struct spawned *x)
{
    char text[32] = "";
    int dir = x->fds[SPAWN_FD_CGROUP];
    int fd = openat(dir, guest_procs(dir), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    return (pid_t)strtol(text, NULL, 10);
}

static void
start_some(struct broker *b, struct spawned all[SANDBOXES_N], pid_t pids[SANDBOXES_N])
{
    broker_start(b);
    for (uint32_t i = 0; i < SANDBOXES_N; i++) {
        spawned_create(b, &all[i], i);
        pids[i] = guest_pid(&all[i]);
    }
}

// Ended, possibly not reaped by its new parent yet.
static bool
is_dead(pid_t pid)
{
    char path[64];
    char text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    const char *state = n > 0 ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'Z' || state[2] == 'X';
}

// Whether every guest ended within a second after `since`.
static bool
all_dead_within_a_second(const pid_t pids[SANDBOXES_N], uint64_t since_ms)
{
    for (unsigned i = 0; i < SANDBOXES_N;) {
        if (is_dead(pids[i]))
            i++;
        else if (now_ms() - since_ms > scaled_ms(1000))
            return false;
        else
            time_passes("it is dying", 1);
    }
    return true;
}

static void
forget(struct spawned all[SANDBOXES_N])
{
    for (unsigned i = 0; i < SANDBOXES_N; i++)
        spawned_close_fds(&all[i]);
}

// The time that the removal of the cgroups and all processes took. *make_ms: the time that making them took.
static uint64_t
end_by_socket(uint64_t *make_ms)
{
    struct broker b;
    static struct spawned all[SANDBOXES_N];
    pid_t pids[SANDBOXES_N];
    broker_config(&b, "");
    uint64_t began = now_ms();
    start_some(&b, all, pids);
    *make_ms = now_ms() - began;
    // Sandboxes that are being made are removed as well.
    for (uint32_t i = 0; i < 10; i++) {
        struct spawn_request q = create_request(1000 + i);
        (void)broker_send(&b, &q);
    }
    uint64_t since = now_ms();
    broker_stop(&b); // checks the cgroups
    uint64_t took_ms = now_ms() - since;
    for (unsigned i = 0; i < SANDBOXES_N; i++)
        assert_true(is_dead(pids[i]));
    forget(all);
    return took_ms;
}

static void
the_sockets_end_removes_every_sandbox_within_a_second(void **state)
{
    (void)state;
    // the best of three, because other processes use the machine, too
    uint64_t best_ms = UINT64_MAX;
    uint64_t bound_ms = 1000;
    for (int i = 0; i < 3 && best_ms >= bound_ms; i++) {
        uint64_t make_ms = 0;
        uint64_t took_ms = end_by_socket(&make_ms);
        best_ms = took_ms < best_ms ? took_ms : best_ms;
        // on an emulated machine, in proportion (usually making them takes 0.1 s)
        if (make_ms > 1000)
            bound_ms = make_ms;
    }
    assert_true(best_ms < bound_ms);
}

static void
guests_end_with_a_killed_spawner_and_the_next_one_cleans_up(void **state)
{
    (void)state;
    struct broker b;
    static struct spawned all[SANDBOXES_N];
    pid_t pids[SANDBOXES_N];
    broker_config(&b, "");
    start_some(&b, all, pids);
    assert_int_equal(b.features.leftovers_cleared, 0);
    uint64_t since = now_ms();
    assert_int_equal(kill(b.pid, SIGKILL), 0);
    assert_int_equal(waitpid(b.pid, NULL, 0), b.pid);
    assert_true(all_dead_within_a_second(pids, since));
    (void)close(b.fd);
    forget(all);
    // A process that was not stopped: the next start kills it, and counts every folder.
    char path[500];
    (void)snprintf(path, sizeof path, "%s/%s", container_path(&b), all[3].name);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    (void)snprintf(path, sizeof path, "%s/%s/%s", container_path(&b), all[3].name,
                   guest_procs(dir));
    (void)close(dir);
    pid_t stray = fork();
    if (stray == 0) {
        for (;;)
            (void)pause();
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fprintf(f, "%d", stray) > 0);
    assert_int_equal(fclose(f), 0);
    broker_start(&b);
    int status = 0;
    assert_int_equal(waitpid(stray, &status, 0), stray);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(b.features.leftovers_cleared, SANDBOXES_N);
    struct spawned x;
    spawned_create(&b, &x, 3); // the same id as before
    spawned_destroy(&b, &x);
    broker_stop(&b);
}

static void
a_spawner_killed_amid_births_leaves_nothing_that_the_next_start_keeps(void **state)
{
    (void)state;
    struct broker b;
    broker_config(&b, "");
    for (unsigned round = 0; round < 8; round++) {
        broker_start(&b);
        for (uint32_t i = 0; i < 30; i++) {
            struct spawn_request q = create_request(i);
            (void)broker_send(&b, &q);
        }
        time_passes("births are on their way, further each round", 3 * round);
        assert_int_equal(kill(b.pid, SIGKILL), 0);
        assert_int_equal(waitpid(b.pid, NULL, 0), b.pid);
        (void)close(b.fd);
    }
    broker_start(&b);
    struct stat st;
    assert_int_equal(stat(container_path(&b), &st), 0);
    assert_int_equal(st.st_nlink, 2);
    broker_stop(&b);
}

static void
signals_of_a_terminal_or_of_systemd_do_not_end_it(void **state)
{
    (void)state;
    struct broker b;
    struct spawned x;
    broker_config(&b, "");
    broker_start(&b);
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        assert_int_equal(kill(b.pid, signals[i]), 0);
    assert_int_equal(getsid(b.pid), b.pid);
    spawned_create(&b, &x, 1);
    spawned_destroy(&b, &x);
    broker_stop(&b);
}

static void
replies_that_the_broker_does_not_read_stop_further_requests(void **state)
{
    (void)state;
    struct broker b;
    struct spawned x;
    enum { MANY = 20000 };
    broker_config(&b, "");
    broker_start(&b);
    spawned_create(&b, &x, 1);
    struct spawn_request q = request_for(&x, SPAWN_KILL_JOB, 5);
    // Both socket buffers fill up, then no more is accepted: the spawner does not queue replies without limit.
    uint32_t sent = 0;
    for (; sent < MANY; sent++) {
        q.seq = ++b.seq;
        if (send(b.fd, &q, sizeof q, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            struct pollfd p = {.fd = b.fd, .events = POLLOUT};
            if (poll(&p, 1, 200) == 0)
                break;
            b.seq--;
            sent--;
        }
    }
    assert_true(sent < MANY);
    for (uint32_t i = 0; i < sent; i++) {
        struct spawn_reply r;
        int fds[SPAWN_FDS_MAX];
        assert_true(broker_read(&b, &r, fds));
        assert_true(r.ok);
    }
    spawned_destroy(&b, &x);
    broker_stop(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sockets_end_removes_every_sandbox_within_a_second),
        cmocka_unit_test(guests_end_with_a_killed_spawner_and_the_next_one_cleans_up),
        cmocka_unit_test(a_spawner_killed_amid_births_leaves_nothing_that_the_next_start_keeps),
        cmocka_unit_test(signals_of_a_terminal_or_of_systemd_do_not_end_it),
        cmocka_unit_test(replies_that_the_broker_does_not_read_stop_further_requests),
    };
    return cmocka_run_group_tests(tests, need_root, NULL);
}
