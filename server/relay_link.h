// SPDX-License-Identifier: Apache-2.0
// The broker's end of the relay's socket (relay/relay.h): orders out, reports in.
//
// The relay parses what hostile jobs send, so it is not believed: a report that does not fit (a length, a kind, a slot that
// was not opened, a text without an end) ends the link. With the relay every flow of every sandbox has ended; the callers'
// way back is spawn_relay(), a link on its socket, relay_configure(), and then for each sandbox with a network
// SPAWN_NET_OPEN and relay_open(). Loop thread only.
//
//   relay_link_new(loop, fd) -> relay_configure() -> relay_open() -> relay_policy() -> relay_give() ... -> relay_close() -> done
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "../proto/err.h"
#include "relay/relay.h"

struct packet;
struct relay_link;

enum {
    RELAY_FDS = 4,                   // listeners of a sandbox, in the order of enum spawn_net_fd
    RELAY_QUEUE_MAX = 2 * BPF_SLOTS, // orders that the socket did not take yet
    RELAY_QUEUE_BYTES = 32 * 1024 * 1024 // and their bytes
};

// Where names are resolved. n 0: at the servers of /etc/resolv.conf.
struct relay_servers {
    uint32_t n;
    struct {
        uint8_t address[16]; // IPv4 as v4-mapped
        uint16_t port;
    } server[RELAY_SERVERS];
};

// What holds for a sandbox. `rules` is borrowed for the call. Field by field as struct relay_order has it.
struct relay_policy {
    enum net_mode mode;
    uint64_t out_bytes_max, in_bytes_max;
    uint64_t out_rate, in_rate;
    uint32_t queries_per_minute;
    uint32_t rules_n; // at most NET_RULES
    const struct relay_rule *rules;
    // For relay_open(), NULL: nothing. What relays before counted, and the bytes of each rule by its number.
    const struct relay_counted *counted;
    const uint64_t *rule_bytes;
};

struct relay_events {
    // A DENIED, LOOKUP, FLOW, FLOW_END, SUMS or RULE_SUM of a sandbox that is open or closing. Its strings end, its
    // name has nothing but letters, digits, '-', '_' and '.', its rule is below NET_RULES or ~0. Borrowed.
    void (*report)(void *cookie, const struct relay_report *r);
    // The relay has carried out every policy of the sandbox that it was given, or has ended, and all flows with it.
    void (*in_force)(void *cookie, uint32_t slot, uint32_t generation);
    // The relay is ready for orders: once, when it has read the servers and locked itself in. Orders may be given before.
    void (*ready)(void *cookie);
    // It does not answer (RELAY_SILENT_MS, or RELAY_START_MS until it is ready): it is to be killed, which ends the link.
    // At most once.
    void (*silent)(void *cookie);
    // It has ended or broken the protocol. Every relay_close() that waited was called back before. Nothing more comes; the
    // link is to be freed, from inside this call or later.
    void (*gone)(void *cookie, const struct err *why);
};

// Called once when nothing of the sandbox is left in the relay, also when the relay ended.
typedef void relay_done(void *cookie);

// Takes fd (*owned* by the link, also on failure). NULL without memory, *e says so. Any event may be NULL.
struct relay_link *relay_link_new(uv_loop_t *loop, int fd, const struct relay_events *events,
                                  void *cookie, struct err *e);

// The relay ends with its socket. Callbacks of relay_close() that wait are not called. NULL is fine; fine inside events.
void relay_link_free(struct relay_link *l);

// Ends the link as if the socket had: gone() is called before this returns. Nothing when it has ended already.
void relay_link_end(struct relay_link *l, const struct err *why);

// The first order, exactly once.
int relay_configure(struct relay_link *l, const struct relay_servers *servers, struct err *e);

// A sandbox, its policy and its listeners (*owned* by the link from now on, also on failure; -1 where absent, but one of
// them must be there). INVALID_ARGUMENT: more than NET_RULES rules; FAILED_PRECONDITION: the slot is open already;
// RESOURCE_EXHAUSTED: the relay does not read.
int relay_open(struct relay_link *l, uint32_t slot, uint32_t generation, int fds[RELAY_FDS],
               const struct relay_policy *policy, struct err *e);

// Another policy: flows that it forbids are cut when in_force() is called. In two steps, so that what belongs
// together does not fail half-way: an order for which there is room now, *owned*, for relay_give() or packet_free(). NULL:
// FAILED_PRECONDITION, not open; RESOURCE_EXHAUSTED, the relay does not read; UNAVAILABLE, it has ended.
struct packet *relay_policy(const struct relay_link *l, uint32_t slot, uint32_t generation,
                            const struct relay_policy *policy, struct err *e);

// Takes the order, and cannot fail: a relay that does not get it is cut off, and with it every flow.
void relay_give(struct relay_link *l, struct packet *order);

// The kernel has counted more than the quota and its room: what is open is cut, once under each policy. A relay that does not
// take the order is cut off.
void relay_spent(struct relay_link *l, uint32_t slot, uint32_t generation);

// Cuts and closes all of it; `done` (may be NULL) is called later, never from inside. A relay that does not read what it is
// sent is cut off, which closes as well. FAILED_PRECONDITION: not open; then there is nothing to close and `done` is not
// called.
int relay_close(struct relay_link *l, uint32_t slot, uint32_t generation, relay_done *done,
                void *cookie, struct err *e);

// Is the slot open, in this generation?
bool relay_is_open(const struct relay_link *l, uint32_t slot, uint32_t generation);
