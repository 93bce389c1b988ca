// SPDX-License-Identifier: Apache-2.0
// What the spawner refuses: configurations, requests in the wrong state (an error), and requests that no correct
// broker sends (the end).
#include "server/spawner/tree_layers.h"
#include "proto/fdpass.h"
#include "tests/harness/folder.h"
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

static void
a_configuration_of_another_version_is_refused(void **state)
{
    (void)state;
    struct broker b;
    struct spawn_reply r;
    broker_config(&b, "");
    b.config.version++;
    assert_false(broker_try_start(&b, &r));
    assert_int_equal(r.err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(r.err.subject, "version");
    assert_true(containers_gone(&b));
}

static void
a_guest_that_is_not_a_file_is_refused(void **state)
{
    (void)state;
    struct broker b;
    struct spawn_reply r;
    broker_config(&b, "");
    (void)snprintf(b.config.guest_path, sizeof b.config.guest_path, "/tmp/no-such-guest");
    assert_false(broker_try_start(&b, &r));
    assert_non_null(strstr(r.err.text, "/tmp/no-such-guest"));
    (void)snprintf(b.config.guest_path, sizeof b.config.guest_path, "/tmp");
    assert_false(broker_try_start(&b, &r));
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
    assert_true(containers_gone(&b));
    (void)rmdir(b.config.state_dir);
}

static void
a_second_spawner_on_one_cgroup_is_refused(void **state)
{
    (void)state;
    struct broker one;
    struct broker two;
    struct spawned x;
    struct spawn_reply r;
    broker_config(&one, "");
    broker_config(&two, "");
    (void)snprintf(two.config.state_dir, sizeof two.config.state_dir, "%s/stockade-test-%d-two",
                   test_folder(), (int)getpid());
    broker_start(&one);
    spawned_create(&one, &x, 1);
    assert_false(broker_try_start(&two, &r));
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(r.err.reason, "CGROUP_IN_USE");
    struct spawn_request q = request_for(&x, SPAWN_FREEZE, 1); // it still exists and works
    assert_true(broker_ask(&one, &q, NULL).ok);
    spawned_destroy(&one, &x);
    broker_stop(&one);
    (void)rmdir(two.config.state_dir);
}

static void
two_spawners_with_the_same_configuration_use_different_ids(void **state)
{
    (void)state;
    struct broker one;
    struct broker two;
    struct spawned x;
    struct spawned y;
    broker_config(&one, "");
    broker_config(&two, "two");
    (void)snprintf(two.config.state_dir, sizeof two.config.state_dir, "%s/stockade-test-%d-two",
                   test_folder(), (int)getpid());
    broker_start(&one);
    broker_start(&two);
    assert_true(broker_feature(&one, "id-ranges")->available);
    spawned_create(&one, &x, 1);
    spawned_create(&two, &y, 1);
    assert_int_not_equal(x.uid, y.uid);
    spawned_destroy(&one, &x);
    spawned_create(&one, &x, 2);
    assert_int_not_equal(x.uid, y.uid);
    spawned_destroy(&one, &x);
    spawned_destroy(&two, &y);
    broker_stop(&one);
    broker_stop(&two);
    (void)rmdir(two.config.state_dir);
}

static void
requests_that_a_correct_broker_may_send_too_late_get_an_error(void **state)
{
    (void)state;
    struct broker b;
    struct spawned x;
    broker_config(&b, "");
    broker_start(&b);
    spawned_create(&b, &x, 1);
    // Two at once: the second finds a sandbox that is being removed, or was removed.
    struct spawn_request destroy = request_for(&x, SPAWN_DESTROY, 0);
    struct spawn_request kill_job = request_for(&x, SPAWN_KILL_JOB, 1);
    uint32_t destroy_seq = broker_send(&b, &destroy);
    (void)broker_send(&b, &kill_job);
    for (int i = 0; i < 2; i++) {
        struct spawn_reply r;
        int fds[SPAWN_FDS_MAX];
        assert_true(broker_read(&b, &r, fds));
        assert_int_equal(r.ok, r.seq == destroy_seq);
        if (!r.ok)
            assert_true(r.err.code == ERR_FAILED_PRECONDITION || r.err.code == ERR_NOT_FOUND);
    }
    const enum spawn_op ops[] = {SPAWN_LIMIT,    SPAWN_FREEZE,   SPAWN_KILL_JOB,
                                 SPAWN_NET_OPEN, SPAWN_NET_DIAL, SPAWN_DESTROY};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct spawn_request q = request_for(&x, ops[i], ops[i] == SPAWN_NET_DIAL);
        q.limits = small_limits;
        struct spawn_reply r = broker_ask(&b, &q, NULL);
        assert_false(r.ok);
        assert_int_equal(r.err.code, ERR_NOT_FOUND);
    }
    spawned_close_fds(&x);
    // The slot is reused; a request with the old generation does not affect the new sandbox.
    struct spawned y;
    spawned_create(&b, &y, 2);
    assert_int_equal(y.slot, x.slot);
    assert_int_equal(y.generation, x.generation + 1);
    struct spawn_request q = request_for(&x, SPAWN_DESTROY, 0);
    assert_int_equal(broker_ask(&b, &q, NULL).err.code, ERR_NOT_FOUND);
    spawned_destroy(&b, &y);
    broker_stop(&b);
}

static void
an_id_in_use_and_one_sandbox_too_many_are_refused(void **state)
{
    (void)state;
    struct broker b;
    struct spawned x;
    struct spawned y;
    broker_config(&b, "");
    b.config.slots = 2;
    broker_start(&b);
    spawned_create(&b, &x, 1);
    struct spawn_request q = create_request(1);
    assert_int_equal(broker_ask(&b, &q, NULL).err.code, ERR_ALREADY_EXISTS);
    spawned_create(&b, &y, 2);
    assert_int_not_equal(x.uid, y.uid);
    q = create_request(3);
    struct spawn_reply r = broker_ask(&b, &q, NULL);
    assert_int_equal(r.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(r.err.subject, "ids.slots");
    spawned_destroy(&b, &x);
    spawned_create(&b, &x, 3);
    broker_stop(&b);
    spawned_close_fds(&x);
    spawned_close_fds(&y);
}

// Asserts that after this packet the spawner has ended with status 70 and left nothing, not even the existing
// sandbox.
static void
assert_ends(const char *what, const void *packet, size_t n, int fd_along,
            const struct spawned *like)
{
    struct broker b;
    struct spawned x;
    broker_config(&b, "");
    broker_start(&b);
    spawned_create(&b, &x, 1);
    assert_int_equal(x.slot, like->slot);
    assert_int_equal(x.generation, like->generation);
    const struct fdpass m = {(void *)(uintptr_t)packet, n, &fd_along, fd_along >= 0};
    assert_int_equal(fdpass_send(b.fd, &m, 0), 0);
    int status = 0;
    assert_int_equal(waitpid(b.pid, &status, 0), b.pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 70)
        fail_msg("%s: status %x", what, (unsigned)status);
    assert_true(containers_gone(&b));
    (void)close(b.fd);
    spawned_close_fds(&x);
}

static void
invalid_requests_end_the_spawner_and_every_sandbox(void **state)
{
    (void)state;
    const struct spawned like = {.slot = 0, .generation = 1};
    const struct spawn_request create = create_request(7);
    const struct spawn_request destroy = request_for(&like, SPAWN_DESTROY, 0);
    struct {
        const char *what;
        struct spawn_request q;
    } rows[] = {
        {"configure again", destroy},
        {"unknown operation", destroy},
        {"huge operation", destroy},
        {"slot out of range", destroy},
        {"slot never used", destroy},
        {"generation 0", destroy},
        {"generation to come", destroy},
        {"a flag that it does not have", destroy},
        {"argument of destroy", destroy},
        {"freeze by 3", destroy},
        {"root out of range", create},
        {"no memory", create},
        {"too much memory", create},
        {"cpu weight 0", create},
        {"dial port 0", destroy},
        {"dial port 65536", destroy},
        {"watch 2", destroy},
        {"argument of relay", destroy},
        {"argument of net open", destroy},
        {"what the reader alone may ask", destroy},
        {"argument of read", destroy},
        {"a root to give up that is out of range", destroy},
        {"argument of seal", destroy},
        {"restore to no layer", destroy},
        {"restore to a layer out of range", destroy},
        {"inherit from a slot out of range", destroy},
        {"drop no layer", destroy},
        {"a path that it does not have", destroy},
        {"a disk without bytes", destroy},
        {"a disk without inodes", destroy},
        {"a disk beyond the maximum", destroy},
        {"a disk of no kind", destroy},
        {"a disk out of range", destroy},
        {"a path without an end", destroy},
        {"half read-only", destroy},
        {"a second layer", destroy},
        {"a state out of range", destroy},
        {"a second state out of range", destroy},
        {"a reset with an argument", destroy},
        {"a graft on a layer out of range", destroy},
        {"a graft of no layer", destroy},
        {"a graft from a slot out of range", destroy},
        {"a copy of no bytes", destroy},
        {"a copy of a layer out of range", destroy},
        {"a copy on a layer out of range", destroy},
        {"no layer that is complete", destroy},
        {"a copy from a slot out of range", destroy},
    };
    rows[0].q.op = SPAWN_CONFIGURE;
    rows[1].q.op = SPAWN_COPIED + 1;
    rows[2].q.op = UINT32_MAX;
    rows[3].q.slot = UINT32_MAX;
    rows[4].q.slot = 5;
    rows[5].q.generation = 0;
    rows[6].q.generation = 2;
    rows[7].q.read_only = 1;
    rows[8].q.arg = 2;
    rows[9].q.op = SPAWN_FREEZE;
    rows[9].q.arg = 3;
    rows[10].q.arg = SPAWN_ROOTS_MAX;
    rows[11].q.limits.memory_bytes = 0;
    rows[12].q.limits.memory_bytes = UINT64_MAX;
    rows[13].q.limits.cpu_weight = 0;
    rows[14].q.op = rows[15].q.op = SPAWN_NET_DIAL;
    rows[15].q.arg = 65536;
    rows[16].q.op = SPAWN_WATCH;
    rows[16].q.arg = 2;
    rows[17].q.op = SPAWN_RELAY;
    rows[18].q.op = SPAWN_NET_OPEN;
    rows[17].q.arg = rows[18].q.arg = 1;
    rows[19].q.op = SPAWN_ROOT;
    rows[20].q.op = SPAWN_READ;
    rows[20].q.arg = 1;
    rows[21].q.op = SPAWN_UNROOT;
    rows[21].q.arg = SPAWN_ROOTS_MAX;
    rows[22].q.op = SPAWN_SEAL;
    rows[22].q.arg = 1;
    rows[23].q.op = rows[24].q.op = SPAWN_RESTORE;
    rows[24].q.arg = TREE_NUMBERS + 1;
    rows[25].q.op = SPAWN_INHERIT;
    rows[25].q.arg = 1;
    rows[25].q.from_slot = UINT32_MAX;
    rows[26].q.op = SPAWN_DROP;
    rows[27].q.at[0] = '/';
    rows[28].q.op = rows[29].q.op = rows[30].q.op = SPAWN_DISK_MAKE;
    rows[28].q.limits.inodes = rows[30].q.limits.inodes = 1;
    rows[29].q.limits.disk_bytes = 1;
    rows[30].q.limits.disk_bytes = SPAWN_DISK_BYTES_MAX + 1;
    rows[31].q.op = SPAWN_DISK_OPEN;
    rows[31].q.arg = SPAWN_DISK_KINDS_N;
    rows[32].q.op = SPAWN_DISK_CLOSE;
    rows[32].q.arg = SPAWN_DISKS_MAX;
    rows[33].q.op = rows[34].q.op = SPAWN_MOUNT;
    memset(rows[33].q.at, 'a', sizeof rows[33].q.at);
    rows[34].q.read_only = 2;
    rows[35].q.other = 1;
    rows[36].q.op = rows[37].q.op = SPAWN_STATES;
    rows[36].q.arg = rows[37].q.other = TREE_NUMBERS + 1;
    rows[38].q.op = SPAWN_RESET;
    rows[38].q.arg = 1;
    rows[39].q.op = rows[40].q.op = rows[41].q.op = SPAWN_GRAFT;
    rows[39].q.arg = rows[41].q.arg = 1;
    rows[39].q.other = TREE_NUMBERS + 1;
    rows[41].q.from_slot = UINT32_MAX;
    rows[42].q.op = rows[43].q.op = rows[44].q.op = SPAWN_COPY;
    rows[42].q.limits.inodes = 1;
    rows[43].q.limits = rows[44].q.limits = create.limits;
    rows[43].q.arg = rows[44].q.other = TREE_NUMBERS + 1;
    rows[45].q.op = SPAWN_COPIED;
    rows[46].q.op = SPAWN_COPY;
    rows[46].q.limits = create.limits;
    rows[46].q.arg = rows[46].q.from_generation = 1;
    rows[46].q.from_slot = UINT32_MAX;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_ends(rows[i].what, &rows[i].q, sizeof rows[i].q, -1, &like);
    char large[sizeof destroy + 1] = {0};
    memcpy(large, &destroy, sizeof destroy);
    assert_ends("a short packet", &destroy, sizeof destroy - 1, -1, &like);
    assert_ends("a long packet", large, sizeof large, -1, &like);
    assert_ends("a packet with a descriptor", &destroy, sizeof destroy, STDERR_FILENO, &like);
    struct broker b;
    broker_config(&b, "");
    remove_state(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_of_another_version_is_refused),
        cmocka_unit_test(a_guest_that_is_not_a_file_is_refused),
        cmocka_unit_test(a_second_spawner_on_one_cgroup_is_refused),
        cmocka_unit_test(two_spawners_with_the_same_configuration_use_different_ids),
        cmocka_unit_test(requests_that_a_correct_broker_may_send_too_late_get_an_error),
        cmocka_unit_test(an_id_in_use_and_one_sandbox_too_many_are_refused),
        cmocka_unit_test(invalid_requests_end_the_spawner_and_every_sandbox),
    };
    return cmocka_run_group_tests(tests, need_root, NULL);
}
