// SPDX-License-Identifier: Apache-2.0
// See share.h.
#include "share.h"

struct share_size {
    int64_t full_ns;
    unsigned rest; // it drains at this fraction of a CPU
};

// With a tenth, hostile jobs of ten kinds delayed a neighbour's short job twice as long (tests/bench/floods).
enum { PART = 50, WEIGHT_USUAL = 100 };
static const struct share_size of_sandbox = {300000000, 20};
static const struct share_size of_tenant = {1000000000, 4};

static int64_t
level(const struct share_bucket *b, const struct share_size *size, uint64_t now_ns)
{
    int64_t drained = b->at_ns != 0 ? (int64_t)((now_ns - b->at_ns) / size->rest) : 0;
    return b->used_ns > drained ? b->used_ns - drained : 0;
}

static void
fill(struct share_bucket *b, const struct share_size *size, int64_t more_ns, uint64_t now_ns)
{
    int64_t used_ns = level(b, size, now_ns) + more_ns;
    b->used_ns = used_ns < size->full_ns ? used_ns : size->full_ns;
    b->at_ns = now_ns;
}

bool
share_computes_then(const struct share *h)
{
    return h->computes != h->asked;
}

void
share_limits(const struct limits *limits, bool computes, struct spawn_limits *out)
{
    limits_to_spawn(limits, out);
    if (computes)
        out->cpu_weight = out->cpu_weight <= WEIGHT_USUAL ? SPAWN_WEIGHT_IDLE
                                                          : (out->cpu_weight + PART - 1) / PART;
}

bool
share_add(struct share *h, struct tenant *t, uint64_t cpu_ns, uint64_t now_ns)
{
    int64_t more_ns = cpu_ns > h->cpu_ns ? (int64_t)(cpu_ns - h->cpu_ns) : 0; // 0: unknown
    h->cpu_ns += (uint64_t)more_ns;
    fill(&h->bucket, &of_sandbox, more_ns, now_ns);
    if (t != NULL) {
        fill(&t->share, &of_tenant, more_ns, now_ns);
        const uint64_t until_ns = now_ns + (uint64_t)t->share.used_ns * of_tenant.rest;
        t->keep_until_ns = until_ns > t->jobs_until_ns ? until_ns : t->jobs_until_ns;
    }
    int64_t used_ns = h->bucket.used_ns;
    return h->computes ? used_ns <= of_sandbox.full_ns / 2 : used_ns == of_sandbox.full_ns;
}

void
share_begin(struct share *h, const struct tenant *t, uint64_t now_ns)
{
    if (level(&t->share, &of_tenant, now_ns) < of_tenant.full_ns * 9 / 10)
        return;
    h->computes = true;
    h->bucket = (struct share_bucket){of_sandbox.full_ns, now_ns};
}
