// SPDX-License-Identifier: Apache-2.0
// The broker's end of the relay's socket (relay/relay.h): orders out, reports in.
//
// The relay parses data from hostile jobs, so the broker does not trust it: an invalid report (a wrong length or
// kind, a slot that is not open, a text without an end) ends the link. All flows of all sandboxes end with the relay.
// To continue, callers use spawn_relay(), a link on the new socket, relay_configure(), and then SPAWN_NET_OPEN and
// relay_open() for each sandbox with a network. Loop thread only.
//
//   relay_link_new(loop, fd) -> relay_configure() -> relay_open() -> relay_policy() -> relay_give() ... -> relay_close() -> done
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "server/relay/relay.h"

struct packet;
struct relay_link;
struct simulation;

enum {
    RELAY_FDS = 4,                   // listeners of a sandbox, in the order of enum spawn_net_fd
    RELAY_QUEUE_MAX = 2 * BPF_SLOTS, // queued orders
    RELAY_QUEUE_BYTES = 32 * 1024 * 1024 // and their bytes
};

// Name servers. n 0: those of /etc/resolv.conf.
struct relay_servers {
    uint32_t n;
    struct {
        uint8_t address[16]; // IPv4 as v4-mapped
        uint16_t port;
    } server[RELAY_SERVERS];
};

// The policy of a sandbox. `rules` is borrowed for the call. The fields are those of struct relay_order.
struct relay_policy {
    enum net_mode mode;
    uint64_t out_bytes_max, in_bytes_max;
    uint64_t out_rate, in_rate;
    uint32_t queries_per_minute;
    uint32_t rules_n; // at most NET_RULES
    const struct relay_rule *rules;
    // Counters of earlier relays for relay_open(), or NULL, and the bytes of each rule by its number.
    const struct relay_counted *counted;
    const uint64_t *rule_bytes;
    // relay_open(): nothing may leave the sandbox. NULL: it is real.
    const struct simulation *simulation;
};

struct relay_events {
    // A report (DENIED, LOOKUP, FLOW, FLOW_END, SUMS, RULE_SUM, SENT or SETTLED) of a sandbox that is open or closing. Its strings are
    // terminated, its name has only letters, digits, '-', '_' and '.', its rule is below NET_RULES or ~0. Borrowed.
    void (*report)(void *cookie, const struct relay_report *r);
    // The relay has confirmed the last policy of the sandbox, or has ended, and with it all flows.
    void (*in_force)(void *cookie, uint32_t slot, uint32_t generation);
    // The relay is ready: called once, when it has read the servers and dropped its privileges. Orders may be sent
    // before.
    void (*ready)(void *cookie);
    // The relay does not respond (for RELAY_SILENT_MS, or RELAY_START_MS until it is ready): kill it, which ends the
    // link. Called at most once.
    void (*silent)(void *cookie);
    // The relay has ended or broken the protocol. The callbacks of all pending relay_close() were called before. No
    // further event is called; free the link, inside this call or later.
    void (*gone)(void *cookie, const struct err *why);
};

// Called once when nothing of the sandbox is left in the relay, also if the relay ended.
typedef void relay_done(void *cookie);

// Takes fd (*owned* by the link, also on failure). NULL: out of memory, in *e. Any event may be NULL.
struct relay_link *relay_link_new(uv_loop_t *loop, int fd, const struct relay_events *events,
                                  void *cookie, struct err *e);

// Closes the socket, which ends the relay. Callbacks of pending relay_close() are not called. Accepts NULL; may be
// called inside events.
void relay_link_free(struct relay_link *l);

// Ends the link as if the socket had closed: gone() is called before this returns. Does nothing if it has already
// ended.
void relay_link_end(struct relay_link *l, const struct err *why);

// The first order; send it exactly once.
int relay_configure(struct relay_link *l, const struct relay_servers *servers, struct err *e);

// Adds a sandbox with its policy and its listeners (*owned* by the link, also on failure; -1: missing, but one must
// exist). INVALID_ARGUMENT: more than NET_RULES rules; FAILED_PRECONDITION: the slot is already open;
// RESOURCE_EXHAUSTED: the relay does not read.
int relay_open(struct relay_link *l, uint32_t slot, uint32_t generation, int fds[RELAY_FDS],
               const struct relay_policy *policy, struct err *e);

// Changes the policy: when in_force() is called, flows that it forbids are closed. In two steps, so that a change of
// several parts cannot fail halfway: first an order with reserved room, *owned*, for relay_give() or packet_free().
// NULL: FAILED_PRECONDITION, not open; RESOURCE_EXHAUSTED, the relay does not read; UNAVAILABLE, it has ended.
struct packet *relay_policy(const struct relay_link *l, uint32_t slot, uint32_t generation,
                            const struct relay_policy *policy, struct err *e);

// Sends the order, and cannot fail: a relay that does not get it is disconnected, and with it every flow.
void relay_give(struct relay_link *l, struct packet *order);

// The kernel counted more than the quota and its margin: closes the connections, once under each policy. A relay that
// does not accept the order is disconnected.
void relay_spent(struct relay_link *l, uint32_t slot, uint32_t generation);

// Asks for SETTLED with this number. False: it is not open, or the relay does not read.
bool relay_settle(struct relay_link *l, uint32_t slot, uint32_t generation, uint32_t number);

// Closes a sandbox; `done` (may be NULL) is called later, never from inside. A relay that does not read is
// disconnected, which closes it as well. FAILED_PRECONDITION: not open; then `done` is not called.
int relay_close(struct relay_link *l, uint32_t slot, uint32_t generation, relay_done *done,
                void *cookie, struct err *e);

// The relay's pid, for its metrics; 0: it is not ready. The relay reports it, so believe nothing that depends on it.
uint32_t relay_pid(const struct relay_link *l);

// Whether the slot is open, in this generation.
bool relay_is_open(const struct relay_link *l, uint32_t slot, uint32_t generation);
