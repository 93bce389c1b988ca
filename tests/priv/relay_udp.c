// SPDX-License-Identifier: Apache-2.0
// Associations of the relay: a datagram goes to the current destination of its flow's number.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_world.h"

enum { PORT = 7000, OTHER_PORT = 7001, CHECK_MS = 1100 };

// Reuses the entry of a flow: as before, but with another number or another destination.
static void
flow_becomes(uint32_t entry, uint32_t number, uint16_t port)
{
    const struct net_flow_key key = {.slot = box.slot, .entry = entry};
    struct net_flow flow = {.port = port,
                            .protocol = IPPROTO_UDP,
                            .family = AF_INET,
                            .generation = box.generation,
                            .number = number};
    box_mapped(INADDR_LOOPBACK, flow.address);
    assert_int_equal(box_map_call(BPF_MAP_UPDATE_ELEM, box.flows_fd, &key, &flow), 0);
}

static void
hears_nothing(int fd)
{
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
}

static void
a_datagram_goes_to_the_current_destination_of_its_number(void **state)
{
    (void)state;
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, 0);
    box_open(&p);
    int first = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    int second = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, OTHER_PORT);
    int job = box_connect(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    uint32_t number = box.flow;
    box_say(job, "to the first");
    box_hear(first, "to the first");
    flow_becomes(NET_FLOW_ENTRY(number), number, OTHER_PORT);
    time_passes("the relay looks again", CHECK_MS);
    box_say(job, "to the second");
    box_hear(second, "to the second");
    hears_nothing(first);
    flow_becomes(NET_FLOW_ENTRY(number), number + NET_FLOWS_PER_SLOT, PORT);
    time_passes("the relay looks again", CHECK_MS);
    box_say(job, "to nobody");
    int other = box_connect_flow(SOCK_DGRAM, number + NET_FLOWS_PER_SLOT);
    box_say(other, "to the first"); // after the earlier one
    box_hear(first, "to the first");
    hears_nothing(second);
    (void)close(other);
    (void)close(job);
    (void)close(first);
    (void)close(second);
    box_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_datagram_goes_to_the_current_destination_of_its_number),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
