// SPDX-License-Identifier: Apache-2.0
// The DNS responder: the relay replies to all queries of a sandbox to port 53, of any address, and does not forward
// them.
//
//   query -> decode -> rate -> policy -> (A, AAAA) resolve -> synthetic address
//
// A name that the policy does not allow gets NXDOMAIN, and no packet is sent outside, so a query cannot carry data
// out. For types other than A and AAAA of an allowed name the answer is empty: HTTPS and SVCB records would contain
// more addresses, and TXT and ANY arbitrary bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "process.h"

enum { DNS_QUERIES_MAX = 4096, DNS_QUERIES_PER_SANDBOX = 128, DNS_PER_MINUTE = 600 };

struct dns_stream;

// The receiver of an answer: a job's socket, from a UDP listener, with the queried address as the source; or a stream.
struct dns_route {
    struct listener *listener;
    struct sockaddr_storage to;
    uint8_t local[16];
    struct dns_stream *stream; // NULL: UDP
    struct net_user user;      // the process that sent the query
};

void dns_init(void);

// Handles one message. False: not a query, and dropped.
bool dns_ask(struct sandbox *s, const struct dns_route *route, const uint8_t *bytes, size_t n);

// The stream is closing: its query gets no answer.
void dns_forget(struct sandbox *s, const struct dns_stream *stream);

// The sandbox is closed: its queries get no answer.
void dns_drop(struct sandbox *s);

// DNS over TCP (RFC 7766), dns_stream.c: takes the accepted socket (*owned*). One query at a time, 10 s for each.
void dns_stream_init(void);
void dns_stream_open(struct sandbox *s, int fd, const struct net_user *user);
void dns_stream_answer(struct dns_stream *st, const uint8_t *bytes, size_t n);
void dns_stream_drop(struct sandbox *s);
bool dns_stream_tick(struct relay *r);
