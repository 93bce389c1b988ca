// SPDX-License-Identifier: Apache-2.0
// The effect of reading the configuration again on the running broker: the index of each template, and which ones
// need a root.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "server/config/change.h"

static uint32_t in_use; // bits: indices whose template has a sandbox

static bool
is_used(void *cookie, uint32_t place)
{
    (void)cookie;
    return (in_use >> place & 1) != 0;
}

static const struct config_users users = {is_used, NULL};

static struct config *
parse(const char *yaml)
{
    struct err e;
    struct config *c = config_default();
    assert_non_null(c);
    if (config_parse(c, "f", yaml, strlen(yaml), &e) < 0)
        fail_msg("%s", e.text);
    c->limits_held = c->limits_max;
    return c;
}

// Like reload.c, with roots numbered from `first`.
static struct config_change
change(struct config *now, const char *yaml, uint32_t first)
{
    uint32_t root[TEMPLATES_OF_FILE];
    struct config_change c;
    struct err e;
    struct config *next = parse(yaml);
    for (uint32_t i = 0; i < TEMPLATES_OF_FILE; i++)
        root[i] = first + i;
    if (config_change_plan(now, next, &users, &c, &e) < 0)
        fail_msg("%s", e.text);
    config_change_apply(now, next, root, &c);
    config_free(next);
    return c;
}

static void
refuse(const struct config *now, const char *yaml, const char *part)
{
    struct config_change c;
    struct err e;
    struct config *next = parse(yaml);
    assert_true(config_change_plan(now, next, &users, &c, &e) < 0);
    if (strstr(e.text, part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, e.text);
    config_free(next);
}

static void
changes_that_need_a_restart_are_refused(void **state)
{
    (void)state;
    struct config *now = parse("templates: [{name: a}]\n");
    refuse(now, "listen: ['ipc:///tmp/x']\n", "listen: a change of this key requires a restart");
    refuse(now, "ids: {slots: 2040}\n", "ids.slots");
    refuse(now, "anomalies: {sensitive_paths: [/srv/keys]}\n", "anomalies.sensitive_paths");
    refuse(now, "anomalies: {not_sensitive_paths: [.netrc]}\n", "anomalies.not_sensitive_paths");
    refuse(now, "limits_max: {memory: 900G}\n", "limits_max.memory");
    refuse(now, "templates: [{name: a, anomalies: {learn: 3}}]\n", "anomalies.learn");
    config_free(now);
}

static void
a_template_needs_a_new_root_if_its_paths_or_host_name_change(void **state)
{
    (void)state;
    struct config *now = parse("templates: [{name: a}, {name: default}]\n");
    assert_int_equal(change(now, "templates: [{name: a}, {name: default}]\n", 0).roots, 3);
    struct config_change c =
        change(now, "templates: [{name: a, env: {A: b}}, {name: default}]\n", 9);
    assert_int_equal(c.roots, 0);
    assert_int_equal(c.given_up_n, 0);
    assert_string_equal(c.what[0], "env");
    assert_string_equal(c.what[1], "");
    c = change(now, "templates: [{name: default}, {name: a, paths: [/opt], env: {A: b}}]\n", 4);
    assert_int_equal(c.roots, 2);
    assert_int_equal(c.given_up_n, 1);
    assert_int_equal(c.given_up[0], 0);
    assert_int_equal(now->sandbox.template[0].root, 5);
    assert_int_equal(now->sandbox.template[1].root, 1);
    assert_string_equal(c.what[0], "paths");
    c = change(now,
               "templates: [{name: default, hostname: x}, {name: a, paths: [/opt], env: {A: b}}]\n",
               7);
    assert_int_equal(c.roots, 1);
    assert_string_equal(c.what[1], "hostname");
    assert_int_equal(now->sandbox.template[1].root, 7);
    config_free(now);
}

static void
each_changed_key_is_named(void **state)
{
    (void)state;
    struct config *now = parse("templates: [{name: a}, {name: default}]\n");
    struct config_change c =
        change(now,
               "limits_default: {timeout: 5}\nlimits_max: {memory: 1G}\nquotas: {queue: 7}\n"
               "ttl: {max: 1d}\nanomalies: {rules: {oom: {severity: critical}}}\n"
               "templates: [{name: a, limits: {pids: 9, timeout: 60}}, "
               "{name: default, anomalies: {rules: {mining: {enabled: false}}}}]\n",
               0);
    assert_string_equal(c.host, "limits_default.timeout, limits_max.memory, anomalies.rules.oom, "
                                "quotas.queue, ttl.max");
    assert_string_equal(c.what[0], "limits.pids, limits_max.memory, anomalies.rules.oom");
    assert_string_equal(c.what[1], "limits.timeout, limits_max.memory, anomalies.rules.oom, "
                                   "anomalies.rules.mining");
    (void)change(now, "templates: [{name: a}, {name: default}]\n", 0);
    c = change(now, "templates: [{name: a}, {name: default}]\n", 0);
    assert_string_equal(c.host, "");
    assert_string_equal(c.what[0], "");
    config_free(now);
}

static void
a_removed_template_keeps_its_index_while_it_is_in_use(void **state)
{
    (void)state;
    struct config *now = parse("templates: [{name: a}, {name: default}]\n");
    (void)change(now, "templates: [{name: a}, {name: default}]\n", 0);
    in_use = 1;
    struct config_change c = change(now, "templates: [{name: b}]\n", 10);
    assert_string_equal(c.what[0], "removed");
    assert_string_equal(c.what[2], "added");
    assert_null(config_template(now, "a"));
    assert_string_equal(now->sandbox.template[0].name, "a");
    assert_int_equal(c.given_up_n, 1); // by the broker; the spawner keeps it for existing sandboxes
    c = change(now, "templates: [{name: b}, {name: a}]\n", 20); // it is added again
    assert_string_equal(c.what[0], "added");
    assert_ptr_equal(config_template(now, "a"), &now->sandbox.template[0]);
    assert_int_equal(now->sandbox.template[0].root, 21);
    (void)change(now, "templates: [{name: b}]\n", 30);
    in_use = 0;
    (void)change(now, "templates: [{name: b}, {name: c}]\n", 40); // no sandbox uses it any more
    assert_string_equal(now->sandbox.template[0].name, "c");
    assert_int_equal(now->sandbox.template[0].number, 0);
    assert_int_equal(now->sandbox.templates_n, 3);
    config_free(now);
}

static void
the_number_of_templates_is_bounded(void **state)
{
    (void)state;
    char yaml[2][1024] = {"templates: [", "templates: ["};
    for (int i = 0; i < TEMPLATES_OF_FILE - 1; i++)
        for (int k = 0; k < 2; k++) {
            size_t n = strlen(yaml[k]);
            (void)snprintf(yaml[k] + n, sizeof yaml[k] - n, "{name: %c%d, pool: 1}, ", 'a' + k, i);
        }
    for (int k = 0; k < 2; k++)
        (void)snprintf(yaml[k] + strlen(yaml[k]), 32, "{name: default}]\n");
    struct config *now = parse("");
    in_use = UINT32_MAX;
    (void)change(now, yaml[0], 0);
    (void)change(now, yaml[1], 16);
    assert_int_equal(now->sandbox.templates_n, TEMPLATES_MAX - 1);
    refuse(now, "templates: [{name: x}, {name: y}]\n", "templates: 32 are in use");
    (void)change(now, "templates: [{name: x}]\n", 32);
    in_use = 0;
    (void)change(now, "templates: [{name: x}, {name: y}]\n", 40);
    config_free(now);
}

static void
a_disabled_template_gives_its_root_up(void **state)
{
    (void)state;
    struct config *now = parse("templates: [{name: a}, {name: default}]\n");
    struct config_change c = change(now, "templates: [{name: a}, {name: default}]\n", 0);
    struct config *next = parse("templates: [{name: a}, {name: default}]\n");
    struct err e;
    (void)snprintf(next->sandbox.template[0].disabled, 32, "it is gone");
    assert_int_equal(config_change_plan(now, next, &users, &c, &e), 0);
    assert_int_equal(c.roots, 0);
    config_change_apply(now, next, NULL, &c);
    assert_int_equal(c.given_up_n, 1);
    assert_false(now->sandbox.template[0].has_root);
    assert_int_equal(now->sandbox.template[0].pool, 0);
    assert_string_equal(c.what[0], "disabled");
    config_free(next);
    config_free(now);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_that_need_a_restart_are_refused),
        cmocka_unit_test(a_template_needs_a_new_root_if_its_paths_or_host_name_change),
        cmocka_unit_test(each_changed_key_is_named),
        cmocka_unit_test(a_removed_template_keeps_its_index_while_it_is_in_use),
        cmocka_unit_test(the_number_of_templates_is_bounded),
        cmocka_unit_test(a_disabled_template_gives_its_root_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
