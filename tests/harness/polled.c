// SPDX-License-Identifier: Apache-2.0
// See polled.h.
#include "tests/harness/polled.h"

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct program *p = cookie;
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, "data", 4);
    return ++p->messages == 1 && p->on_first != NULL ? p->on_first(p) : 0;
}

void
program_on_end(void *cookie, const struct stockade_end *end)
{
    struct program *p = cookie;
    assert_true(end->call != 0);
    p->ended++;
    p->ok = end->error == NULL;
    if (!p->ok)
        p->error = *end->error;
    p->response_n = end->response.n;
    if (end->response.n > 0 && end->response.n <= sizeof p->response)
        memcpy(p->response, end->response.bytes, end->response.n);
}

int
program_begin(struct program *p, bool stream, uint32_t deadline_ms, uint32_t credit,
              struct stockade_bytes body, struct stockade_error *e)
{
    struct stockade_call_options o = STOCKADE_CALL_OPTIONS_INIT;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    o.deadline_ms = deadline_ms;
    r.method = METHOD;
    r.body = body;
    r.call = &o;
    r.cookie = p;
    r.on_message = stream ? on_message : NULL;
    a.on_end = program_on_end;
    a.cookie = p;
    a.credit = credit;
    return stockade_begin(p->s, &r, &a, &p->call, e);
}

void
program_begin_stream(struct program *p, uint32_t credit)
{
    assert_int_equal(program_begin(p, true, 0, credit, (struct stockade_bytes){"hi", 2}, NULL), 0);
}

// Sleeps in poll(2) only; the descriptor alone says when there is something to do.
void
program_loop_until_ended(struct program *p, int ended)
{
    struct pollfd fd = {.fd = stockade_fd(p->s, NULL), .events = POLLIN};
    assert_true(fd.fd >= 0);
    while (p->ended < ended) {
        assert_int_equal(poll(&fd, 1, 30000), 1);
        assert_true(stockade_pump(p->s, 0, NULL) >= 0);
    }
}

void
program_start(struct program *p, struct peer *peer, script *fn, int connections)
{
    *p = (struct program){0};
    peer_start(peer, fn, connections);
    p->s = open_handle(peer);
}

void
program_stop(struct program *p, struct peer *peer)
{
    stockade_close(p->s);
    peer_stop(peer);
}

void
script_one_message(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    script_silent(p, fd);
}
