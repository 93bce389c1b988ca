// SPDX-License-Identifier: Apache-2.0
// See net.h.
#include "net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "server/sandbox/bpf.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "counted.h"
#include "named.h"
#include "own.h"
#include "witness.h"
#include "server/policy/rule.h"
#include "sets.h"
#include "relay_link.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/simulation.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"

enum { AGAIN_MIN_MS = 100, AGAIN_MAX_MS = 5000, DEATH_MS = 500, STEADY_NS = 1000000000 };

struct net {
    struct server *srv;
    const struct network_settings *settings;
    const struct net_events *events;
    struct net_sets *sets;
    struct net_counted *counted;
    struct net_own *own;
    struct net_named *named;
    struct witnesses *witnesses;
    struct relay_rule server[RELAY_SERVERS]; // name servers, which the relay may always reach
    uint32_t servers_n;
    // runs until the next start of a relay; or, after a start was requested, until a killed relay that does not end
    // is given up
    struct loop_timer *again;
    uint64_t started_ns;
    uint64_t again_ms; // the delay before the next start
    bool asked;        // a start was requested from the spawner
};

static void start_again(void *cookie);
static void on_relay(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX]);

static void
simulated(const struct net *n, const struct relay_report *r)
{
    list_each(it, sandboxes_owned(n->srv->sandboxes))
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->slot == r->slot && s->generation == r->generation && s->simulation != NULL)
            simulation_report(s->simulation, r);
    }
}

static void
on_report(void *cookie, const struct relay_report *r)
{
    struct net *n = cookie;
    if (r->kind == RELAY_SENT || (r->kind == RELAY_SUMS && r->sent > 0))
        simulated(n, r);
    if (r->kind == RELAY_SENT)
        return;
    net_counted_report(n->counted, r);
    if (r->kind != RELAY_SETTLED)
        witnesses_report(n->witnesses, n->srv->relay, r);
    if (n->srv->on_relay_report != NULL)
        n->srv->on_relay_report(n->srv->relay_report_cookie, r);
    if (r->kind == RELAY_SETTLED) // last: it ends jobs
        witnesses_report(n->witnesses, n->srv->relay, r);
}

static void
on_in_force(void *cookie, uint32_t slot, uint32_t generation)
{
    struct net *n = cookie;
    list_each(it, sandboxes_owned(n->srv->sandboxes))
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->slot == slot && s->generation == generation) {
            n->events->confirmed(s);
            return;
        }
    }
}

// All connections to outside ended with the relay. Policies stay in force: until a new relay runs, nothing can leave.
static void
on_gone(void *cookie, const struct err *why)
{
    struct net *n = cookie;
    log_err(LOG_ERROR, "relay-gone", why);
    list_each(it, sandboxes_owned(n->srv->sandboxes))
    {
        const struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->simulation != NULL)
            s->simulation->lost = true;
    }
    metrics_add(METRIC_RELAY_ENDS, 1);
    relay_link_free(take_ptr(n->srv->relay));
    net_counted_relay_gone(n->counted);
    witnesses_relay_gone(n->witnesses);
    if (n->asked) { // it was killed, and the next one is being started
        loop_timer_stop(&n->again);
        return;
    }
    bool steady = uv_hrtime() - n->started_ns > STEADY_NS;
    n->again_ms = steady || n->again_ms == 0 ? AGAIN_MIN_MS : n->again_ms * 2;
    if (n->again_ms > AGAIN_MAX_MS)
        n->again_ms = AGAIN_MAX_MS;
    (void)loop_timer_start(n->srv->loop, &n->again, n->again_ms, start_again, n);
}

// A killed process that hangs in a system call does nothing more, but its sockets stay open.
static void
give_up(void *cookie)
{
    struct net *n = cookie;
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "it did not respond and was killed");
    if (n->srv->relay != NULL)
        relay_link_end(n->srv->relay, &why);
}

// The spawner kills the relay and starts a new one. The end of the old one closes its socket, which ends the link. So
// callers that wait for the relay are called only when nothing of theirs can leave through it any more.
static void
on_silent(void *cookie)
{
    struct net *n = cookie;
    struct err e;
    (void)err_set(&e, ERR_UNAVAILABLE, "the relay does not respond and is killed");
    log_err(LOG_ERROR, "relay-silent", &e);
    metrics_add(METRIC_RELAY_SILENT, 1);
    if (n->asked)
        return;
    if (spawn_relay(n->srv->spawn, on_relay, n, &e) < 0) {
        log_err(LOG_ERROR, "relay", &e);
        relay_link_end(n->srv->relay, &e); // on_gone() tries again
        return;
    }
    n->asked = true;
    (void)loop_timer_start(n->srv->loop, &n->again, DEATH_MS, give_up, n);
}

static void
add_server(struct relay_rule rules[RELAY_SERVERS], uint32_t *n, const uint8_t address[16],
           uint16_t port)
{
    if (*n == RELAY_SERVERS)
        return;
    struct relay_rule *r = &rules[(*n)++];
    *r = (struct relay_rule){.kind = RELAY_PREFIX, .prefix = 128, .ports_n = 1};
    memcpy(r->address, address, sizeof r->address);
    r->ports[0] = (struct net_ports){.first = port, .last = port};
}

// "nameserver ADDRESS" of resolv.conf(5), in the way the relay's resolver reads it. Without any, that resolver uses
// 127.0.0.1.
static void
read_resolv_conf(struct relay_rule rules[RELAY_SERVERS], uint32_t *n)
{
    char line[256];
    char word[64];
    FILE *f = fopen("/etc/resolv.conf", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        struct relay_rule r = {0};
        const char *what = "";
        if (sscanf(line, " nameserver %63s", word) == 1 && strchr(word, '/') == NULL &&
            net_rule_cidr(word, &r, &what) && r.kind == RELAY_PREFIX)
            add_server(rules, n, r.address, NET_DNS_PORT);
    }
    if (f != NULL)
        (void)fclose(f);
    if (*n == 0) {
        static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
        add_server(rules, n, loopback, NET_DNS_PORT);
    }
}

// Name servers often have private addresses. The configuration permits them, so no rule has to name them.
static int
name_servers(struct net *n, struct err *e)
{
    const struct relay_servers *dns = &n->settings->dns;
    struct relay_rule now[RELAY_SERVERS];
    uint32_t now_n = 0;
    for (uint32_t i = 0; i < dns->n; i++)
        add_server(now, &now_n, dns->server[i].address, dns->server[i].port);
    if (dns->n == 0)
        read_resolv_conf(now, &now_n);
    int r = net_named_add(n->named, now, now_n, e);
    if (r < 0)
        return r;
    net_named_drop(n->named, n->server, n->servers_n);
    memcpy(n->server, now, now_n * sizeof now[0]);
    n->servers_n = now_n;
    return 0;
}

static int
attach(struct net *n, int fd, struct err *e)
{
    static const struct relay_events events = {
        .report = on_report, .in_force = on_in_force, .silent = on_silent, .gone = on_gone};
    n->srv->relay = relay_link_new(n->srv->loop, fd, &events, n, e);
    if (n->srv->relay == NULL)
        return err_errno(e);
    metrics_add(METRIC_RELAY_STARTS, 1);
    n->started_ns = uv_hrtime();
    int r = name_servers(n, e);
    if (r == 0)
        r = relay_configure(n->srv->relay, &n->settings->dns, e);
    if (r < 0) // otherwise the link would not end, and no other relay is started while it exists
        relay_link_free(take_ptr(n->srv->relay));
    return r;
}

static void
later(struct net *n, const struct err *why)
{
    log_err(LOG_ERROR, "relay", why);
    (void)loop_timer_start(n->srv->loop, &n->again, AGAIN_MAX_MS, start_again, n);
}

static void
on_relay(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct net *n = cookie;
    struct err e = reply->err;
    if (n->srv->relay != NULL) // the end of the old relay has not been read yet
        give_up(n);
    n->asked = false;
    if (reply->ok == 0 || attach(n, fds[0], &e) < 0) {
        if (e.code != ERR_UNAVAILABLE) // UNAVAILABLE: the spawner has gone, and with it everything
            later(n, &e);
        return;
    }
    log_event(LOG_INFO, "relay", "restarted");
    list_each(it, sandboxes_owned(n->srv->sandboxes))
        n->events->again(list_entry(it, struct sandbox, node));
}

static void
start_again(void *cookie)
{
    struct net *n = cookie;
    struct err e;
    loop_timer_stop(&n->again);
    if (n->asked || n->srv->relay != NULL)
        return;
    if (spawn_relay(n->srv->spawn, on_relay, n, &e) < 0)
        later(n, &e);
    else
        n->asked = true;
}

static void
name_answers(void)
{
    static const char *const names[RELAY_ANSWERS] = {
        [RELAY_ANSWER_FOUND] = "found",
        [RELAY_ANSWER_NONE] = "none",
        [RELAY_ANSWER_REFUSED] = "refused",
        [RELAY_ANSWER_FAILED] = "failed",
    };
    _Static_assert((int)RELAY_ANSWERS <= (int)METRIC_VALUES_ANSWER, "a value for each answer");
    for (uint32_t i = 0; i < RELAY_ANSWERS; i++)
        metrics_name_value(METRIC_BY_ANSWER, i, names[i]);
}

struct net *
net_new(struct server *srv, const struct network_settings *settings,
        const struct net_events *events, struct err *e)
{
    struct net *n = calloc(1, sizeof *n);
    if (n == NULL) {
        (void)err_sys(e, ENOMEM, "keep networks");
        return NULL;
    }
    name_answers();
    n->srv = srv;
    n->settings = settings;
    n->events = events;
    n->sets = net_sets_new(srv->loop, srv->bpf != NULL ? srv->bpf->fd[BPF_FD_RULES] : -1);
    n->counted = net_counted_new(srv->bpf != NULL ? srv->bpf->fd[BPF_FD_NAMES] : -1);
    n->named = net_named_new(srv->bpf != NULL ? srv->bpf->fd[BPF_FD_NAMED] : -1);
    n->witnesses = witnesses_new(srv->bpf != NULL ? srv->bpf->net : NULL);
    if (n->sets == NULL || n->counted == NULL || n->named == NULL || n->witnesses == NULL) {
        (void)err_sys(e, ENOMEM, "keep networks");
        net_free(n);
        return NULL;
    }
    n->own = net_own_new(srv->loop, srv->bpf != NULL ? srv->bpf->fd[BPF_FD_OWN] : -1, e);
    if (n->own == NULL) {
        net_free(n);
        return NULL;
    }
    if (srv->bpf == NULL || srv->bpf->fd[BPF_FD_RELAY] < 0)
        return n;
    if (attach(n, take_fd(&srv->bpf->fd[BPF_FD_RELAY]), e) < 0) {
        net_free(n);
        return NULL;
    }
    return n;
}

void
net_free(struct net *n)
{
    if (n == NULL)
        return;
    loop_timer_stop(&n->again);
    relay_link_free(take_ptr(n->srv->relay));
    net_sets_free(n->sets);
    net_counted_free(n->counted);
    net_own_free(n->own);
    net_named_free(n->named);
    witnesses_free(n->witnesses);
    free(n);
}

bool
net_enforced(const struct server *srv)
{
    const uint32_t need = BPF_HAS_NET | BPF_HAS_RELAY;
    return srv->bpf != NULL && (srv->bpf->has & need) == need;
}

int
net_check(const struct server *srv, const struct network *policy, struct err *e)
{
    if (!network_leads_out(policy) || net_enforced(srv) ||
        (srv->net != NULL && srv->net->settings->unenforced))
        return 0;
    bool programs = srv->bpf != NULL && (srv->bpf->has & BPF_HAS_NET) != 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "network.mode: this broker supports only the modes none and off, because %s",
                    programs ? "the relay is not available" : "the BPF programs are not loaded");
    err_detail(e, "NETWORK_MODE_NOT_ENFORCED", "network.mode",
               "request the mode none; `stockade doctor` shows what is missing");
    return r;
}

struct net_sets *
net_rules(const struct net *n)
{
    return n->sets;
}

struct net_named *
net_names(const struct net *n)
{
    return n->named;
}

struct witnesses *
net_witnesses(const struct net *n)
{
    return n->witnesses;
}

struct net_counted *
net_count(const struct net *n)
{
    return n->counted;
}
