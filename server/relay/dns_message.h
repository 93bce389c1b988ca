// SPDX-License-Identifier: Apache-2.0
// DNS messages (RFC 1035, EDNS of RFC 6891): a strict decoder of queries from jobs, and the encoder of our answers.
// Pure functions over bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay.h"

enum {
    DNS_HEADER = 12,
    DNS_QUERY_MAX = 1232,                // longest valid query
    DNS_QUESTION_MAX = 255 + 4,          // name, type, class
    DNS_ANSWER_MAX = 12 + 259 + 28 + 11, // maximum output of dns_answer()
    DNS_TTL_S = 60,
};

enum dns_type { DNS_A = 1, DNS_AAAA = 28, DNS_OPT = 41 };
enum dns_class { DNS_IN = 1 };

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BADVERS = 16,
};

struct dns_query {
    uint16_t id;
    bool recursion, edns;
    uint16_t type, class;
    uint16_t question_n; // bytes in `question`; 0: it could not be read
    // as in the query, for the answer, because programs compare them
    uint8_t question[DNS_QUESTION_MAX];
    char name[RELAY_NAME_MAX + 3]; // lower case, no final dot; "" is the root
};

// Decodes a query. DNS_NOERROR: *q is complete. Another rcode: reply with it (q->id and q->question_n are set as far
// as they were read). Negative: not a query; drop it.
//
// A query has one question, with labels of letters, digits, '-' and '_', without compression, followed by at most one
// OPT record.
int dns_decode(const uint8_t *bytes, size_t n, struct dns_query *q);

// Writes the answer. address: 4 bytes for A, 16 for AAAA, or NULL for none. out has DNS_ANSWER_MAX bytes. Returns the
// length.
size_t dns_answer(const struct dns_query *q, enum dns_rcode rcode, const uint8_t *address,
                  uint8_t *out);
