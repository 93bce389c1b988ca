// SPDX-License-Identifier: Apache-2.0
// See enforce.h.
#include "enforce.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <bpf/bpf.h>

#include "proto/auto.h"
#include "server/sandbox/bpf.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "net.h"
#include "counted.h"
#include "named.h"
#include "sets.h"
#include "witness.h"
#include "server/base/packets.h"
#include "relay_link.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"

static const struct bpf *
bpf_of(const struct sandbox *s)
{
    return sandboxes_server(s->all)->bpf;
}

static struct relay_link *
relay_of(const struct sandbox *s)
{
    return sandboxes_server(s->all)->relay;
}

static int
write_entry(const struct sandbox *s, const struct bpf_sandbox *entry, struct err *e)
{
    const struct bpf *b = bpf_of(s);
    if (b == NULL || b->fd[BPF_FD_SANDBOXES] < 0 || s->net.cgroup_id == 0)
        return 0;
    if (bpf_map_update_elem(b->fd[BPF_FD_SANDBOXES], &s->net.cgroup_id, entry, BPF_ANY) < 0)
        return err_sys(e, errno, "write its network policy");
    return 0;
}

static int
born(struct sandbox *s, struct err *e)
{
    const struct bpf *b = bpf_of(s);
    struct stat st;
    if (b == NULL || b->fd[BPF_FD_SANDBOXES] < 0)
        return 0;
    // A cgroup's id is the inode number of its directory.
    if (fstat(s->dirs.fd[SPAWN_FD_CGROUP], &st) < 0)
        return err_sys(e, errno, "open its cgroup");
    static const struct net_counters none;
    if (b->fd[BPF_FD_NET_COUNTERS] >= 0 &&
        bpf_map_update_elem(b->fd[BPF_FD_NET_COUNTERS], &s->slot, &none, BPF_ANY) < 0)
        return err_sys(e, errno, "clear its network counters");
    s->net.entry = (struct bpf_sandbox){
        .slot = s->slot,
        .generation = s->generation,
        .mode = NET_NONE,
        .template = s->spec.template->number,
        .watch = WATCH_EVENTS,
        .sockets_max = limits_sockets(&s->spec.limits),
    };
    s->net.cgroup_id = st.st_ino;
    return write_entry(s, &s->net.entry, e);
}

// Lets the relay reach what the policy names; of a simulated sandbox it needs nothing.
static int
live(const struct sandbox *s, const struct network *n, struct err *e)
{
    const struct net *net = s->simulation == NULL ? sandboxes_server(s->all)->net : NULL;
    return net != NULL ? net_named_add(net_names(net), n->rules, n->rules_n, e) : 0;
}

static void
no_longer_live(const struct sandbox *s, const struct network *n)
{
    const struct net *net = s->simulation == NULL ? sandboxes_server(s->all)->net : NULL;
    if (net != NULL && n != NULL)
        net_named_drop(net_names(net), n->rules, n->rules_n);
}

// Removes the entries of its flows.
static void
forget_flows(const struct sandbox *s)
{
    const struct bpf *b = bpf_of(s);
    if (b->fd[BPF_FD_FLOWS] < 0 || b->net == NULL)
        return;
    uint32_t n = b->net[s->slot].flows;
    for (uint32_t i = 0; i < n && i < NET_FLOWS_PER_SLOT; i++) {
        const struct net_flow_key key = {.slot = s->slot, .entry = i};
        (void)bpf_map_delete_elem(b->fd[BPF_FD_FLOWS], &key);
    }
}

static void
forget(struct sandbox *s)
{
    const struct bpf *b = bpf_of(s);
    no_longer_live(s, s->net.in_force);
    network_unref(take_ptr(s->net.in_force));
    network_unref(take_ptr(s->net.wanted));
    if (b == NULL || b->fd[BPF_FD_SANDBOXES] < 0 || s->net.cgroup_id == 0)
        return;
    (void)bpf_map_delete_elem(b->fd[BPF_FD_SANDBOXES], &s->net.cgroup_id);
    forget_flows(s);
    const struct net *net = sandboxes_server(s->all)->net;
    if (net != NULL) {
        net_counted_forget(net_count(net), s->slot);
        witnesses_forget(net_witnesses(net), s->slot);
    }
    s->net.cgroup_id = 0;
}

int
enforce_watch(struct sandbox *s, uint32_t flags, struct err *e)
{
    struct bpf_sandbox entry = s->net.entry;
    entry.watch = flags;
    int r = flags != s->net.entry.watch ? write_entry(s, &entry, e) : 0;
    if (r == 0)
        s->net.entry = entry;
    return r;
}

static int
limit(struct sandbox *s, const struct limits *limits, struct err *e)
{
    struct bpf_sandbox entry = s->net.entry;
    entry.sockets_max = limits_sockets(limits);
    int r = entry.sockets_max != s->net.entry.sockets_max ? write_entry(s, &entry, e) : 0;
    if (r == 0)
        s->net.entry = entry;
    return r;
}

// The policy for the relay. The rules are borrowed.
static struct relay_policy
to_relay(const struct network *n)
{
    return (struct relay_policy){
        .mode = n->mode,
        .out_bytes_max = n->limit[NETWORK_EGRESS_BYTES],
        .in_bytes_max = n->limit[NETWORK_INGRESS_BYTES],
        .out_rate = n->limit[NETWORK_EGRESS_RATE],
        .in_rate = n->limit[NETWORK_INGRESS_RATE],
        .queries_per_minute = (uint32_t)n->limit[NETWORK_QUERIES],
        .rules_n = n->rules_n,
        .rules = n->rules,
    };
}

// The kernel's entry changes first: from then on it refuses what the new policy forbids, even if the relay still has
// it open.
static int
put_in_force(struct sandbox *s, struct network *n, struct err *e)
{
    struct bpf_sandbox entry = s->net.entry;
    entry.mode = n->mode;
    entry.rule_set = net_set_number(n->set);
    entry.egress_bytes_max = n->limit[NETWORK_EGRESS_BYTES];
    entry.egress_rate = n->limit[NETWORK_EGRESS_RATE];
    struct network *before = s->net.in_force;
    int r = before != n ? live(s, n, e) : 0;
    if (r == 0 && memcmp(&entry, &s->net.entry, sizeof entry) != 0) {
        r = write_entry(s, &entry, e);
        if (r < 0 && before != n)
            no_longer_live(s, n);
    }
    if (r < 0)
        return r;
    if (before != n)
        no_longer_live(s, before);
    s->net.entry = entry;
    if (before != n && sandboxes_server(s->all)->net != NULL)
        net_counted_policy(net_count(sandboxes_server(s->all)->net), s->slot);
    s->net.in_force = network_ref(n);
    network_unref(before);
    sandbox_network_changed(s, before != n);
    return 0;
}

// Changes the policy of a sandbox whose listeners are open, or that has none, completely or not at all. The order to
// the relay is allocated first, because that may fail, and sent last.
static int
change(struct sandbox *s, struct network *n, struct relay_link *relay, struct err *e)
{
    struct packet *order = NULL;
    if (relay != NULL) {
        const struct relay_policy p = to_relay(n);
        order = relay_policy(relay, s->slot, s->generation, &p, e);
        if (order == NULL)
            return err_errno(e);
    }
    int r = put_in_force(s, n, e);
    if (r < 0)
        packet_free(order);
    else if (order != NULL)
        relay_give(relay, order);
    return r;
}

// The counters that an earlier relay had not yet reported when it ended are lost. The kernel has its own count: if
// there is a quota, all of those bytes count as used.
static const struct relay_counted *
counted_at_least(const struct sandbox *s, const struct network *n,
                 const struct relay_counted *reported, struct relay_counted *out)
{
    const struct bpf *b = bpf_of(s);
    if (reported == NULL || b == NULL || b->net == NULL || n->limit[NETWORK_EGRESS_BYTES] == 0)
        return reported;
    *out = *reported;
    uint64_t sent = b->net[s->slot].out_bytes;
    out->out_bytes = sent > out->out_bytes ? sent : out->out_bytes;
    return out;
}

static int
open_in_relay(struct sandbox *s, int fds[SPAWN_FDS_MAX], const struct network *n, struct err *e)
{
    struct relay_link *relay = relay_of(s);
    if (relay != NULL) {
        struct relay_policy p = to_relay(n);
        struct relay_counted counted;
        p.simulation = s->simulation;
        p.counted = net_counted_of(net_count(sandboxes_server(s->all)->net), s->slot, s->generation,
                                   &p.rule_bytes);
        p.counted = counted_at_least(s, n, p.counted, &counted);
        if (s->simulation ==
            NULL) // otherwise nothing leaves, and the relay counts what it pretends
            witnesses_open(net_witnesses(sandboxes_server(s->all)->net), s->slot, s->generation);
        return relay_open(relay, s->slot, s->generation, fds, &p, e);
    }
    spawn_close_fds(fds);
    return err_set(e, ERR_UNAVAILABLE, "the relay is being restarted");
}

static void
on_opened(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    struct network *n = s->net.wanted;
    struct err e = reply->err;
    s->net.wanted = NULL;
    int r = reply->ok != 0 ? 0 : err_errno(&e);
    if (r == 0 && s->state == SANDBOX_DELETING)
        r = err_set(&e, ERR_CANCELLED, "its sandbox is being deleted");
    if (r == 0)
        r = open_in_relay(s, fds, n, &e);
    else
        spawn_close_fds(fds);
    if (r == 0)
        r = put_in_force(s, n, &e);
    network_unref(n);
    sandbox_network_done(s, r < 0 ? &e : NULL);
    sandbox_let_go(s);
}

static int
open_listeners(struct sandbox *s, struct network *n, struct err *e)
{
    struct server *srv = sandboxes_server(s->all);
    if (relay_of(s) == NULL)
        return err_set(e, ERR_UNAVAILABLE, "the relay is being restarted");
    int r = spawn_net_open(srv->spawn, s->slot, s->generation, on_opened, s, e);
    if (r < 0)
        return r;
    s->net.wanted = network_ref(n);
    sandbox_hold(s);
    return 0;
}

static int
enforce(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e)
{
    struct server *srv = sandboxes_server(s->all);
    struct relay_link *relay = relay_of(s);
    bool needs_relay = srv->net != NULL && net_enforced(srv) && network_leads_out(n);
    bool open = relay != NULL && relay_is_open(relay, s->slot, s->generation);
    int r = needs_relay ? net_sets_take(net_rules(srv->net), n, e) : 0;
    if (r < 0)
        return r;
    if (s->net.wanted != NULL) { // the listeners are being opened: then use this policy instead
        network_unref(s->net.wanted);
        s->net.wanted = network_ref(n);
    } else if (open || !needs_relay) {
        r = change(s, n, open ? relay : NULL, e);
        if (r < 0 || !open)
            return r < 0 ? r : 1;
        s->net.under_way = true;
    } else {
        r = open_listeners(s, n, e);
        if (r < 0)
            return err_wrap(e, "open the network");
    }
    sandbox_network_wait(s, w);
    return 0;
}

static void
confirmed(struct sandbox *s)
{
    bool waited = s->net.under_way;
    s->net.under_way = false;
    if (waited && s->net.wanted == NULL)
        sandbox_network_done(s, NULL);
}

static bool
close_network(struct sandbox *s, void (*done)(void *cookie), void *cookie)
{
    struct relay_link *relay = relay_of(s);
    struct err e;
    return relay != NULL && relay_is_open(relay, s->slot, s->generation) &&
           relay_close(relay, s->slot, s->generation, done, cookie, &e) == 0;
}

static bool
settle(struct sandbox *s, struct sandbox_settler *w)
{
    const struct net *net = sandboxes_server(s->all)->net;
    return net != NULL && witnesses_ask(net_witnesses(net), relay_of(s), s->slot, s->generation, w);
}

void
enforce_spent(struct sandbox *s)
{
    struct relay_link *relay = relay_of(s);
    if (relay != NULL)
        relay_spent(relay, s->slot, s->generation);
}

static void
again(struct sandbox *s)
{
    struct err e;
    if (s->state == SANDBOX_DELETING || s->net.wanted != NULL || s->net.in_force == NULL ||
        !network_leads_out(s->net.in_force))
        return;
    if (open_listeners(s, s->net.in_force, &e) < 0) {
        (void)err_wrap(&e, "sandbox %s", s->id.id);
        metrics_add(METRIC_NETWORK_LOST, 1);
        log_err(LOG_WARNING, "network", &e);
    }
}

const struct sandbox_networks enforce_networks = {
    .born = born,
    .limit = limit,
    .change = enforce,
    .close = close_network,
    .settle = settle,
    .forget = forget,
};

const struct net_events enforce_events = {.again = again, .confirmed = confirmed};
