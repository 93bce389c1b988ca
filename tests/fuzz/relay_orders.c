// SPDX-License-Identifier: Apache-2.0
// Orders to the relay: any bytes are refused, or a policy that can be matched against anything.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/relay/orders.h"
#include "server/relay/permit.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
match(const struct relay_order *o)
{
    static const uint8_t v4[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
    struct net_name entry = {0};
    struct permit *p = permit_new(o);
    if (p == NULL)
        return;
    (void)permit_address(p, v4, true, 443, 6);
    (void)permit_name(p, "a.b.example");
    (void)permit_name_port(p, "a.b.example", 443, 6);
    (void)permit_target(p, v4, false, 443, 17);
    permit_ports(p, "a.b.example", &entry);
    permit_inherit(p, p);
    for (uint32_t i = 0; i < o->rules_n; i++)
        if (o->rules[i].kind != RELAY_PREFIX)
            (void)permit_name(p, o->rules[i].name);
    free(p);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    uint8_t *copy = malloc(n);
    if (copy == NULL)
        return 0;
    memcpy(copy, bytes, n);
    if (orders_check(copy, n - 1, bytes[n - 1] % 6U) && n - 1 >= sizeof(struct relay_order) &&
        ((const struct relay_order *)(void *)copy)->kind >= RELAY_OPEN)
        match((const struct relay_order *)(void *)copy);
    free(copy);
    return 0;
}
