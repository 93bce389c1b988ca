// SPDX-License-Identifier: Apache-2.0
// The network policy of a sandbox: read from a request or the configuration, checked, and limited to what its
// template allows. Immutable once made, and reference-counted: all sandboxes of a template share its policy.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/relay/relay.h"

struct net_set;
struct Stockade__V1__NetworkPolicy;

enum {
    NETWORK_INBOUND = 64, // ranges of ports
    NETWORK_RATE_MIN = 1000,
    NETWORK_QUERIES_MAX = 60000, // per minute
};
#define NETWORK_RATE_MAX UINT64_C(1000000000000)

// In the order of their fields in stockade.v1.NetworkPolicy; 0: no limit.
enum network_limit {
    NETWORK_EGRESS_BYTES,
    NETWORK_INGRESS_BYTES,
    NETWORK_EGRESS_RATE,
    NETWORK_INGRESS_RATE,
    NETWORK_QUERIES,
    NETWORK_LIMITS,
};
extern const char *const network_limit_name[NETWORK_LIMITS];
extern const char *const network_mode_name[]; // by enum net_mode

struct network_range {
    uint16_t first, last;
};

struct network {
    uint32_t refs;
    enum net_mode mode;
    uint32_t rules_n;
    struct relay_rule *rules; // owned, numbered from 0
    uint32_t inbound_n;
    struct network_range inbound[NETWORK_INBOUND];
    uint64_t limit[NETWORK_LIMITS];
    // Its prefixes as entries of map "rules", rule_set 0. Owned.
    uint32_t entries_n;
    struct net_rule_key *keys;
    struct net_rule *values;
    struct net_set *set; // its rule set in the kernel, once it was needed: network/sets.h
    void (*set_release)(struct net_set *set);
};

// A new policy with one reference: mode none, nothing allowed. NULL: out of memory.
struct network *network_new(void);
struct network *network_ref(const struct network *n);
// Accepts NULL.
void network_unref(struct network *n);

// Adds an empty rule; NULL: there are too many, or out of memory.
struct relay_rule *network_add_rule(struct network *n);

// target.c. Adds the rules of a destination, "HOST[:PORT[-PORT]][/tcp|/udp]" or "@SET", numbered from n->rules_n. INVALID_ARGUMENT with the reason; some of the rules may have been
// added then.
int network_add_target(struct network *n, const char *text, struct err *e);

// Adds the rules of the set "@NAME". INVALID_ARGUMENT names the known sets, or says that there are too many rules.
int network_add_set(struct network *n, const char *text, struct err *e);

// All public addresses, and every port inward: the maximum of a template that does not set one.
struct network *network_everything(void);

// The policy of a request (*out, one reference): from its message (NULL: none), the template's default for requests
// without one, and the template's maximum. INVALID_ARGUMENT names what is malformed, FAILED_PRECONDITION
// (NETWORK_POLICY_TOO_WIDE) what is wider than the template.
int network_read(const struct Stockade__V1__NetworkPolicy *m, const struct network *usual,
                 const struct network *most, struct network **out, struct err *e);

// Makes its entries. INVALID_ARGUMENT: a prefix has more port ranges than an entry can hold.
int network_compile(struct network *n, struct err *e);

// Checks that `asked` is within `most`, and copies limits from `most` that `asked` does not set. `name` is for the
// field in errors.
int network_narrow(struct network *asked, const struct network *most, const char *name,
                   struct err *e);

// Whether every destination of `asked` is one of `most`; other parts of the policies do not count.
bool network_is_within(const struct network *asked, const struct network *most);

// Whether anything outside of the sandbox can be reached: not with the modes none and off.
bool network_leads_out(const struct network *n);

// What it allows, in a line: "network allowlist; outbound example.com:443; inbound ports 80". Cut to n bytes.
void network_text(const struct network *n, char *out, size_t size);

// Whether `inbound` contains the port.
bool network_lets_in(const struct network *n, uint16_t port);
