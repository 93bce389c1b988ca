// SPDX-License-Identifier: Apache-2.0
// Shares of the broker's own CPU time: one tenant that calls all the time must not take the processor that another needs.
//
//   alone:    nothing is counted
//   several:  CPU time that a tenant's requests took -> its bucket, which drains at its share; above the brim it waits
//
//   share = `part` of a CPU * weight of the tenant / (its own + weights of the others that were active in the last half second)
//
// Of the others, those count that use their share. All that do not, however many, count like one: otherwise a person with many names,
// each of which calls now and then, would take the broker from a neighbour without using it.
//
// So a tenant that is alone has all of the broker, and one that uses less than its share never waits. This file has the
// arithmetic only, on the caller's clock; conn_turn.c measures, and stops reading from the connections of a tenant that
// must wait. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/list.h"

#define FAIR_ACTIVE_NS UINT64_C(500000000)  // since the last request
#define FAIR_KEPT_NS   UINT64_C(2000000000) // since then: until the bucket is empty
#define FAIR_BRIM_NS   INT64_C(20000000)    // may be used at once, before the share counts
#define FAIR_AGAIN_NS  INT64_C(2000000)     // below the brim: one that had to wait goes on
#define FAIR_BUSY_NS   (FAIR_BRIM_NS / 4)   // in the bucket: it uses its share

// Of one tenant; zeroed before first use.
struct fair_use {
    struct list node; // in `active`, the longest silent first
    uint64_t seen_ns; // its last request
    uint32_t weight;  // 0: not active
    bool busy;        // it uses its share
    int64_t used_ns;
    uint64_t at_ns;      // of used_ns
    struct list charged; // in this turn of the loop, with
    uint64_t turn_ns;    // so much that was measured; 0: not in the list
};

// Of all tenants; zeroed before first use.
struct fair {
    struct list active;
    uint64_t weights; // of these
    uint64_t busy;    // of those among them that use their share
    uint32_t heaviest;
    uint32_t active_n;
    uint32_t part; // per mille of a CPU; 0: no shares
};

// `part` for this percentage of the processors: the loop has at most one of them.
uint32_t fair_part(uint32_t percent, long processors);

// A request of the tenant has arrived.
void fair_seen(struct fair *f, struct fair_use *u, uint32_t weight, uint64_t now_ns);

// Forgets a tenant that is about to be freed.
void fair_forget(struct fair *f, struct fair_use *u);

// It is not in a list of those charged in this turn any more.
void fair_leave_turn(struct fair_use *u);

// Whether shares count now: several tenants were active in the last half second.
bool fair_counts(struct fair *f, uint64_t now_ns);

// Its weight, and those that it shares with now.
uint64_t fair_weights(const struct fair *f, const struct fair_use *u);

// It uses its share, or does not. For shares of other things than CPU time; fair_charge() knows by itself.
void fair_mark(struct fair *f, struct fair_use *u, bool busy);

// Its requests took this much CPU time.
void fair_charge(struct fair *f, struct fair_use *u, int64_t cpu_ns, uint64_t now_ns);

// 0: the tenant may go on. Otherwise the time until it may; `waited`: it waits already.
uint64_t fair_wait_ns(struct fair *f, struct fair_use *u, bool waited, uint64_t now_ns);
