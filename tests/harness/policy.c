// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "tests/harness/policy.h"

struct network *
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
