// SPDX-License-Identifier: Apache-2.0
// The programs of bpf/, loaded by the loader: every object loads and attaches on this kernel, or the reason is
// reported; nothing stays attached after the spawner's end; and the spawner starts without any of them.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <seccomp.h>
#include <sys/utsname.h>

#include "bpf/emit.h"
#include "bpf/watch.h"

static struct broker b;

static void
close_maps(void)
{
    for (int i = 0; i < BPF_FDS; i++) {
        if (b.bpf_fds[i] >= 0)
            (void)close(b.bpf_fds[i]);
        b.bpf_fds[i] = -1;
    }
}

static int
start(void **state)
{
    (void)need_root(state);
    broker_config(&b, "");
    broker_config_bpf(&b);
    broker_start(&b);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    close_maps();
    broker_stop(&b);
    return 0;
}

// Number of programs of all kinds that are attached to a cgroup.
static unsigned
attached_to(int cgroup_fd)
{
    unsigned all = 0;
    for (int type = 0; type < 64; type++) { // of other kinds than cgroups': refused
        uint32_t n = 0;
        if (bpf_prog_query(cgroup_fd, (enum bpf_attach_type)type, 0, NULL, NULL, &n) == 0)
            all += n;
    }
    return all;
}

static int
container_fd(void)
{
    int fd = open(container_path(&b), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void
assert_absent(const char *name, const char *why)
{
    const struct spawn_feature *f = broker_feature(&b, name);
    assert_int_equal(f->available, 0);
    assert_int_equal(f->degraded, 1);
    if (!strstr(f->detail, why))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, f->detail, why);
}

static void
assert_nothing_is_loaded(const char *why)
{
    static const char *const names[] = {"bpf-net", "bpf-watch", "bpf-syscalls", "relay"};
    assert_int_equal(b.features.bpf, 0);
    for (size_t i = 0; i < 2; i++)
        assert_absent(names[i], why);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_absent(names[i], "");
    struct spawn_request watch = {.op = SPAWN_WATCH, .arg = 1};
    assert_int_equal(broker_ask(&b, &watch, NULL).err.code, ERR_FAILED_PRECONDITION);
    struct spawn_request relay = {.op = SPAWN_RELAY};
    assert_int_equal(broker_ask(&b, &relay, NULL).err.code, ERR_FAILED_PRECONDITION);
    struct spawned x = {.slot = 0};
    spawned_create(&b, &x, 1);
    spawned_destroy(&b, &x);
}

static void
turned_off_it_starts_and_says_so(void **state)
{
    (void)state;
    broker_config(&b, "");
    broker_start(&b);
    assert_int_equal(b.features.bpf_fds, 0);
    assert_nothing_is_loaded("disabled");
    broker_stop(&b);
}

static void
a_loader_without_report_is_a_missing_feature(void **state)
{
    (void)state;
    broker_config(&b, "");
    broker_config_bpf(&b);
    (void)snprintf(b.config.loader_path, sizeof b.config.loader_path, "/bin/true");
    broker_start(&b);
    assert_nothing_is_loaded("without a report");
    broker_stop(&b);
}

static void
forbid_bpf(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    if (!f || seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(bpf), 0) < 0 ||
        seccomp_load(f) < 0)
        _exit(72);
    seccomp_release(f);
}

static void
without_the_right_to_load_it_starts_and_says_so(void **state)
{
    (void)state;
    broker_config(&b, "");
    broker_config_bpf(&b);
    b.before_exec = forbid_bpf;
    broker_start(&b);
    assert_nothing_is_loaded("Operation not permitted");
    assert_true(b.features.bpf_log[0] != '\0'); // libbpf's messages, to find the reason
    close_maps();
    broker_stop(&b);
}

// Unix hooks came with Linux 6.7.
static bool
kernel_has_unix_hooks(void)
{
    struct utsname u;
    assert_int_equal(uname(&u), 0);
    char *end = NULL;
    unsigned long major = strtoul(u.release, &end, 10);
    unsigned long minor = strtoul(end + 1, NULL, 10);
    return major > 6 || (major == 6 && minor >= 7);
}

static bool
unix_is_written(void)
{
    char path[400];
    const char *source = getenv("STOCKADE_SOURCE");
    (void)snprintf(path, sizeof path, "%.300s/bpf/net_unix.bpf.c", source ? source : ".");
    return access(path, F_OK) == 0;
}

static void
assert_has(const char *name, enum spawn_bpf bit)
{
    const struct spawn_feature *f = broker_feature(&b, name);
    if (!f->available || f->degraded || !(b.features.bpf & bit))
        fail_msg("%s: %s\n%s", name, f->detail, b.features.bpf_log);
    (void)printf("%s: %s\n", name, f->detail);
}

static void
every_object_loads_and_attaches_to_the_sandboxes_cgroup(void **state)
{
    (void)state;
    assert_has("bpf-net", BPF_HAS_NET);
    assert_has("bpf-watch", BPF_HAS_WATCH);
    assert_has("bpf-syscalls", BPF_HAS_SYSCALLS);
    if (!unix_is_written())
        (void)puts("skipped: bpf-unix: is not written");
    else if (kernel_has_unix_hooks())
        assert_has("bpf-unix", BPF_HAS_UNIX);
    else // on other kernels it is not expected
        assert_int_equal(broker_feature(&b, "bpf-unix")->degraded, 0);
    int fd = container_fd();
    assert_true(attached_to(fd) >= 16);
    (void)close(fd);
    for (int i = 0; i < BPF_FD_RELAY; i++) {
        if (b.bpf_fds[i] < 0)
            fail_msg("map %d did not come", i);
    }
}

static void
maps_that_must_not_be_empty_are_filled(void **state)
{
    (void)state;
    for (uint32_t class = CLASS_DENIAL; class <= CLASS_SIGNAL; class ++) {
        struct budget_rate rate = {0, 0};
        assert_int_equal(bpf_map_lookup_elem(b.bpf_fds[BPF_FD_BUDGET_RATES], &class, &rate), 0);
        assert_true(rate.per_second > 0 && rate.burst > 0);
    }
    for (uint32_t i = 0; i < WATCH_ACCOUNTS; i++) {
        uint32_t account = ~0u;
        assert_int_equal(
            bpf_map_lookup_and_delete_elem(b.bpf_fds[BPF_FD_ACCOUNTS_FREE], NULL, &account), 0);
        assert_int_equal(account, i);
    }
    uint32_t none;
    assert_true(bpf_map_lookup_and_delete_elem(b.bpf_fds[BPF_FD_ACCOUNTS_FREE], NULL, &none) < 0);
}

static void
when_the_spawner_is_killed_nothing_stays_attached(void **state)
{
    (void)start(state);
    struct spawned x = {.slot = 0};
    spawned_create(&b, &x, 1);
    int fd = container_fd();
    assert_true(attached_to(fd) > 0);
    assert_int_equal(kill(b.pid, SIGKILL), 0);
    assert_int_equal(waitpid(b.pid, NULL, 0), b.pid);
    wait_until("nothing is attached", attached_to(fd) == 0);
    (void)close(fd);
    (void)close(b.fd);
    close_maps();
    spawned_close_fds(&x);
    broker_config(&b, ""); // removes what was left
    broker_start(&b);
    broker_stop(&b);
}

// Whether a program uses a map of this broker's.
static bool
program_uses(uint32_t program, uint32_t map, struct bpf_prog_info *info)
{
    uint32_t maps[64];
    uint32_t n = sizeof *info;
    int fd = bpf_prog_get_fd_by_id(program);
    bool found = false;
    *info = (struct bpf_prog_info){.nr_map_ids = 64, .map_ids = (uintptr_t)maps};
    if (fd >= 0 && bpf_obj_get_info_by_fd(fd, info, &n) == 0) {
        for (uint32_t i = 0; i < info->nr_map_ids; i++)
            found = found || maps[i] == map;
    }
    info->map_ids = 0;
    if (fd >= 0)
        (void)close(fd);
    return found;
}

static uint32_t
map_id(int fd)
{
    struct bpf_map_info map = {0};
    uint32_t n = sizeof map;
    assert_int_equal(bpf_obj_get_info_by_fd(fd, &map, &n), 0);
    return map.id;
}

// Every start of the broker waits for the verifier: half a second per 250,000 instructions that it follows. A loop that it
// follows round by round, or a function that it checks for each caller, takes ten times as many.
static void
the_verifier_follows_few_instructions(void **state)
{
    (void)state;
    enum { FEW = 100000, KERNELS_OWN = 1000000 };
    uint32_t most = kernel_has_unix_hooks() ? FEW : KERNELS_OWN; // older verifiers walk differently
    uint32_t accounts = map_id(b.bpf_fds[BPF_FD_ACCOUNTS]);
    struct bpf_prog_info info;
    unsigned programs = 0;
    for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
        if (!program_uses(id, accounts, &info))
            continue;
        programs++;
        if (info.verified_insns > most)
            fail_msg("%s: %u instructions", info.name, info.verified_insns);
    }
    assert_true(programs >= 5);
}

static bool
syscalls_are_watched(void)
{
    uint32_t accounts = map_id(b.bpf_fds[BPF_FD_ACCOUNTS]);
    struct bpf_prog_info info;
    bool found = false;
    for (uint32_t id = 0; bpf_link_get_next_id(id, &id) == 0;) {
        struct bpf_link_info link = {0};
        uint32_t n = sizeof link;
        int fd = bpf_link_get_fd_by_id(id);
        if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &link, &n) == 0 &&
            (link.type == BPF_LINK_TYPE_TRACING || link.type == BPF_LINK_TYPE_RAW_TRACEPOINT) &&
            program_uses(link.prog_id, accounts, &info))
            found = found || strncmp(info.name, "watch_sys_exit", sizeof info.name) == 0;
        if (fd >= 0)
            (void)close(fd);
    }
    return found;
}

static void
the_syscall_tracepoint_is_attached_while_it_is_needed(void **state)
{
    (void)state;
    struct spawn_request on = {.op = SPAWN_WATCH, .arg = 1};
    struct spawn_request off = {.op = SPAWN_WATCH, .arg = 0};
    assert_false(syscalls_are_watched());
    assert_true(broker_ask(&b, &off, NULL).ok); // it is detached already
    for (int again = 0; again < 2; again++) {
        struct spawn_reply r = broker_ask(&b, &on, NULL);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        assert_true(syscalls_are_watched());
        assert_true(broker_ask(&b, &on, NULL).ok);
        assert_true(broker_ask(&b, &off, NULL).ok);
        assert_false(syscalls_are_watched());
    }
    // Two requests at once, and a sandbox that is made in the meantime.
    struct spawn_request birth = create_request(1);
    struct spawn_reply r;
    struct spawned x = {.slot = 0};
    int fds[SPAWN_FDS_MAX];
    (void)broker_send(&b, &on);
    (void)broker_send(&b, &on);
    (void)broker_send(&b, &birth);
    for (int i = 0; i < 3; i++) {
        assert_true(broker_read(&b, &r, fds));
        if (r.op == SPAWN_CREATE) {
            assert_true(r.ok);
            memcpy(x.fds, fds, sizeof fds);
            spawned_from(&x, &r, 1);
        } else if (!r.ok) {
            assert_int_equal(r.err.code, ERR_UNAVAILABLE);
        }
    }
    assert_true(syscalls_are_watched());
    spawned_wait_ready(&x);
    spawned_destroy(&b, &x);
}

int
main(void)
{
    const struct CMUnitTest without[] = {
        cmocka_unit_test(turned_off_it_starts_and_says_so),
        cmocka_unit_test(a_loader_without_report_is_a_missing_feature),
        cmocka_unit_test(without_the_right_to_load_it_starts_and_says_so),
    };
    const struct CMUnitTest with[] = {
        cmocka_unit_test(every_object_loads_and_attaches_to_the_sandboxes_cgroup),
        cmocka_unit_test(the_verifier_follows_few_instructions),
        cmocka_unit_test(maps_that_must_not_be_empty_are_filled),
        cmocka_unit_test(the_syscall_tracepoint_is_attached_while_it_is_needed),
    };
    const struct CMUnitTest end[] = {
        cmocka_unit_test(when_the_spawner_is_killed_nothing_stays_attached),
    };
    int failed = cmocka_run_group_tests(without, need_root, NULL);
    failed += cmocka_run_group_tests(with, start, stop);
    return failed + cmocka_run_group_tests(end, need_root, NULL);
}
