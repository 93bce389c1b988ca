// SPDX-License-Identifier: Apache-2.0
// Simulated sandboxes: the relay judges their connections as always, but opens none. It reads what the job sends, counts it, answers with
// the bytes of the order or resets, and reports each connection, association and name once, at its end (RELAY_SENT).
//
//   TCP  (tcp_sham.c) accepted -> judged -> reads; the reply when something came, or after TCP_SHAM_FIRST_MS -> FIN -> reads until its end
//                              no reply: reset when nothing came for TCP_SHAM_QUIET_MS
//   UDP  judged -> a reply for each datagram
//   DNS  judged -> a synthetic address, without any query
//
// Nothing here opens a socket.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"
#include "report.h"

struct sham;

// Part of a flow or an association: what it has sent. Zeroed before.
struct sham_lane {
    const struct relay_reply *reply; // NULL: none
    struct sham_sent *sent;          // NULL: it is one of those that are only counted
    bool on, replied;
};

// From an OPEN that orders_check() accepted. NULL: out of memory.
struct sham *sham_new(const struct relay_order *o);
void sham_free(struct sham *m); // accepts NULL

// Instead of a connection. name NULL: the literal address.
void sham_begin(struct sandbox *s, struct sham_lane *l, const char *name, const uint8_t address[16],
                uint16_t port, uint8_t protocol);
void sham_keep(struct sham_lane *l, const uint8_t *bytes, size_t n);
void sham_report(struct sandbox *s, const struct sham_lane *l, const struct report_about *about);

// A name got its address, instead of a query.
void sham_query(struct sandbox *s, const struct report_about *name);
