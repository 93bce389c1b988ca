// SPDX-License-Identifier: Apache-2.0
// See sandbox.h.
#include "sandbox.h"

#include <netinet/in.h>
#include <string.h>

#include "address.h"
#include "maps.h"

bool
sandbox_flow(const struct sandbox *s, const uint8_t local[16], uint8_t protocol,
             struct net_flow *out)
{
    static const uint8_t v6[12] = NET_FLOW_V6_PREFIX;
    uint32_t low = (uint32_t)local[12] << 24 | (uint32_t)local[13] << 16 |
                   (uint32_t)local[14] << 8 | local[15];
    if (address_is_v4(local)) {
        if ((low & ~(uint32_t)NET_FLOW_V4_MASK) != NET_FLOW_V4)
            return false;
        low &= NET_FLOW_V4_MASK;
    } else if (memcmp(local, v6, sizeof v6) != 0) {
        return false;
    }
    return maps_flow(s->relay->flows_fd, s->slot, s->generation, low, out) &&
           out->protocol == protocol && out->port != 0;
}

// Looks up whether the address is the host's own only if the verdict depends on it.
struct permit_verdict
sandbox_judge(const struct sandbox *s, const uint8_t address[16], uint16_t port, uint8_t protocol)
{
    const struct permit *p = s->permit;
    struct permit_verdict v = permit_address(p, address, ADDRESS_OWN_WHOLE, port, protocol);
    if (v.reason == NET_REASON_NONE)
        return v;
    v = permit_address(p, address, ADDRESS_NOT_OWN, port, protocol);
    if (v.reason == NET_REASON_NONE ||
        permit_address(p, address, ADDRESS_OWN_HOST, port, protocol).reason == NET_REASON_NONE)
        v = permit_address(p, address, address_own(address), port, protocol);
    return v;
}

bool
sandbox_may_reach(const struct sandbox *s, const uint8_t address[16], uint16_t port,
                  uint8_t protocol)
{
    const struct permit *p = s->permit;
    if (permit_target(p, address, ADDRESS_OWN_WHOLE, port, protocol))
        return true;
    return (permit_target(p, address, ADDRESS_NOT_OWN, port, protocol) ||
            permit_target(p, address, ADDRESS_OWN_HOST, port, protocol)) &&
           permit_target(p, address, address_own(address), port, protocol);
}

static uint64_t
left_of(uint64_t most, uint64_t used)
{
    if (most == 0)
        return UINT64_MAX;
    return used >= most ? 0 : most - used;
}

static uint64_t
own_left(const struct sandbox *s, bool out)
{
    if (out && s->spent)
        return 0;
    return out ? left_of(s->permit->out_bytes_max, s->out_bytes)
               : left_of(s->permit->in_bytes_max, s->in_bytes);
}

uint64_t
sandbox_left(const struct sandbox *s, bool out, uint32_t rule)
{
    uint64_t own = own_left(s, out);
    uint64_t of_rule = permit_rule_left(s->permit, rule);
    return own < of_rule ? own : of_rule;
}

void
sandbox_count(struct sandbox *s, bool out, uint8_t protocol, uint32_t rule, uint64_t n)
{
    struct relay_settled *c = &s->carried;
    if (protocol == IPPROTO_TCP)
        *(out ? &c->tcp_out : &c->tcp_in) += n;
    else
        *(out ? &c->udp_out : &c->udp_in) += n;
    *(out ? &s->out_bytes : &s->in_bytes) += n;
    if (rule < s->permit->rules_n)
        s->permit->use[rule].bytes += n;
    s->changed = true;
}

enum net_reason
sandbox_quota_reason(const struct sandbox *s, bool out)
{
    if (own_left(s, out) > 0)
        return NET_NAME_QUOTA;
    return out ? NET_QUOTA : NET_IN_QUOTA;
}
