// SPDX-License-Identifier: Apache-2.0
// The two witnesses of a sandbox's traffic: what the kernel counted at its sockets (struct net_counters), and what the relay says
// that it carried (struct relay_settled). Both count payload without DNS, from the first policy that leads out.
//
//   job's end --witnesses_ask--> RELAY_SETTLE --> RELAY_SETTLED --> waiters; witness_judge()
//
// They agree if all of this holds. Each line is exact; no tolerance is needed, because the kernel's figures are read once before
// the relay counts and once after, and because the relay also states what it received and did not pass on:
//
//   connections   the kernel's before <= the relay's <= the kernel's after
//   TCP out       acknowledged before <= passed on + left    and    passed on <= sent after
//   TCP in        received before <= passed on               and    passed on - unsent <= received after
//   UDP out       sent before <= passed on + dropped         and    passed on <= sent after
//   UDP in        received before <= passed on (a socket that was closed misses the rest)
//   reports       the relay reported each connection that it says it accepted
//
// One bound is not exact: a connection that was reset may have had bytes on their way to the relay's socket, at most
// WITNESS_WAY_BYTES each. A difference within it proves nothing, so the answer is "unknown"; so it is if datagrams or reports
// were lost, connections are still being made, the relay was started again, or it did not answer in time. "Unknown" is never "agree".
//
// What this does not show: where the relay sent the bytes, and which bytes. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/net.h"
#include "server/relay/relay.h"

struct relay_link;
struct sandbox_settler;
struct witnesses;

enum {
    // net.ipv4.tcp_rmem of sandboxes: what a receiver may have announced
    WITNESS_WAY_BYTES = 512 * 1024,
    // SETTLE orders for one question, while the relay says that more waits
    WITNESS_ROUNDS = 20,
};

enum witness_says { WITNESS_AGREE = 1, WITNESS_DISAGREE, WITNESS_UNKNOWN };

struct witness {
    struct net_counters before, after; // the kernel's
    struct relay_settled relay;        // since the relay's start
    uint64_t reported;                 // TCP connections that the relay has reported
    uint32_t lost;                     // reports
    bool asked, answered; // answered: `relay` and `after` are those of the last question
    bool restarted;       // the relay was started again since
    bool overrun;         // once more waited at the relay than it takes at a time
};

// kernel: BPF_SLOTS, or NULL: nothing is known. Free it with witnesses_free(). NULL: out of memory.
struct witnesses *witnesses_new(const struct net_counters *kernel);
void witnesses_free(struct witnesses *all);

// The sandbox's listeners are open. Does nothing if they were before. Without memory its traffic has no second witness.
void witnesses_open(struct witnesses *all, uint32_t slot, uint32_t generation);
void witnesses_forget(struct witnesses *all, uint32_t slot);
void witnesses_relay_gone(struct witnesses *all);

// Any report of an open slot. link: for another round.
void witnesses_report(struct witnesses *all, struct relay_link *link, const struct relay_report *r);

// Asks the relay for its figures. True: w->done is called once, unless the caller removes w before. False: nothing to wait
// for: no packet passed since the last answer, or the relay cannot be asked.
bool witnesses_ask(struct witnesses *all, struct relay_link *link, uint32_t slot,
                   uint32_t generation, struct sandbox_settler *w);

// NULL: its traffic had no way out. Otherwise *out is set.
const struct witness *witnesses_of(const struct witnesses *all, uint32_t slot, uint32_t generation,
                                   struct witness *out);

// Whether they agree; *why: a constant text if they do not, or if it is unknown; "" otherwise.
enum witness_says witness_judge(const struct witness *w, const char **why);
