// SPDX-License-Identifier: Apache-2.0
// The broker's access to BPF maps, with files in memory instead of maps: mmap treats both alike.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/sandbox/bpf.h"

static void
all_absent(int fds[BPF_FDS])
{
    for (int i = 0; i < BPF_FDS; i++)
        fds[i] = -1;
}

static int
file_of(size_t bytes)
{
    int fd = memfd_create("map", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static bool
is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void
one_that_cannot_be_mapped_closes_all(void **state)
{
    (void)state;
    struct bpf b;
    struct err e;
    int fds[BPF_FDS];
    int ends[2];
    all_absent(fds);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fds[BPF_FD_SANDBOXES] = file_of(1);
    fds[BPF_FD_NET_COUNTERS] = file_of(BPF_SLOTS * sizeof(struct net_counters));
    fds[BPF_FD_ACCOUNTS] = ends[0];
    assert_true(bpf_open(&b, BPF_HAS_NET, fds, &e) < 0);
    assert_int_equal(b.has, 0);
    assert_null(b.net);
    assert_null(b.accounts);
    for (int i = 0; i < BPF_FDS; i++) {
        assert_int_equal(b.fd[i], -1);
        assert_true(fds[i] < 0 || !is_open(fds[i]));
    }
    (void)close(ends[1]);
}

static void
missing_maps_are_null_and_closing_twice_is_fine(void **state)
{
    (void)state;
    struct bpf b;
    struct err e;
    int fds[BPF_FDS];
    all_absent(fds);
    assert_int_equal(bpf_open(&b, 0, fds, &e), 0);
    assert_null(b.net);
    assert_null(b.accounts);
    assert_null(b.profile_states);
    assert_null(b.profiles);
    bpf_close(&b);
    bpf_close(&b);
}

static void
values_of_a_map_are_read_at_their_slot(void **state)
{
    (void)state;
    struct bpf b;
    struct err e;
    int fds[BPF_FDS];
    const struct net_counters counters = {.out_bytes = 42, .flows = 7};
    const struct watch_account account = {.forks = 3};
    all_absent(fds);
    fds[BPF_FD_NET_COUNTERS] = file_of(BPF_SLOTS * sizeof counters);
    fds[BPF_FD_ACCOUNTS] = file_of(WATCH_ACCOUNTS * sizeof account);
    fds[BPF_FD_PROFILES] = file_of(WATCH_PROFILES * sizeof(struct watch_profile));
    fds[BPF_FD_PROFILE_STATES] = file_of(WATCH_PROFILES * sizeof(struct watch_profile_state));
    assert_int_equal(bpf_open(&b, BPF_HAS_NET | BPF_HAS_WATCH, fds, &e), 0);
    const off_t last = (off_t)((BPF_SLOTS - 1) * sizeof counters);
    assert_int_equal(pwrite(fds[BPF_FD_NET_COUNTERS], &counters, sizeof counters, last),
                     sizeof counters);
    assert_int_equal(b.net[BPF_SLOTS - 1].out_bytes, 42);
    assert_int_equal(b.net[BPF_SLOTS - 1].flows, 7);
    assert_int_equal(b.net[0].out_bytes, 0);
    assert_int_equal(
        pwrite(fds[BPF_FD_ACCOUNTS], &account, sizeof account, 5 * (off_t)sizeof account),
        sizeof account);
    assert_int_equal(b.accounts[5].forks, 3);
    b.profile_states[9].mode = WATCH_PROFILE_LEARN; // the broker writes these
    uint32_t mode = 0;
    assert_int_equal(pread(fds[BPF_FD_PROFILE_STATES], &mode, sizeof mode,
                           9 * (off_t)sizeof(struct watch_profile_state)),
                     sizeof mode);
    assert_int_equal(mode, WATCH_PROFILE_LEARN);
    bpf_close(&b);
    for (int i = 0; i < BPF_FDS; i++)
        assert_true(fds[i] < 0 || !is_open(fds[i]));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_cannot_be_mapped_closes_all),
        cmocka_unit_test(missing_maps_are_null_and_closing_twice_is_fine),
        cmocka_unit_test(values_of_a_map_are_read_at_their_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
