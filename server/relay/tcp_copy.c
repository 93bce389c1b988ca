// SPDX-License-Identifier: Apache-2.0
// Moves the bytes of a flow: peeks at one socket, writes to the other, and removes from the first what the second
// accepted. See tcp.h.
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rate.h"
#include "sandbox.h"
#include "tcp.h"

enum outcome { MOVED, WAIT_READ, WAIT_WRITE, ENDED, BROKEN, OVER_QUOTA };

// The bytes that one direction of a flow moves per turn: its share of the sandbox's.
static size_t
share(const struct sandbox *s)
{
    size_t each = TURN_BYTES / (s->flows_n > 0 ? s->flows_n : 1);
    return each > TURN_BYTES_MIN ? each : TURN_BYTES_MIN;
}

// The part of it that the rate allows now. While flows wait for the rate, only the flow whose turn it is gets any.
static size_t
turn_of(const struct sandbox *s, struct rate *rate, size_t turn)
{
    if (rate->per_second == 0)
        return turn;
    size_t left = list_empty(&s->waiting) || s->serving ? rate_left(rate, clock_ns()) : 0;
    return left < turn ? left : turn;
}

// One round of one direction: from -> to, at most `left` bytes.
static enum outcome
move(const struct flow *f, const struct watch *from, const struct watch *to, uint64_t left,
     size_t *moved)
{
    uint8_t *scratch = f->sandbox->relay->scratch;
    size_t most = left < SCRATCH_BYTES ? (size_t)left : SCRATCH_BYTES;
    // If nothing is left, one byte is peeked at: it either exceeds the quota, or there is none and it is the end of
    // file.
    ssize_t n = recv(from->fd, scratch, most > 0 ? most : 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? WAIT_READ : BROKEN;
    if (n == 0)
        return shutdown(to->fd, SHUT_WR) == 0 ? ENDED : BROKEN;
    if (most == 0)
        return OVER_QUOTA;
    ssize_t sent = send(to->fd, scratch, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? WAIT_WRITE : BROKEN;
    *moved = (size_t)sent;
    if (recv(from->fd, scratch, (size_t)sent, MSG_TRUNC | MSG_DONTWAIT) != sent)
        return BROKEN;
    return sent < n ? WAIT_WRITE : MOVED;
}

// Moves one direction for a few rounds. False: the flow has ended.
static bool
move_lane(struct flow *f, bool out)
{
    struct lane *lane = out ? &f->out : &f->in;
    const struct watch *from = out ? &f->job : &f->peer;
    const struct watch *to = out ? &f->peer : &f->job;
    enum outcome outcome = MOVED;
    struct sandbox *s = f->sandbox;
    struct rate *rate = out ? &s->rate_out : &s->rate_in;
    size_t turn = share(s);
    lane->blocked = lane->held = false;
    while (turn > 0 && outcome == MOVED && !lane->ended) {
        size_t n = 0;
        uint64_t left = sandbox_left(s, out, f->rule);
        size_t most = turn_of(s, rate, turn);
        if (most == 0) {
            lane->held = true;
            break;
        }
        outcome = move(f, from, to, left < most ? left : most, &n);
        rate_take(rate, n);
        turn -= n;
        lane->bytes += n;
        if (n > 0)
            sandbox_count(s, out, IPPROTO_TCP, f->rule, n);
    }
    lane->blocked = outcome == WAIT_WRITE;
    lane->ended = lane->ended || outcome == ENDED;
    if (outcome == BROKEN)
        tcp_end(f, true, NET_REASON_NONE);
    else if (outcome == OVER_QUOTA)
        tcp_over_quota(f, out);
    return outcome != BROKEN && outcome != OVER_QUOTA;
}

void
tcp_copy(struct flow *f)
{
    if (!move_lane(f, true) || !move_lane(f, false))
        return;
    if (f->out.ended && f->in.ended) {
        tcp_end(f, false, NET_REASON_NONE);
        return;
    }
    if (f->out.held || f->in.held)
        rate_wait(f->sandbox, &f->waits);
    bool out = !f->out.ended && !f->out.blocked && !f->out.held;
    bool in = !f->in.ended && !f->in.blocked && !f->in.held;
    int job = (out ? UV_READABLE : 0) | (f->in.blocked ? UV_WRITABLE : 0);
    int peer = (in ? UV_READABLE : 0) | (f->out.blocked ? UV_WRITABLE : 0);
    watch_want(&f->job, job, tcp_on_ready);
    watch_want(&f->peer, peer, tcp_on_ready);
}

void
tcp_turn(struct list *waits)
{
    tcp_copy(list_entry(waits, struct flow, waits));
}
