// SPDX-License-Identifier: Apache-2.0
// Only RPC: BYTES in each direction over the broker's wire, with one or many calls in flight on one connection.
//
//   rpc_echo SOCKET METHOD BYTES IN_FLIGHT COUNT
//
// METHOD has a request and a response whose field 1 is `bytes`. Uses a plain blocking socket, like the native
// clients.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/wire.h"
#include "bench.h"
#include "stockade/v1/wire.pb-c.h"

enum { BUFFER_BYTES = 1 << 20, CALLS_MAX = 1 << 12 };

struct echo {
    int fd;
    const char *method;
    size_t bytes;
    uint8_t *request; // a message with field 1
    size_t request_n;
    uint8_t *in;
    size_t in_n;
    double *from; // when call id % CALLS_MAX was sent
    struct arena *arena;
    struct samples samples;
};

static void
dial(struct echo *c, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint8_t mine[SP_HELLO_BYTES], theirs[SP_HELLO_BYTES];
    sp_hello(mine, SP_PROTO_REQ);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        write(c->fd, mine, sizeof mine) != (ssize_t)sizeof mine ||
        recv(c->fd, theirs, sizeof theirs, MSG_WAITALL) != (ssize_t)sizeof theirs ||
        !sp_hello_is(theirs, SP_PROTO_REP))
        bench_die("connect %s: %s", path, strerror(errno));
}

// field 1, wire type 2, length, bytes
static void
make_request(struct echo *c)
{
    c->request = calloc(1, c->bytes + 8);
    if (c->request == NULL)
        bench_die("out of memory");
    size_t n = 0;
    c->request[n++] = 0x0a;
    for (size_t left = c->bytes; left > 0 || n == 1; left >>= 7)
        c->request[n++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    memset(c->request + n, 'x', c->bytes);
    c->request_n = n + c->bytes;
}

static void
send_call(struct echo *c, long number)
{
    Stockade__V1__Frame frame = STOCKADE__V1__FRAME__INIT;
    frame.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    frame.method = c->method;
    frame.payload = (ProtobufCBinaryData){c->request_n, c->request};
    size_t n = 0;
    uint8_t *packet = wire_pack_frame(true, WIRE_ID_REQUEST | (uint32_t)number, &frame.base, &n);
    if (packet == NULL)
        bench_die("pack");
    c->from[number % CALLS_MAX] = bench_now();
    for (size_t sent = 0; sent < n;) {
        ssize_t more = write(c->fd, packet + sent, n - sent);
        if (more < 0)
            bench_die("write: %s", strerror(errno));
        sent += (size_t)more;
    }
    free(packet);
}

// Reads until at least one whole frame is available, and handles all available frames. Returns the number of ENDs.
static long
take_ends(struct echo *c, long warm)
{
    long ends = 0;
    ssize_t got = read(c->fd, c->in + c->in_n, BUFFER_BYTES - c->in_n);
    if (got <= 0)
        bench_die("read: %s", got < 0 ? strerror(errno) : "the broker closed the connection");
    c->in_n += (size_t)got;
    size_t at = 0;
    uint64_t body = 0;
    while (sp_header_read(c->in + at, c->in_n - at, true, &body) == 1 && c->in_n - at >= 9 + body) {
        const uint8_t *p = c->in + at + 9;
        uint32_t id = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        ProtobufCMessage *m = NULL;
        struct err e;
        arena_reset(c->arena);
        if (wire_unpack(&stockade__v1__frame__descriptor, p + 4, (size_t)body - 4, c->arena, &m,
                        &e) < 0)
            bench_die("%s", e.text);
        const Stockade__V1__Frame *frame = (const Stockade__V1__Frame *)(const void *)m;
        if (frame->kind != STOCKADE__V1__FRAME_KIND__FRAME_KIND_END ||
            (frame->status != NULL && frame->status->code != 0) ||
            frame->payload.len != c->request_n)
            bench_die("an answer that is no echo: %s",
                      frame->status != NULL ? frame->status->message : "");
        long number = (long)(id & ~WIRE_ID_REQUEST);
        if (number >= warm)
            samples_add(&c->samples, bench_now() - c->from[number % CALLS_MAX]);
        ends++;
        at += 9 + (size_t)body;
    }
    memmove(c->in, c->in + at, c->in_n - at);
    c->in_n -= at;
    return ends;
}

int
main(int argc, char **argv)
{
    if (argc < 6)
        bench_die("usage: rpc_echo SOCKET METHOD BYTES IN_FLIGHT COUNT");
    struct echo c = {.fd = -1, .method = argv[2], .bytes = strtoul(argv[3], NULL, 10)};
    long in_flight = strtol(argv[4], NULL, 10), count = strtol(argv[5], NULL, 10),
         warm = count / 10;
    if (c.bytes > 65536 || in_flight < 1 || in_flight > CALLS_MAX || count < 1)
        bench_die("bytes to 65536, calls in flight 1 to %d", CALLS_MAX);
    c.in = malloc(BUFFER_BYTES);
    c.from = calloc(CALLS_MAX, sizeof *c.from);
    c.arena = arena_new(1 << 20);
    if (c.in == NULL || c.from == NULL || c.arena == NULL)
        bench_die("out of memory");
    c.samples.row = "stockade, native wire over unix";
    make_request(&c);
    dial(&c, argv[1]);
    long sent = 0, done = 0;
    double from = bench_now();
    while (sent < in_flight)
        send_call(&c, sent++);
    while (done < count + warm) {
        long ends = take_ends(&c, warm);
        if (done < warm && done + ends >= warm)
            from = bench_now();
        done += ends;
        for (; ends > 0 && sent < count + warm; ends--)
            send_call(&c, sent++);
    }
    char name[64], more[64];
    (void)snprintf(name, sizeof name, "echo %zu B, %ld in flight", c.bytes, in_flight);
    (void)snprintf(more, sizeof more, ", \"per_second\": %.0f",
                   (double)count / ((bench_now() - from) / 1e6));
    samples_print(&c.samples, name, more);
    (void)close(c.fd);
    arena_free(c.arena);
    free(c.request);
    free(c.from);
    free(c.in);
    return 0;
}
