// SPDX-License-Identifier: Apache-2.0
// stockade-relay: the only way out of a sandbox (see relay.h). The spawner starts it as an unprivileged user of its
// own, with three descriptors. It parses data from jobs and name servers, so it holds nothing of value to an
// attacker.
//
//   verify rights -> CONFIGURE (name servers) -> tables, loop, c-ares -> drop rights -> READY -> orders, flows
//
//   orders.c -> sandboxes.c -> tcp.c, tcp_copy.c   accept, dial, copy          permit.c   the policy's verdict
//                           -> udp.c               associations                address.c  own addresses
//                           -> dns.c, dns_stream.c answers, by dns_message.c   names.c    synthetic addresses
//                                  resolve.c       c-ares                      report.c   to the broker
//
// One thread. The sizes of all tables are fixed at start. Only policies are allocated, once per order, and the data
// of c-ares for at most RESOLVE_MAX lookups. When the broker closes its end of the socket, the process exits.
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proto/leak.h"
#include "confine.h"
#include "dns.h"
#include "names.h"
#include "orders.h"
#include "report.h"
#include "resolve.h"
#include "sandboxes.h"
#include "tcp.h"
#include "udp.h"

enum { FILES_OWN = 256, FILES_PER_FLOW = 4, FLOWS_MIN = 64, TURNS_MAX = 1000 };

static struct relay relay;

static _Noreturn void
die(const char *what)
{
    (void)dprintf(STDERR_FILENO, "stockade-relay: %s\n", what);
    _exit(1);
}

static void
on_orders(uv_poll_t *uv, int status, int events)
{
    struct relay *r = uv->data;
    (void)events;
    r->now_ms = clock_ms();
    if (status < 0 || !orders_read(r))
        uv_stop(&r->loop);
}

// The broker closed the socket or broke the protocol: ends everything in the reverse order of the start. Does not
// wait for peers; flows are reset.
static void
end(struct relay *r)
{
    (void)watch_close(&r->orders, NULL);
    sandboxes_end(r);
    resolve_end();
    for (int i = 0; i < TURNS_MAX && uv_run(&r->loop, UV_RUN_NOWAIT) != 0; i++)
        ;
    sandboxes_free(r);
    (void)uv_loop_close(&r->loop);
}

// Under the relay's filter LeakSanitizer cannot trace this process, so the allocated bytes are compared.
static _Noreturn void
judge(size_t before)
{
    const size_t now = leak_allocated();
    if (now <= before)
        _exit(0);
    (void)dprintf(STDERR_FILENO, "stockade-relay: leak: %zu bytes are still allocated\n",
                  now - before);
    _exit(1);
}

static bool
make_tables(struct relay *r, uint64_t files)
{
    uint64_t flows = files > FILES_OWN ? (files - FILES_OWN) / FILES_PER_FLOW : 0;
    r->flows_max = flows < FLOWS_MIN ? FLOWS_MIN : flows > FLOWS_MAX ? FLOWS_MAX : (uint32_t)flows;
    // A flow needs two descriptors, an association one, and a fourth is for listeners and streams.
    r->associations_max = r->flows_max < ASSOCIATIONS_MAX ? r->flows_max : ASSOCIATIONS_MAX;
    udp_init();
    dns_init();
    dns_stream_init();
    return tcp_init(r->flows_max) && names_init();
}

int
main(void)
{
    static struct relay_order first;
    struct err e;
    uint64_t files = 0;
    const size_t allocated = leak_allocated();
    // executed by descriptor, its name would be a number
    (void)prctl(PR_SET_NAME, "stockade-relay");
    relay.names_fd = RELAY_NAMES_FD;
    relay.flows_fd = RELAY_FLOWS_FD;
    relay.now_ms = clock_ms();
    if (confine_check(&e) < 0 || confine_begin(&files, &e) < 0)
        die(e.text);
    if (!orders_first(RELAY_SOCKET_FD, &first))
        die("the first order is not the configuration");
    if (uv_loop_init(&relay.loop) < 0 || !make_tables(&relay, files))
        die("no memory");
    if (!resolve_init(&relay, &first))
        die("the resolver does not start");
    sandboxes_init(&relay);
    watch_open(&relay, &relay.orders, RELAY_SOCKET_FD, UV_READABLE, on_orders, &relay);
    if (confine_finish(&e) < 0)
        die(e.text);
    report_ready();
    (void)uv_run(&relay.loop, UV_RUN_DEFAULT);
    end(&relay);
    judge(allocated);
}
