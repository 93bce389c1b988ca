// SPDX-License-Identifier: Apache-2.0
// The cost of a network policy per sandbox: rules are read, checked and compiled, the set and the sandbox's entry are
// written to the kernel; then all of it is removed.
//
//   bench-policy_rate [RULES] [COUNT]
//
// "new": every sandbox has different rules. "known": all have the same, as with a template. Both alternate.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <uv.h>

#include "bpf/net.h"
#include "server/network/sets.h"
#include "server/policy/network.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum { RULES_MAX = 256 };

struct request {
    Stockade__V1__NetworkPolicy m;
    Stockade__V1__NetworkRule rule[RULES_MAX];
    Stockade__V1__NetworkRule *rules[RULES_MAX];
    char cidr[RULES_MAX][40];
};

static void
request_init(struct request *q, unsigned rules, unsigned seed)
{
    stockade__v1__network_policy__init(&q->m);
    q->m.mode = STOCKADE__V1__NETWORK_MODE__NETWORK_MODE_ALLOWLIST;
    for (unsigned i = 0; i < rules; i++) {
        stockade__v1__network_rule__init(&q->rule[i]);
        (void)snprintf(q->cidr[i], sizeof q->cidr[i], "93.%u.%u.%u", seed >> 8 & 255, seed & 255,
                       i & 255);
        q->rule[i].cidr = q->cidr[i];
        q->rules[i] = &q->rule[i];
    }
    q->m.outbound = q->rules;
    q->m.n_outbound = rules;
}

struct maps {
    int rules, sandboxes;
    uv_loop_t *loop;
    struct net_sets *sets;
};

// One sandbox: its policy is in force when this returns.
static struct network *
put(const struct maps *m, const struct request *q, const struct network *usual,
    const struct network *most, uint64_t id)
{
    struct network *n = NULL;
    struct err e;
    if (network_read(&q->m, usual, most, &n, &e) < 0 || net_sets_take(m->sets, n, &e) < 0)
        bench_die("%s", e.text);
    const struct bpf_sandbox entry = {
        .slot = 1, .generation = 1, .mode = NET_ALLOWLIST, .rule_set = net_set_number(n->set)};
    if (bpf_map_update_elem(m->sandboxes, &id, &entry, BPF_ANY) < 0)
        bench_die("the sandbox's entry");
    return n;
}

static void
measure(struct maps *m, unsigned rules, unsigned count)
{
    static struct request q;
    char rows[2][40];
    struct samples s[2] = {{.row = rows[0]}, {.row = rows[1]}};
    struct network *usual = network_new();
    struct network *most = network_everything();
    for (int known = 0; known < 2; known++)
        (void)snprintf(rows[known], sizeof rows[known], "%u %s rules", rules,
                       known ? "known" : "new");
    for (unsigned i = 0; i < 2 * count; i++) {
        uint64_t id = i;
        int known = (int)(i % 2);
        request_init(&q, rules, known ? 0 : i + 1);
        double begun = bench_now();
        struct network *n = put(m, &q, usual, most, id);
        samples_add(&s[known], bench_now() - begun);
        (void)bpf_map_delete_elem(m->sandboxes, &id);
        network_unref(n);
        (void)uv_run(m->loop, UV_RUN_NOWAIT); // unused sets are removed
    }
    samples_print(&s[0], "network policy", "");
    samples_print(&s[1], "network policy", "");
    network_unref(usual);
    network_unref(most);
}

int
main(int argc, char **argv)
{
    unsigned rules = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 10;
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 2000;
    LIBBPF_OPTS(bpf_map_create_opts, no_prealloc, .map_flags = BPF_F_NO_PREALLOC);
    struct maps m = {
        .rules = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "rules", sizeof(struct net_rule_key),
                                sizeof(struct net_rule), NET_RULE_ENTRIES, &no_prealloc),
        .sandboxes = bpf_map_create(BPF_MAP_TYPE_HASH, "sandboxes", sizeof(uint64_t),
                                    sizeof(struct bpf_sandbox), 8192, NULL),
    };
    uv_loop_t loop;
    if (m.rules < 0 || m.sandboxes < 0 || rules == 0 || rules > RULES_MAX || count < 100 ||
        uv_loop_init(&loop) < 0)
        bench_die("needs root, 1 to 256 rules and 100 sandboxes at least");
    m.loop = &loop;
    m.sets = net_sets_new(&loop, m.rules);
    measure(&m, rules, count);
    net_sets_free(m.sets);
    return 0;
}
