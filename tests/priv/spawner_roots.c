// SPDX-License-Identifier: Apache-2.0
// Roots: what the spawner accepts as one, how many, and when it removes them. This program also acts as the reader:
// if started by that name, it passes its socket to the test, which then sends what no correct reader sends.
#include "server/reader/read.h"
#include "tests/harness/spawner.h"
#include "tests/harness/process.h"
#include "tests/harness/skip.h"

#include <sys/mount.h>
#include <sys/syscall.h>

static struct broker b;

static int
send_fds(int socket_fd, const void *bytes, size_t n, const int *fds, unsigned fds_n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (SPAWN_ROOT_FDS_MAX + 1))];
    } control = {.bytes = {0}};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds_n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
        memcpy(CMSG_DATA(h), fds, fds_n * sizeof(int));
    }
    return sendmsg(socket_fd, &m, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

// The reader: passes its socket on, and waits until the test closes the other one.
static int
be_the_reader(void)
{
    const int fd = READ_SPAWNER_FD;
    char byte = 'r';
    if (send_fds(READ_BROKER_FD, &byte, 1, &fd, 1) < 0)
        return 1;
    (void)!recv(READ_BROKER_FD, &byte, 1, 0);
    return 0;
}

struct reader {
    int fd; // closing it ends the process
    int spawner_fd;
};

static struct reader
start_reader(void)
{
    struct spawn_request q = {.op = SPAWN_READ};
    int fds[SPAWN_FDS_MAX];
    char byte = 0;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct spawn_reply r = broker_ask(&b, &q, fds);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    struct spawn_request ping = {.op = SPAWN_PING};
    assert_true(broker_ask(&b, &ping, NULL).ok); // it has closed what it sent with the answer
    struct reader x = {.fd = fds[0], .spawner_fd = -1};
    assert_int_equal(recvmsg(x.fd, &m, MSG_CMSG_CLOEXEC), 1);
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c == NULL)
        fail_msg("it came without a descriptor");
    else
        memcpy(&x.spawner_fd, CMSG_DATA(c), sizeof(int));
    return x;
}

static void
stop_reader(struct reader *x)
{
    (void)close(x->fd);
    (void)close(x->spawner_fd);
}

static int
layer(const char *path)
{
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

// A root that a reader might request; /etc is used as the skeleton.
struct asked {
    struct spawn_root root;
    int fds[SPAWN_ROOT_FDS_MAX + 1];
    unsigned fds_n;
};

static struct asked
good(void)
{
    struct asked a = {.root = {.layers_n = 3, .hostname = "box", .at = {"", "/usr", "/opt"}}};
    a.fds[0] = layer(b.config.state_dir);
    a.fds[1] = layer("/usr");
    a.fds[2] = layer("/opt");
    a.fds[3] = open(b.config.state_dir, O_RDONLY | O_CLOEXEC);
    a.fds_n = 4;
    return a;
}

// Sends it and closes its descriptors.
static struct spawn_reply
ask(const struct reader *x, struct asked *a)
{
    struct spawn_reply r;
    assert_int_equal(send_fds(x->spawner_fd, &a->root, sizeof a->root, a->fds, a->fds_n), 0);
    for (unsigned i = 0; i < a->fds_n; i++)
        (void)close(a->fds[i]);
    assert_int_equal(recv(x->spawner_fd, &r, sizeof r, 0), sizeof r);
    assert_int_equal(r.op, SPAWN_ROOT);
    return r;
}

static unsigned
mounts(void)
{
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)b.pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    for (int c = fgetc(f); c != EOF; c = fgetc(f))
        n += c == '\n';
    (void)fclose(f);
    return n;
}

static int
start(void **state)
{
    (void)state;
    struct spawn_reply r;
    (void)need_root(state);
    broker_config(&b, "");
    ssize_t n = readlink("/proc/self/exe", b.config.reader_path, sizeof b.config.reader_path - 1);
    assert_true(n > 0);
    b.config.reader_path[n] = '\0';
    if (!broker_try_start(&b, &r))
        fail_msg("%s", r.err.text);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    broker_stop(&b);
    return 0;
}

static struct spawn_reply
unroot(uint32_t root)
{
    struct spawn_request q = {.op = SPAWN_UNROOT, .arg = root};
    return broker_ask(&b, &q, NULL);
}

static void
a_missing_root_is_refused(void **state)
{
    (void)state;
    struct spawn_request q = create_request(1);
    assert_int_equal(broker_ask(&b, &q, NULL).err.code, ERR_NOT_FOUND);
    q.arg = SPAWN_ROOTS_MAX - 1;
    assert_int_equal(broker_ask(&b, &q, NULL).err.code, ERR_NOT_FOUND);
    assert_int_equal(unroot(0).err.code, ERR_NOT_FOUND);
    assert_int_equal(unroot(SPAWN_ROOTS_MAX - 1).err.code, ERR_NOT_FOUND);
}

// The next one starts when the first has ended, and a further request is refused.
static void
one_reader_runs_at_a_time(void **state)
{
    (void)state;
    struct reader x = start_reader();
    struct spawn_request second = {.op = SPAWN_READ};
    struct spawn_request third = {.op = SPAWN_READ};
    struct spawn_reply r;
    int fds[SPAWN_FDS_MAX];
    (void)broker_send(&b, &second);
    r = broker_ask(&b, &third, NULL);
    assert_false(r.ok);
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
    stop_reader(&x);
    assert_true(broker_read(&b, &r, fds));
    assert_true(r.ok);
    assert_int_equal(r.seq, second.seq);
    (void)close(fds[0]);
}

static void
assert_refused(const struct reader *x, struct asked *a, const char *part)
{
    struct spawn_reply r = ask(x, a);
    assert_false(r.ok);
    if (strstr(r.err.text, part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, r.err.text);
}

// Each has one error, and nothing of it is left.
static void
wrong_descriptors_and_fields_are_refused_and_leave_nothing(void **state)
{
    (void)state;
    struct reader x = start_reader();
    const unsigned fds_before = process_fds(b.pid);
    const unsigned mounts_before = mounts();
    struct asked a = good();
    (void)close(a.fds[2]);
    a.fds[2] = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    assert_refused(&x, &a, "none of a mounted folder");
    a = good(); // a plain folder, which the broker could open as well
    (void)close(a.fds[2]);
    a.fds[2] = open("/opt", O_PATH | O_CLOEXEC);
    assert_refused(&x, &a, "layer 2");
    a = good(); // a mounted one
    (void)close(a.fds[2]);
    a.fds[2] = open("/proc", O_PATH | O_CLOEXEC);
    assert_refused(&x, &a, "layer 2");
    a = good();
    (void)close(a.fds[0]);
    a.fds[0] = layer("/etc/passwd");
    assert_refused(&x, &a, "none of a mounted folder");
    a = good();
    (void)close(a.fds[--a.fds_n]);
    assert_refused(&x, &a, "3 descriptors for 3 layers");
    a = good();
    a.fds[a.fds_n++] = open("/opt", O_PATH | O_CLOEXEC);
    assert_refused(&x, &a, "5 descriptors for 3 layers");
    a = good();
    a.root.tier = SPAWN_TIERS_N;
    assert_refused(&x, &a, "there are 1");
    a = good();
    memset(a.root.at[2], 'a', sizeof a.root.at[2]);
    assert_refused(&x, &a, "must be absolute");
    a = good();
    (void)snprintf(a.root.at[2], sizeof a.root.at[2], "/etc/ssh");
    assert_refused(&x, &a, "must be absolute");
    wait_until("the last ones are closed, too", process_fds(b.pid) == fds_before);
    assert_int_equal(mounts(), mounts_before);
    stop_reader(&x);
}

static void
an_invalid_packet_closes_only_the_readers_socket(void **state)
{
    (void)state;
    struct asked a = good();
    for (int i = 0; i < 2; i++) {
        struct reader x = start_reader();
        int many[SPAWN_ROOT_FDS_MAX + 1];
        char byte = 0;
        for (unsigned k = 0; k <= SPAWN_ROOT_FDS_MAX; k++)
            many[k] = STDERR_FILENO;
        if (i == 0) // truncated
            assert_int_equal(send_fds(x.spawner_fd, &a.root, sizeof a.root - 1, a.fds, 1), 0);
        else // more descriptors than allowed
            assert_int_equal(
                send_fds(x.spawner_fd, &a.root, sizeof a.root, many, SPAWN_ROOT_FDS_MAX + 1), 0);
        assert_int_equal(recv(x.spawner_fd, &byte, 1, 0), 0);
        stop_reader(&x);
    }
    for (unsigned i = 0; i < a.fds_n; i++)
        (void)close(a.fds[i]);
    struct spawn_request q = {.op = SPAWN_PING};
    assert_true(broker_ask(&b, &q, NULL).ok);
}

static void
the_number_of_roots_is_bounded(void **state)
{
    (void)state;
    struct reader x = start_reader();
    const unsigned fds_before = process_fds(b.pid);
    const unsigned mounts_before = mounts();
    struct asked a;
    for (uint32_t i = 0; i < SPAWN_ROOTS_MAX; i++) {
        a = good();
        struct spawn_reply r = ask(&x, &a);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        assert_int_equal(r.slot, i);
    }
    assert_int_equal(mounts(), mounts_before + 3); // shared layers are mounted only once
    a = good();
    struct spawn_reply r = ask(&x, &a);
    assert_false(r.ok);
    assert_int_equal(r.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_true(unroot(7).ok);
    assert_int_equal(unroot(7).err.code, ERR_NOT_FOUND);
    a = good();
    r = ask(&x, &a);
    assert_true(r.ok);
    assert_int_equal(r.slot, 7);
    for (uint32_t i = 0; i < SPAWN_ROOTS_MAX; i++)
        assert_true(unroot(i).ok);
    wait_until("the last ones are closed, too", process_fds(b.pid) == fds_before);
    assert_int_equal(mounts(), mounts_before);
    stop_reader(&x);
}

// With the real reader's root: a sandbox continues to run in a root that was given up.
static void
a_root_in_use_is_removed_with_its_last_sandbox(void **state)
{
    (void)state;
    struct broker fake = b;
    struct spawned one;
    struct spawned two;
    const char *build = getenv("STOCKADE_BUILD");
    (void)fake;
    broker_config(&b, "real");
    (void)snprintf(b.config.reader_path, sizeof b.config.reader_path,
                   "%.200s/server/stockade-reader", build ? build : ".");
    broker_start(&b);
    const unsigned held = mounts();
    spawned_create(&b, &one, 1);
    spawned_create(&b, &two, 2);
    assert_true(unroot(0).ok);
    assert_int_equal(mounts(), held);
    struct spawn_request q = create_request(3);
    assert_int_equal(broker_ask(&b, &q, NULL).err.code, ERR_NOT_FOUND);
    q = request_for(&one, SPAWN_FREEZE, 1);
    assert_true(broker_ask(&b, &q, NULL).ok);
    spawned_destroy(&b, &one);
    assert_int_equal(mounts(), held);
    spawned_destroy(&b, &two);
    assert_int_equal(mounts(), held - 2); // its skeleton and /usr
    broker_root(&b);
    spawned_create(&b, &one, 1);
    spawned_destroy(&b, &one);
    assert_int_equal(mounts(), held);
    broker_stop(&b);
    b = fake;
}

int
main(int argc, char **argv)
{
    (void)argc;
    if (strcmp(argv[0], "stockade-reader") == 0)
        return be_the_reader();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_root_is_refused),
        cmocka_unit_test(one_reader_runs_at_a_time),
        cmocka_unit_test(wrong_descriptors_and_fields_are_refused_and_leave_nothing),
        cmocka_unit_test(an_invalid_packet_closes_only_the_readers_socket),
        cmocka_unit_test(the_number_of_roots_is_bounded),
        cmocka_unit_test(a_root_in_use_is_removed_with_its_last_sandbox),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
