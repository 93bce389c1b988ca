// SPDX-License-Identifier: Apache-2.0
// TCP flows of simulated sandboxes: there is no peer, so what the job sends is read and counted. See sham.h and tcp.h.
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "sandbox.h"
#include "tcp.h"

void
tcp_sham_begin(struct flow *f)
{
    const struct sandbox *s = f->sandbox;
    tcp_set_open(f);
    memcpy(f->address, f->asked.address, sizeof f->address);
    sham_begin(f->sandbox, &f->sham, f->name != NULL ? f->name->text : NULL, f->asked.address,
               f->asked.port, IPPROTO_TCP);
    f->dial_until_ms = s->relay->now_ms + TCP_SHAM_FIRST_MS;
    f->attempt_until_ms = s->relay->now_ms + TCP_SHAM_MOST_MS;
    watch_want(&f->job, UV_READABLE, tcp_on_ready);
}

static void
wait_for_more(struct flow *f, uint64_t ms)
{
    const uint64_t until = f->sandbox->relay->now_ms + ms;
    f->dial_until_ms = until < f->attempt_until_ms ? until : f->attempt_until_ms;
}

// Reads what is there, within the quota. False: the flow has ended.
static bool
read_all(struct flow *f)
{
    struct sandbox *s = f->sandbox;
    uint8_t *scratch = s->relay->scratch;
    for (size_t turn = TURN_BYTES; turn > 0 && !f->out.ended;) {
        const uint64_t left = sandbox_left(s, true, f->rule);
        const size_t most = left < SCRATCH_BYTES ? (size_t)left : SCRATCH_BYTES;
        const ssize_t n =
            recv(f->job.fd, scratch, most > 0 ? most : 1, MSG_DONTWAIT | (most > 0 ? 0 : MSG_PEEK));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n < 0 || (n > 0 && most == 0)) {
            tcp_end(f, true, n < 0 ? NET_REASON_NONE : sandbox_quota_reason(s, true));
            return false;
        }
        f->out.ended = n == 0;
        f->out.bytes += (uint64_t)n;
        sandbox_count(s, true, IPPROTO_TCP, f->rule, (uint64_t)n);
        sham_keep(&f->sham, scratch, (size_t)n);
        wait_for_more(f, f->sham.replied ? TCP_SHAM_AFTER_MS : TCP_SHAM_QUIET_MS);
        turn -= (size_t)n < turn ? (size_t)n : turn;
    }
    return true;
}

// False: the flow has ended.
static bool
send_reply(struct flow *f)
{
    struct sandbox *s = f->sandbox;
    const struct relay_reply *reply = f->sham.reply;
    const bool fits = sandbox_left(s, false, f->rule) >= reply->n;
    const ssize_t n =
        fits ? send(f->job.fd, reply->bytes, reply->n, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    if (n > 0) {
        f->in.bytes += (uint64_t)n;
        sandbox_count(s, false, IPPROTO_TCP, f->rule, (uint64_t)n);
    }
    f->sham.replied = true;
    wait_for_more(f, TCP_SHAM_AFTER_MS);
    if (n == (ssize_t)reply->n && shutdown(f->job.fd, SHUT_WR) == 0)
        return true;
    tcp_end(f, true, fits ? NET_REASON_NONE : sandbox_quota_reason(s, false));
    return false;
}

void
tcp_sham_ready(struct flow *f, int status)
{
    if (status < 0) {
        tcp_end(f, true, NET_REASON_NONE);
        return;
    }
    if (!read_all(f))
        return;
    const bool came = f->out.bytes > 0 || f->out.ended;
    if (f->sham.reply != NULL && !f->sham.replied && came && !send_reply(f))
        return;
    if (f->out.ended)
        tcp_end(f, !f->sham.replied, NET_REASON_NONE);
    else
        watch_want(&f->job, UV_READABLE, tcp_on_ready);
}

void
tcp_sham_tick(struct sandbox *s)
{
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        if (!f->sham.on || s->relay->now_ms < f->dial_until_ms)
            continue;
        if (f->sham.reply != NULL && !f->sham.replied)
            (void)send_reply(f);
        else
            tcp_end(f, true, NET_REASON_NONE);
    }
}

// What waits in the sockets was sent by the job before its end.
void
tcp_sham_last(struct sandbox *s)
{
    for (int i = LISTENER_TCP4; i <= LISTENER_TCP6; i += LISTENER_TCP6 - LISTENER_TCP4)
        if (s->listeners[i].sandbox != NULL && s->listeners[i].watch.live)
            tcp_on_listener(&s->listeners[i].watch.uv, 0, UV_READABLE);
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        if (f->sham.on)
            (void)read_all(f);
    }
}
