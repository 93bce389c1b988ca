// SPDX-License-Identifier: Apache-2.0
// Configurations and limits that the spawner accepts.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/spawner/config.h"

static struct spawn_config
good(void)
{
    return (struct spawn_config){
        .version = SPAWN_VERSION,
        .id_base = SPAWN_ID_BASE_DEFAULT,
        .slots = SPAWN_SLOTS_MAX,
        .netns_pool = 8,
        .state_dir = "/var/lib/stockade",
        .guest_path = "/usr/libexec/stockade/stockade-guest",
        .limits_max = {1 << 20, 1 << 20, 1000, 1000, 10000, 100},
        .reader_path = "/usr/libexec/stockade/stockade-reader",
        .config_file = "/etc/stockade/stockaded.yaml",
    };
}

static void
assert_refused(const struct spawn_config *c, const char *field)
{
    struct err e;
    assert_true(config_check(c, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.subject, field);
}

static void
each_field_out_of_its_range_is_refused_by_name(void **state)
{
    (void)state;
    struct spawn_config c = good();
    c.version = 0;
    assert_refused(&c, "version");
    c = good();
    c.slots = 0;
    assert_refused(&c, "slots");
    c.slots = SPAWN_SLOTS_MAX + 1;
    assert_refused(&c, "slots");
    c = good();
    c.id_base = 65535;
    assert_refused(&c, "id_base");
    c.id_base = SPAWN_ID_BASE_DEFAULT + 1; // the last range would reach 2^31
    assert_refused(&c, "id_base");
    c.id_base = UINT32_MAX;
    assert_refused(&c, "id_base");
    c = good();
    c.netns_pool = CONFIG_NETNS_POOL_MAX + 1;
    assert_refused(&c, "netns_pool");
    c = good();
    c.limits_max.pids = 0;
    assert_refused(&c, "limits_max");
    c = good();
    c.limits_max.cpu_weight = 10001;
    assert_refused(&c, "limits_max");
}

static void
the_relays_account_is_nobody_elses(void **state)
{
    (void)state;
    struct spawn_config c = good();
    c.broker_uid = SPAWN_ID_BASE_DEFAULT;
    (void)snprintf(c.relay_path, sizeof c.relay_path, "/usr/libexec/stockade/stockade-relay");
    const uint32_t first = SPAWN_ID_BASE_DEFAULT + SPAWN_IDS_PER_SANDBOX;
    const uint32_t bad[] = {0, c.broker_uid, first, first + SANDBOX_UID_JOB,
                            first + SPAWN_SLOTS_MAX * (uint32_t)SPAWN_IDS_PER_SANDBOX - 1};
    c.relay_gid = SPAWN_ID_BASE_DEFAULT + 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        c.relay_uid = bad[i];
        assert_refused(&c, "relay_uid");
    }
    c.relay_uid = SPAWN_ID_BASE_DEFAULT + 1;
    c.relay_gid = 0;
    assert_refused(&c, "relay_uid");
    c.relay_gid = c.relay_uid;
    struct err e;
    assert_int_equal(config_check(&c, &e), 0);
    c.relay_path[0] = 'x';
    assert_refused(&c, "relay_path");
    c.relay_path[0] = '\0'; // none
    c.relay_uid = 0;
    assert_int_equal(config_check(&c, &e), 0);
    (void)snprintf(c.loader_path, sizeof c.loader_path, "loader");
    assert_refused(&c, "loader_path");
    memset(c.loader_path, 'a', sizeof c.loader_path);
    assert_refused(&c, "loader_path");
}

static void
paths_must_be_absolute_ended_and_without_dots(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      "/",   "relative", "/a/../b", "/a/./b",
                                      "/a//b", "/a/", "/..",      "/.",      "//"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct spawn_config c = good();
        (void)snprintf(c.state_dir, sizeof c.state_dir, "%s", bad[i]);
        assert_refused(&c, "state_dir");
        c = good();
        (void)snprintf(c.guest_path, sizeof c.guest_path, "%s", bad[i]);
        assert_refused(&c, "guest_path");
        c = good();
        (void)snprintf(c.reader_path, sizeof c.reader_path, "%s", bad[i]);
        assert_refused(&c, "reader_path");
        c = good();
        if (!bad[i][0]) // the default file
            continue;
        (void)snprintf(c.config_file, sizeof c.config_file, "%s", bad[i]);
        assert_refused(&c, "config_file");
    }
    struct spawn_config c = good();
    memset(c.state_dir, 'a', sizeof c.state_dir);
    c.state_dir[0] = '/';
    assert_refused(&c, "state_dir");
}

static void
the_cgroups_name_is_one_plain_component(void **state)
{
    (void)state;
    static const char *const bad[] = {"name", "/", "/a/b", "/..", "/.", "/a b", "/a\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct spawn_config c = good();
        (void)snprintf(c.cgroup, sizeof c.cgroup, "%s", bad[i]);
        assert_refused(&c, "cgroup");
    }
}

static void
a_limit_of_zero_or_beyond_its_maximum_is_refused(void **state)
{
    (void)state;
    const struct spawn_config c = good();
    const struct spawn_limits max = c.limits_max;
    assert_true(config_limits_ok(&max, &max));
    struct spawn_limits l = max;
    l.memory_bytes = 0;
    assert_false(config_limits_ok(&l, &max));
    l.memory_bytes = max.memory_bytes + 1;
    assert_false(config_limits_ok(&l, &max));
    l = max;
    l.disk_bytes++;
    assert_false(config_limits_ok(&l, &max));
    l = max;
    l.inodes = 0;
    assert_false(config_limits_ok(&l, &max));
    l = max;
    l.cpu_millis++;
    assert_false(config_limits_ok(&l, &max));
    l = max;
    l.cpu_weight = 0;
    assert_false(config_limits_ok(&l, &max));
    l = max;
    l.pids++;
    assert_false(config_limits_ok(&l, &max));
}

static void
a_valid_configuration_is_accepted_and_slots_have_separate_ranges(void **state)
{
    (void)state;
    struct err e;
    struct spawn_config c = good();
    assert_int_equal(config_check(&c, &e), 0);
    (void)snprintf(c.cgroup, sizeof c.cgroup, "/stockade.test_1-x");
    assert_int_equal(config_check(&c, &e), 0);
    assert_int_equal(config_slot_uid(&c, 0), 0x70010000);
    assert_int_equal(config_slot_uid(&c, SPAWN_SLOTS_MAX - 1), 0x7fff0000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_out_of_its_range_is_refused_by_name),
        cmocka_unit_test(the_relays_account_is_nobody_elses),
        cmocka_unit_test(paths_must_be_absolute_ended_and_without_dots),
        cmocka_unit_test(the_cgroups_name_is_one_plain_component),
        cmocka_unit_test(a_limit_of_zero_or_beyond_its_maximum_is_refused),
        cmocka_unit_test(a_valid_configuration_is_accepted_and_slots_have_separate_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
