// SPDX-License-Identifier: Apache-2.0
// See hint.h.
#include "hint.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/policy/rule.h"
#include "server/policy/target.h"

enum { QUERIES_USUAL = 600, TARGET_MAX = RELAY_NAME_MAX + 32 };

// Addresses that stand for a name or a flow, so no rule can mean them.
static bool
is_ours(const uint8_t a[16], uint16_t port)
{
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t flow6[12] = NET_FLOW_V6_PREFIX;
    static const uint8_t name6[12] = NET_SYNTHETIC_V6_PREFIX;
    uint32_t low = (uint32_t)a[12] << 24 | (uint32_t)a[13] << 16 | (uint32_t)a[14] << 8 | a[15];
    if (memcmp(a, v4, sizeof v4) != 0)
        return memcmp(a, flow6, sizeof flow6) == 0 || memcmp(a, name6, sizeof name6) == 0;
    return (low & ~(uint32_t)NET_SYNTHETIC_V4_MASK) == NET_SYNTHETIC_V4 ||
           (low >> 24 == IN_LOOPBACKNET && port == NET_RELAY_PORT);
}

// Whether the template permits this rule.
static bool
is_taken(const struct net_refused *r, struct relay_rule *rule)
{
    struct network asked = {.mode = NET_ALLOWLIST, .rules_n = 1, .rules = rule};
    struct err e;
    if (r->now != NULL && r->now->mode == NET_OPEN)
        asked.mode = NET_OPEN;
    return network_narrow(&asked, r->most, "", &e) == 0;
}

static const char *
offer(const struct net_refused *r, struct relay_rule *rule, char *out, size_t n)
{
    char target[TARGET_MAX];
    const char *open = r->now != NULL && r->now->mode == NET_OPEN ? "--network open " : "";
    const char *protocol = r->port == 0                 ? ""
                           : r->protocol == IPPROTO_TCP ? "/tcp"
                           : r->protocol == IPPROTO_UDP ? "/udp"
                                                        : "";
    bool one = protocol[0] != '\0';
    if (r->port != 0)
        (void)net_rule_add_ports(rule, r->port, r->port, one ? r->protocol : 0);
    if (rule->kind == RELAY_PREFIX)
        net_rule_address(rule->address, r->port, target, sizeof target);
    else if (r->port != 0)
        (void)snprintf(target, sizeof target, "%s:%u", rule->name, r->port);
    else
        (void)snprintf(target, sizeof target, "%s", rule->name);
    if (is_taken(r, rule))
        (void)snprintf(out, n, "%s--allow %s%s", open, target, protocol);
    else
        (void)snprintf(out, n, "template %s does not allow %s%s", r->template, target, protocol);
    return out;
}

// The set that covers the name, if the template permits all of it.
static bool
offer_set(const struct net_refused *r, const struct relay_rule *rule, char *out, size_t n)
{
    struct relay_rule rules[DESTINATIONS_MAX];
    struct relay_rule asked = *rule;
    if (r->now != NULL && r->now->mode == NET_OPEN)
        return false;
    if (r->port != 0)
        (void)net_rule_add_ports(&asked, r->port, r->port, r->protocol);
    const struct destination_set *set = network_set_around(&asked);
    uint32_t rules_n = set != NULL ? network_set_rules(set, rules) : 0;
    for (uint32_t i = 0; i < rules_n; i++)
        if (!is_taken(r, &rules[i]))
            return false;
    if (set != NULL)
        (void)snprintf(out, n, "--allow @%s", set->name);
    return set != NULL;
}

static const char *
offer_name(const struct net_refused *r, char *out, size_t n)
{
    struct relay_rule rule = {0};
    const char *what = "";
    if (!net_rule_domain(r->name, &rule, &what))
        return out;
    return offer_set(r, &rule, out, n) ? out : offer(r, &rule, out, n);
}

static const char *
offer_address(const struct net_refused *r, char *out, size_t n)
{
    static const uint8_t unspecified[16];
    struct relay_rule rule = {.kind = RELAY_PREFIX, .prefix = 128};
    if (is_ours(r->address, r->port) || memcmp(r->address, unspecified, sizeof unspecified) == 0)
        return out;
    memcpy(rule.address, r->address, sizeof rule.address);
    return offer(r, &rule, out, n);
}

// A name leads to an address that only a rule for the address allows. The rule for the name is needed as well: the
// command replaces the whole policy.
static const char *
offer_both(const struct net_refused *r, char *out, size_t n)
{
    char name[TARGET_MAX + 64] = "";
    (void)offer_address(r, out, n);
    bool open = r->now != NULL && r->now->mode == NET_OPEN;
    if (r->name == NULL || open || strncmp(out, "--", 2) != 0)
        return out;
    (void)offer_name(r, name, sizeof name);
    size_t used = strlen(out);
    if (strncmp(name, "--", 2) == 0)
        (void)snprintf(out + used, n - used, " %s", name);
    return out;
}

// Suggests twice the current limit, or the template's maximum.
static const char *
offer_more(const struct net_refused *r, enum network_limit limit, const char *option,
           uint64_t usual, char *out, size_t n)
{
    uint64_t now = r->now != NULL ? r->now->limit[limit] : 0;
    uint64_t most = r->most->limit[limit];
    uint64_t ceiling = limit == NETWORK_QUERIES ? NETWORK_QUERIES_MAX : UINT64_MAX / 2;
    now = now != 0 ? now : usual;
    most = most != 0 && most < ceiling ? most : ceiling;
    uint64_t more = now < most / 2 ? now * 2 : most;
    if (more > now)
        (void)snprintf(out, n, "%s %" PRIu64, option, more);
    else
        (void)snprintf(out, n, "the maximum of template %s is %" PRIu64, r->template, now);
    return out;
}

const char *
net_hint(const struct net_refused *r, char *out, size_t n)
{
    static const char *const sentences[NET_REASONS] = {
        [NET_NO_POLICY] = "the sandbox has no policy yet",
        [NET_SOCKET_TYPE] = "only TCP, UDP and unix sockets are permitted",
        [NET_OPTION] = "only common socket options are permitted",
        [NET_SOCKETS] = "raise the memory limit: it permits one INET socket per 512 KiB",
        [NET_NAME_QUOTA] = "bytes_max of its rule is exhausted",
        [NET_FULL] = "too many connections, destinations or names at a time",
    };
    out[0] = '\0';
    switch ((int)r->reason) {
    case NET_MODE_NONE:
    case NET_NO_RULE:
        return r->name != NULL ? offer_name(r, out, n) : offer_address(r, out, n);
    case NET_NAME:
        return r->name != NULL ? offer_name(r, out, n) : out;
    case NET_NAME_ADDRESS:
        return offer_both(r, out, n);
    case NET_QUOTA:
        return offer_more(r, NETWORK_EGRESS_BYTES, "--egress-bytes", 0, out, n);
    case NET_IN_QUOTA:
        return offer_more(r, NETWORK_INGRESS_BYTES, "--ingress-bytes", 0, out, n);
    case NET_NAME_RATE:
        if (r->of_rule)
            (void)snprintf(out, n, "queries_per_minute of its rule is exhausted");
        return r->of_rule ? out
                          : offer_more(r, NETWORK_QUERIES, "--dns-queries", QUERIES_USUAL, out, n);
    default:
        if (r->reason < NET_REASONS && sentences[r->reason] != NULL)
            (void)snprintf(out, n, "%s", sentences[r->reason]);
        return out;
    }
}
