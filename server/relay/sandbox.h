// SPDX-License-Identifier: Apache-2.0
// Questions of a flow about its sandbox: its destination, the verdict, and the remaining bytes. sandboxes.h opens and
// closes sandboxes.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "permit.h"
#include "process.h"

// The flow of a local address (from getsockname, or from a packet's control message) and port.
bool sandbox_flow(const struct sandbox *s, const uint8_t local[16], uint8_t protocol,
                  struct net_flow *out);

// Judges a flow to a literal address, and an address of an allowed name, like permit.h; finds out whether the address
// is the host's own if that changes the verdict.
struct permit_verdict sandbox_judge(const struct sandbox *s, const uint8_t address[16],
                                    uint16_t port, uint8_t protocol);
bool sandbox_may_reach(const struct sandbox *s, const uint8_t address[16], uint16_t port,
                       uint8_t protocol);

// Bytes that may still leave (or arrive) under the quotas of the sandbox and the rule.
uint64_t sandbox_left(const struct sandbox *s, bool out, uint32_t rule);

// Counts bytes that were moved over TCP or UDP.
void sandbox_count(struct sandbox *s, bool out, uint8_t protocol, uint32_t rule, uint64_t n);

// The reason of a refusal or cut by a quota: NET_QUOTA, NET_IN_QUOTA or NET_NAME_QUOTA.
enum net_reason sandbox_quota_reason(const struct sandbox *s, bool out);
