// SPDX-License-Identifier: Apache-2.0
// Only RPC: BYTES in each direction over the broker's wire, with one or many calls in flight on one connection.
//
//   rpc_echo SOCKET METHOD BYTES IN_FLIGHT COUNT
//
// METHOD has a request and a response whose field 1 is `bytes`. Uses a plain blocking socket, like the native
// clients. SOCKET is a path, or tls+tcp://127.0.0.1:PORT, with FOLDER/ca.pem, client.pem and client.key of STOCKADE_BENCH_TLS.
// IN_FLIGHT 0: each call has a connection of its own, which is part of its time.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
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
    const char *address;
    SSL_CTX *tls; // NULL: a unix socket
    SSL *ssl;
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

static SSL_CTX *
context(void)
{
    const char *folder = getenv("STOCKADE_BENCH_TLS");
    char ca[256], certificate[256], key[256];
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    (void)snprintf(ca, sizeof ca, "%s/ca.pem", folder != NULL ? folder : ".");
    (void)snprintf(certificate, sizeof certificate, "%s/client.pem", folder != NULL ? folder : ".");
    (void)snprintf(key, sizeof key, "%s/client.key", folder != NULL ? folder : ".");
    if (tls == NULL || SSL_CTX_load_verify_locations(tls, ca, NULL) != 1 ||
        SSL_CTX_use_certificate_file(tls, certificate, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
        bench_die("STOCKADE_BENCH_TLS needs ca.pem, client.pem and client.key");
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    return tls;
}

static bool
put(struct echo *c, const uint8_t *bytes, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t more = c->ssl != NULL ? SSL_write(c->ssl, bytes + sent, (int)(n - sent))
                                      : write(c->fd, bytes + sent, n - sent);
        if (more <= 0)
            return false;
        sent += (size_t)more;
    }
    return true;
}

static ssize_t
get(struct echo *c, uint8_t *to, size_t room)
{
    return c->ssl != NULL ? SSL_read(c->ssl, to, (int)room) : read(c->fd, to, room);
}

static bool
dial_unix(struct echo *c)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", c->address);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return c->fd >= 0 && connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0;
}

static bool
dial_tls(struct echo *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    to.sin_port = htons((uint16_t)strtoul(strrchr(c->address, ':') + 1, NULL, 10));
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->ssl = SSL_new(c->tls);
    return c->fd >= 0 && c->ssl != NULL &&
           setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
           connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0 &&
           SSL_set_fd(c->ssl, c->fd) == 1 && SSL_set1_host(c->ssl, "localhost") == 1 &&
           SSL_connect(c->ssl) == 1;
}

static void
dial(struct echo *c)
{
    uint8_t mine[SP_HELLO_BYTES], theirs[SP_HELLO_BYTES];
    sp_hello(mine, SP_PROTO_REQ);
    if (!(c->tls != NULL ? dial_tls(c) : dial_unix(c)) || !put(c, mine, sizeof mine) ||
        get(c, theirs, sizeof theirs) != (ssize_t)sizeof theirs ||
        !sp_hello_is(theirs, SP_PROTO_REP))
        bench_die("connect %s: %s", c->address, strerror(errno));
}

static void
hang_up(struct echo *c)
{
    SSL_free(c->ssl);
    c->ssl = NULL;
    (void)close(c->fd);
    c->fd = -1;
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
    uint8_t *packet =
        wire_pack_frame(c->tls == NULL, WIRE_ID_REQUEST | (uint32_t)number, &frame.base, &n);
    if (packet == NULL)
        bench_die("pack");
    c->from[number % CALLS_MAX] = bench_now();
    if (!put(c, packet, n))
        bench_die("write: %s", strerror(errno));
    free(packet);
}

// Reads until at least one whole frame is available, and handles all available frames. Returns the number of ENDs.
static long
take_ends(struct echo *c, long warm)
{
    long ends = 0;
    ssize_t got = get(c, c->in + c->in_n, BUFFER_BYTES - c->in_n);
    const size_t header = sp_header_bytes(c->tls == NULL);
    if (got <= 0)
        bench_die("read: %s", got < 0 ? strerror(errno) : "the broker closed the connection");
    c->in_n += (size_t)got;
    size_t at = 0;
    uint64_t body = 0;
    while (sp_header_read(c->in + at, c->in_n - at, c->tls == NULL, &body) == 1 &&
           c->in_n - at >= header + body) {
        const uint8_t *p = c->in + at + header;
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
        at += header + (size_t)body;
    }
    memmove(c->in, c->in + at, c->in_n - at);
    c->in_n -= at;
    return ends;
}

// One connection, the given number of calls at a time. Returns when the measured part began.
static double
on_one(struct echo *c, long in_flight, long count, long warm)
{
    long sent = 0, done = 0;
    double from = bench_now();
    dial(c);
    while (sent < in_flight)
        send_call(c, sent++);
    while (done < count + warm) {
        long ends = take_ends(c, warm);
        if (done < warm && done + ends >= warm)
            from = bench_now();
        done += ends;
        for (; ends > 0 && sent < count + warm; ends--)
            send_call(c, sent++);
    }
    hang_up(c);
    return from;
}

static double
on_one_each(struct echo *c, long count, long warm)
{
    double from = bench_now();
    for (long i = 0; i < count + warm; i++) {
        double began = bench_now();
        if (i == warm)
            from = began;
        dial(c);
        send_call(c, i);
        (void)take_ends(c, count + warm);
        if (i >= warm)
            samples_add(&c->samples, bench_now() - began);
        hang_up(c);
    }
    return from;
}

int
main(int argc, char **argv)
{
    if (argc < 6)
        bench_die("usage: rpc_echo SOCKET METHOD BYTES IN_FLIGHT COUNT");
    struct echo c = {
        .fd = -1, .address = argv[1], .method = argv[2], .bytes = strtoul(argv[3], NULL, 10)};
    long in_flight = strtol(argv[4], NULL, 10), count = strtol(argv[5], NULL, 10),
         warm = count / 10;
    if (c.bytes > 65536 || in_flight < 0 || in_flight > CALLS_MAX || count < 1)
        bench_die("bytes to 65536, calls in flight 0 to %d", CALLS_MAX);
    c.in = malloc(BUFFER_BYTES);
    c.from = calloc(CALLS_MAX, sizeof *c.from);
    c.arena = arena_new(1 << 20);
    if (c.in == NULL || c.from == NULL || c.arena == NULL)
        bench_die("out of memory");
    if (strncmp(c.address, "tls+tcp://", strlen("tls+tcp://")) == 0)
        c.tls = context();
    c.samples.row =
        c.tls != NULL ? "stockade, native wire over TLS" : "stockade, native wire over unix";
    make_request(&c);
    double from = in_flight > 0 ? on_one(&c, in_flight, count, warm) : on_one_each(&c, count, warm);
    char name[64], more[64];
    const char *over = c.tls != NULL ? ", TLS" : "";
    if (in_flight > 0)
        (void)snprintf(name, sizeof name, "echo %zu B%s, %ld in flight", c.bytes, over, in_flight);
    else
        (void)snprintf(name, sizeof name, "connect and echo %zu B%s", c.bytes, over);
    (void)snprintf(more, sizeof more, ", \"per_second\": %.0f",
                   (double)count / ((bench_now() - from) / 1e6));
    samples_print(&c.samples, name, more);
    SSL_CTX_free(c.tls);
    arena_free(c.arena);
    free(c.request);
    free(c.from);
    free(c.in);
    return 0;
}
