// SPDX-License-Identifier: Apache-2.0
// See peer.h.
#include "tests/harness/peer.h"

void
peer_write(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done <= 0)
            return;
        p += done;
        n -= (size_t)done;
    }
}

static bool
peer_read(int fd, void *bytes, size_t n)
{
    char *p = bytes;
    while (n > 0) {
        ssize_t done = recv(fd, p, n, 0);
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

void
peer_send(int fd, uint32_t id, const Stockade__V1__Frame *f)
{
    size_t n = 0;
    uint8_t *bytes = wire_pack_frame(true, id, &f->base, &n);
    assert_non_null(bytes);
    peer_write(fd, bytes, n);
    free(bytes);
}

void
peer_say(int fd, uint32_t id, int kind, const void *payload, size_t n)
{
    static uint8_t copy[WIRE_FRAME_BYTES_MAX];
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = (Stockade__V1__FrameKind)kind;
    if (n > 0)
        memcpy(copy, payload, n);
    f.payload.data = copy;
    f.payload.len = n;
    peer_send(fd, id, &f);
}

bool
peer_frame(struct peer *p, int fd)
{
    uint8_t header[9];
    uint64_t n = 0;
    if (!peer_read(fd, header, sizeof header) || sp_header_read(header, 9, true, &n) != 1)
        return false;
    uint8_t *body = malloc(n);
    struct arena *a = arena_new(WIRE_ARENA_BYTES_MAX);
    ProtobufCMessage *m = NULL;
    struct err e;
    bool ok = peer_read(fd, body, n) &&
              wire_unpack(&stockade__v1__frame__descriptor, body + 4, n - 4, a, &m, &e) == 0;
    if (ok) {
        const Stockade__V1__Frame *f = (const Stockade__V1__Frame *)m;
        p->id =
            (uint32_t)body[0] << 24 | (uint32_t)body[1] << 16 | (uint32_t)body[2] << 8 | body[3];
        p->credit = f->credit;
        p->kind = (int)f->kind;
        for (size_t i = 0; i < f->n_metadata; i++)
            if (strcmp(f->metadata[i]->key, "idempotency-key") == 0)
                (void)snprintf(p->key, sizeof p->key, "%s", f->metadata[i]->value);
    }
    free(body);
    arena_free(a);
    return ok;
}

void
peer_hello(int fd)
{
    uint8_t hello[SP_HELLO_BYTES];
    sp_hello(hello, SP_PROTO_REP);
    peer_write(fd, hello, sizeof hello);
    (void)peer_read(fd, hello, sizeof hello);
}

static void *
peer_main(void *cookie)
{
    struct peer *p = cookie;
    for (int i = 0; i < p->connections; i++) {
        int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        p->script(p, fd);
        (void)close(fd);
        (void)sem_post(&p->closed);
    }
    return NULL;
}

void
peer_start(struct peer *p, script *s, int connections)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    *p = (struct peer){.script = s, .connections = connections, .folder = "/tmp/stockade-XXXXXX"};
    assert_int_equal(sem_init(&p->closed, 0, 0), 0);
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->path, sizeof p->path, "%s/s", p->folder);
    (void)snprintf(p->address, sizeof p->address, "ipc://%s", p->path);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

void
peer_stop(struct peer *p)
{
    (void)shutdown(p->listener, SHUT_RDWR);
    (void)close(p->listener);
    (void)pthread_join(p->thread, NULL);
    (void)sem_destroy(&p->closed);
    (void)unlink(p->path);
    (void)rmdir(p->folder);
}

static struct stockade *
open_handle_within(const struct peer *p, uint32_t connect_timeout_ms)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    o.address = p->address;
    o.connect_timeout_ms = connect_timeout_ms;
    assert_int_equal(stockade_open(&s, &o, NULL), 0);
    return s;
}

struct stockade *
open_handle(const struct peer *p)
{
    return open_handle_within(p, 30000);
}

int
ask(struct stockade *s, uint32_t deadline_ms, const struct stockade_bytes **out,
    struct stockade_error *e)
{
    struct stockade_call_options o = STOCKADE_CALL_OPTIONS_INIT;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    o.deadline_ms = deadline_ms;
    r.method = METHOD;
    r.body = (struct stockade_bytes){"hi", 2};
    r.call = &o;
    return stockade_call(s, &r, out, e);
}

struct stockade_error
fails_within(script *fn, uint32_t connect_timeout_ms, uint32_t deadline_ms)
{
    struct peer p;
    struct stockade_error e = {0};
    const struct stockade_bytes *out = NULL;
    peer_start(&p, fn, 1);
    struct stockade *s = open_handle_within(&p, connect_timeout_ms);
    assert_true(ask(s, deadline_ms, &out, &e) < 0);
    assert_null(out);
    assert_true(e.text[0] != '\0');
    stockade_close(s);
    peer_stop(&p);
    return e;
}

struct stockade_error
fails(script *fn, uint32_t deadline_ms)
{
    return fails_within(fn, 30000, deadline_ms);
}

void
script_silent(struct peer *p, int fd)
{
    (void)p;
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, 5000);
}
