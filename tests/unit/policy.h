// SPDX-License-Identifier: Apache-2.0
// What the tests of policies and of their rules share: a policy from destinations as the configuration has them.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/target.h"
#include "server/net_rule.h"
#include "server/network.h"

static struct network *
policy(enum net_mode mode, size_t n, const char *const *targets)
{
    struct network *p = network_new();
    struct err e;
    p->mode = mode;
    for (size_t i = 0; i < n; i++) {
        struct target_text t;
        const char *what = "";
        struct relay_rule *r = network_add_rule(p);
        assert_int_equal(target_parse(targets[i], &t, &e), 0);
        assert_true(t.is_name ? net_rule_domain(t.host, r, &what)
                              : net_rule_cidr(t.host, r, &what));
        if (t.first != 0)
            assert_true(net_rule_add_ports(r, t.first, t.last, t.protocol));
    }
    assert_int_equal(network_compile(p, &e), 0);
    return p;
}
#define POLICY(mode, ...)                                                                          \
    policy(mode, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                           \
           (const char *[]){__VA_ARGS__})
