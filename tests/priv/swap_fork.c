// SPDX-License-Identifier: Apache-2.0
// sandbox_inherit() through the broker's core, the real spawner and the real guest: sandboxes that begin with the files of
// another one.
#include "server/sandbox/spawn.h"
#include "tests/harness/swaps.h"

static void
forks_share_layers_and_see_none_of_each_others_writes(void **state)
{
    (void)state;
    struct sandbox *parent = box;
    assert_sh("echo a > A; mkdir d; echo x > d/x; chmod 600 A; echo s > /dev/shm/S", "");
    uint32_t layer = swap();
    assert_sh("echo parent > P", "");
    struct sandbox *one = fork_of(parent, layer);
    assert_sh("cat A d/x /dev/shm/S; stat -c '%u %a' A d; echo one >> A; rm -r d; echo o > O; ls",
              "a\nx\ns\n1000 600\n1000 755\nA\nO\n");
    struct sandbox *two = fork_of(parent, layer);
    assert_sh("cat A d/x; ls; echo two >> A", "a\nx\nA\nd\n");
    box = one;
    uint32_t above = swap();
    assert_sh("echo late > L", "");
    struct sandbox *three = fork_of(one, above); // a fork of a fork
    assert_sh("cat A; ls; stat -c %u A O", "a\none\nA\nO\n1000\n1000\n");
    forget_box(parent);
    forget_box(one);
    box = two;
    assert_sh("cat A d/x", "a\ntwo\nx\n");
    box = three;
    assert_sh("cat A O; echo more >> O; cat O", "a\none\no\no\nmore\n");
    uint32_t own = swap();
    assert_sh("rm A O", "");
    restore(own);
    assert_sh("cat A O", "a\none\no\nmore\n");
    forget_box(two);
}

static void
what_cannot_inherit_is_refused(void **state)
{
    (void)state;
    struct err e;
    struct wait raw = {.called = 0};
    struct sandbox *parent = box;
    struct spawn_source from = {parent->slot, parent->generation, 1, 0};
    (void)make_box(NULL);
    struct sandbox *child = box;
    // without layers; of another generation; a layer that is not there
    for (int i = 0; i < 3; i++) {
        if (i == 1) {
            box = parent;
            assert_sh("echo a > A", "");
            (void)swap();
            from.generation++;
        }
        if (i == 2)
            from = (struct spawn_source){parent->slot, parent->generation, 9, 0};
        raw.called = 0;
        assert_int_equal(
            spawn_inherit(srv.spawn, child->slot, child->generation, &from, on_done, &raw, &e), 0);
        until(raw.called > 0);
        assert_int_equal(raw.reply.err.code, i < 2 ? ERR_ABORTED : ERR_NOT_FOUND);
    }
    box = child;
    assert_sh("echo own > A", "");
    (void)swap(); // it has a layer of its own now
    from = (struct spawn_source){parent->slot, parent->generation, 1, 0};
    raw.called = 0;
    assert_int_equal(
        spawn_inherit(srv.spawn, child->slot, child->generation, &from, on_done, &raw, &e), 0);
    until(raw.called > 0);
    assert_int_equal(raw.reply.err.code, ERR_FAILED_PRECONDITION);
    assert_sh("cat A", "own\n");
    forget_box(parent);
}

static int
start_core_of_forks(void **state)
{
    int r = start_core(state);
    if (r == 0 && !can_fork()) {
        (void)puts("skipped: this kernel cannot share files in memory between sandboxes");
        exit(77);
    }
    return r;
}

int
main(void)
{
#define TAKEN(name) cmocka_unit_test_setup_teardown(name, make_box, remove_box)
    const struct CMUnitTest tests[] = {
        TAKEN(what_cannot_inherit_is_refused),
        TAKEN(forks_share_layers_and_see_none_of_each_others_writes),
    };
    return cmocka_run_group_tests(tests, start_core_of_forks, stop_core);
}
