// SPDX-License-Identifier: Apache-2.0
// Reports to the broker. They never block: a report that does not fit into the socket, or exceeds the sandbox's rate,
// is counted in its `lost`, which the next SUMS reports.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

// The subject of a report; NULL and zero if not applicable.
struct report_about {
    const uint8_t *address; // 16 bytes
    const char *name;
    const struct net_user *user;
    uint32_t rule; // number of the rule in its policy, ~0: none
    uint16_t port;
    uint8_t protocol;
    enum net_reason reason;
    int error;      // errno
    uint32_t index; // of the name
    uint64_t out_bytes, in_bytes;
    bool first; // about this TCP connection
};

void report_ready(void);

// A report that must arrive. False: the socket is full; the caller tries again.
bool report_pong(uint32_t number);

// IN_FORCE. False: the socket is full.
bool report_in_force(const struct sandbox *s);
bool report_closed(const struct sandbox *s);

// SETTLED. If the socket is full, the broker goes on without it.
void report_settled(const struct sandbox *s, const struct relay_settled *now, uint32_t number);

// The same for counters, and for those of rules with quotas.
bool report_sums(struct sandbox *s);

// DENIED, LOOKUP, FLOW or FLOW_END.
void report(struct sandbox *s, enum relay_report_kind kind, const struct report_about *about);

// SENT, of a simulated sandbox: not limited by a rate, since there are few. bytes: the first n that it sent.
void report_sent(struct sandbox *s, const struct report_about *about, const uint8_t *bytes,
                 uint32_t n);

// Reports a refusal.
void report_denied(struct sandbox *s, enum net_reason reason, const struct report_about *about);

// Whether the reason is an exhausted quota.
bool report_is_quota(enum net_reason reason);

// Number of the rule at an index of the policy, for reports.
uint32_t report_rule(const struct sandbox *s, uint32_t index);
