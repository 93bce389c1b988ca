// SPDX-License-Identifier: Apache-2.0
// What a flow asks about its sandbox: where it goes, whether it may, and how many bytes are left. How sandboxes come and go
// is in sandboxes.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "permit.h"
#include "process.h"

// The flow that a local address (as getsockname or a packet's control message tells it) and port stand for.
bool sandbox_flow(const struct sandbox *s, const uint8_t local[16], uint8_t protocol,
                  struct net_flow *out);

// A flow to a literal address, and whether an allowed name may lead to an address: as permit.h has it, and with a look
// whether the address is this host's own where that would change the answer.
struct permit_verdict sandbox_judge(const struct sandbox *s, const uint8_t address[16],
                                    uint16_t port, uint8_t protocol);
bool sandbox_may_reach(const struct sandbox *s, const uint8_t address[16], uint16_t port,
                       uint8_t protocol);

// Bytes that may still go out (or come in) under the sandbox's quota and the rule's.
uint64_t sandbox_left(const struct sandbox *s, bool out, uint32_t rule);

// Bytes that went.
void sandbox_count(struct sandbox *s, bool out, uint32_t rule, uint64_t n);

// Where a flow's refusal or cut by quota comes from: NET_QUOTA, NET_IN_QUOTA or NET_NAME_QUOTA.
enum net_reason sandbox_quota_reason(const struct sandbox *s, bool out);
