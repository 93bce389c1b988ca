// SPDX-License-Identifier: Apache-2.0
// See failures.h. The table is fixed: a peer has the row that its name hashes to, and shares it with others of the same row, which
// then are limited together.
#include "failures.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/metrics.h"

#define NS_PER_MS     UINT64_C(1000000)
#define NS_PER_MINUTE (UINT64_C(60000) * NS_PER_MS)
enum { ONE = 1000, LOG_LINES_MAX = 20, NETWORK_BYTES = 8 };

void
failures_init(struct failures *f)
{
    *f = (struct failures){0};
    crypto_shorthash_keygen(f->key);
}

// A peer may have many addresses, and could choose those that share the row of another one. Of an IPv6 address the first 64 bits count:
// the others are its owner's to choose.
static size_t
row_of(const struct failures *f, const char *peer)
{
    uint64_t hash;
    struct in6_addr v6;
    const bool network = inet_pton(AF_INET6, peer, &v6) == 1;
    (void)crypto_shorthash((uint8_t *)&hash, network ? v6.s6_addr : (const uint8_t *)peer,
                           network ? NETWORK_BYTES : strlen(peer), f->key);
    return hash % FAILURES_PEERS_MAX;
}

// Thousandths at this time.
static uint64_t
level(const struct failures *f, size_t row, uint32_t per_minute, uint64_t now_ns)
{
    const uint64_t passed_ns = now_ns - f->row[row].at_ns;
    if (passed_ns >= NS_PER_MINUTE)
        return 0;
    const uint64_t gone = passed_ns * per_minute / (NS_PER_MINUTE / ONE);
    return f->row[row].level > gone ? f->row[row].level - gone : 0;
}

bool
failures_full(const struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns,
              uint64_t *wait_ms)
{
    const uint64_t most = (uint64_t)per_minute * ONE;
    const uint64_t now = level(f, row_of(f, peer), per_minute, now_ns);
    if (now + ONE <= most)
        return false;
    *wait_ms = (now + ONE - most) * 60 / per_minute + 1;
    return true;
}

// As many lines as an operator can read; the rest is counted.
static void
log_one(struct failures *f, const char *peer, uint64_t now_ns, const struct err *why)
{
    const struct log_about about = {.tenant = peer};
    if (now_ns - f->log_from_ns >= NS_PER_MINUTE) {
        if (f->unlogged > 0)
            log_event(LOG_WARNING, "credential-refused", "%u more %s", f->unlogged,
                      plural(f->unlogged, "line like this", "lines like these"));
        f->log_from_ns = now_ns;
        f->logged = f->unlogged = 0;
    }
    if (f->logged == LOG_LINES_MAX) {
        f->unlogged++;
        metrics_add(METRIC_LOG_OMITTED, 1);
        return;
    }
    f->logged++;
    log_event_about(LOG_WARNING, "credential-refused", &about, "%s: %s (%s)", peer, why->text,
                    why->reason);
}

bool
failures_may_publish(struct failures *f, uint64_t now_ns, uint64_t *left_out)
{
    if (now_ns - f->events_from_ns >= NS_PER_MINUTE) {
        f->events_from_ns = now_ns;
        f->published = 0;
    }
    if (f->published >= FAILURES_EVENTS) {
        f->left_out++;
        return false;
    }
    f->published++;
    *left_out = f->left_out;
    f->left_out = 0;
    return true;
}

void
failures_leave_out(struct failures *f)
{
    f->left_out++;
}

void
failures_count(struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns)
{
    const size_t row = row_of(f, peer);
    f->row[row].level = level(f, row, per_minute, now_ns) + ONE;
    f->row[row].at_ns = now_ns;
    (void)snprintf(f->row[row].peer, sizeof f->row[row].peer, "%s", peer);
}

void
failures_add(struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns,
             const struct err *why)
{
    failures_count(f, peer, per_minute, now_ns);
    metrics_add(METRIC_CREDENTIALS_REFUSED, 1);
    log_one(f, peer, now_ns, why);
}
