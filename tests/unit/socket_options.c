// SPDX-License-Identifier: Apache-2.0
// Names of socket options.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "server/rpc/socket_options.h"

static void
is(uint32_t level, uint32_t option, const char *name)
{
    char text[64];
    assert_string_equal(socket_option_name(level, option, text, sizeof text), name);
}

static void
an_option_has_the_name_that_programmers_know(void **state)
{
    (void)state;
    is(1, 37, "SO_TIMESTAMPING");
    is(1, 65, "SO_TIMESTAMPING_NEW");
    is(0, 35, "IP_ADD_MEMBERSHIP");
    is(6, 14, "TCP_MD5SIG");
    is(17, 104, "UDP_GRO");
    is(41, 32, "IPV6_FLOWLABEL_MGR");
    is(270, 1, "NETLINK_ADD_MEMBERSHIP");
}

static void
a_call_without_a_name_is_shown_by_its_number(void **state)
{
    (void)state;
    is(1, 22, "SOL_SOCKET option 22");
    is(6, 4000000000, "SOL_TCP option 4000000000");
    is(132, 4, "level 132, option 4");
    is(UINT32_MAX, 0, "level 4294967295, option 0");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_has_the_name_that_programmers_know),
        cmocka_unit_test(a_call_without_a_name_is_shown_by_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
