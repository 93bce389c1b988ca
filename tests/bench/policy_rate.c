// What a network policy costs per sandbox: rules are read, narrowed and compiled, the set is written to the kernel's table,
// and the sandbox's entry; then all of it is given back. Prints microseconds, median and 99th of a hundred.
//
//   policy_rate [RULES] [COUNT]
//
// "new": every sandbox has rules that no other has. "shared": all have the same, as with a template.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <uv.h>

#include "../../bpf/net.h"
#include "../../server/net_sets.h"
#include "../../server/network.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum { RULES_MAX = 256 };

static double
now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

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
    struct net_sets *sets;
};

// One sandbox: its policy is in force when this comes back.
static struct network *
put(const struct maps *m, const struct request *q, const struct network *usual,
    const struct network *most, uint64_t id)
{
    struct network *n = NULL;
    struct err e;
    if (network_read(&q->m, usual, most, &n, &e) < 0 || net_sets_take(m->sets, n, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    const struct bpf_sandbox entry = {
        .slot = 1, .generation = 1, .mode = NET_ALLOWLIST, .rule_set = net_set_number(n->set)};
    if (bpf_map_update_elem(m->sandboxes, &id, &entry, BPF_ANY) < 0)
        exit(1);
    return n;
}

static void
measure(const struct maps *m, const char *what, unsigned rules, unsigned count, bool shared)
{
    double *all = calloc(count, sizeof *all);
    static struct request q;
    struct network *usual = network_new();
    struct network *most = network_everything();
    for (unsigned i = 0; i < count; i++) {
        request_init(&q, rules, shared ? 0 : i + 1);
        double begun = now_us();
        struct network *n = put(m, &q, usual, most, i);
        all[i] = now_us() - begun;
        uint64_t id = i;
        (void)bpf_map_delete_elem(m->sandboxes, &id);
        network_unref(n);
    }
    qsort(all, count, sizeof *all, by_value);
    (void)printf("%-7s %3u rules: median %.1f us, 99%% %.1f us\n", what, rules, all[count / 2],
                 all[count * 99 / 100]);
    free(all);
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
        uv_loop_init(&loop) < 0) {
        (void)fprintf(stderr, "needs root, 1 to 256 rules and 100 sandboxes at least\n");
        return 1;
    }
    m.sets = net_sets_new(&loop, m.rules);
    measure(&m, "new", rules, count, false);
    measure(&m, "shared", rules, count, true);
    net_sets_free(m.sets);
    return 0;
}
