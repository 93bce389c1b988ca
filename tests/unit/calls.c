// client/calls.c, link.c and dial.c against a peer that lies, stalls and breaks off; and handles that many threads use.
//
// The peer is hostile on purpose, so it is made here; how the library gets on with the real one is tests/flow's matter.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/stockade.h"
#include "proto/arena.h"
#include "proto/wire.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

#define METHOD "/stockade.test.EchoService/Echo"

// ---- The peer

struct peer;
typedef void script(struct peer *p, int fd);

struct peer {
    char folder[64], path[96], address[112];
    int listener;
    pthread_t thread;
    script *script;
    int connections; // to be accepted, one after the other
    uint32_t id;     // of the last frame that was read
    uint32_t credit; // in it
    char key[64];    // its idempotency key
    int kind;
};

static void
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

static void
peer_send(int fd, uint32_t id, const Stockade__V1__Frame *f)
{
    size_t n = 0;
    uint8_t *bytes = wire_pack_frame(true, id, &f->base, &n);
    assert_non_null(bytes);
    peer_write(fd, bytes, n);
    free(bytes);
}

static void
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

// Reads one frame of the library.
static bool
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

static void
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
    }
    return NULL;
}

static void
peer_start(struct peer *p, script *s, int connections)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    *p = (struct peer){.script = s, .connections = connections, .folder = "/tmp/stockade-XXXXXX"};
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->path, sizeof p->path, "%s/s", p->folder);
    (void)snprintf(p->address, sizeof p->address, "ipc://%s", p->path);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", p->path);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

static void
peer_stop(struct peer *p)
{
    (void)shutdown(p->listener, SHUT_RDWR);
    (void)close(p->listener);
    (void)pthread_join(p->thread, NULL);
    (void)unlink(p->path);
    (void)rmdir(p->folder);
}

static struct stockade *
open_handle(const struct peer *p)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    o.address = p->address;
    o.connect_timeout_ms = 500;
    assert_int_equal(stockade_open(&s, &o, NULL), 0);
    return s;
}

static int
ask(struct stockade *s, uint32_t deadline_ms, const struct stockade_bytes **out,
    struct stockade_error *e)
{
    struct stockade_call_options o = STOCKADE_CALL_OPTIONS_INIT;
    o.deadline_ms = deadline_ms;
    return stockade_call(s, METHOD, (struct stockade_bytes){"hi", 2}, &o, NULL, NULL, out, e);
}

// One unary call against a script: what it failed with.
static struct stockade_error
fails(script *fn, uint32_t deadline_ms)
{
    struct peer p;
    struct stockade_error e = {0};
    const struct stockade_bytes *out = NULL;
    peer_start(&p, fn, 1);
    struct stockade *s = open_handle(&p);
    assert_true(ask(s, deadline_ms, &out, &e) < 0);
    assert_null(out);
    assert_true(e.text[0] != '\0');
    stockade_close(s);
    peer_stop(&p);
    return e;
}

// ---- No broker

static void
script_silent(struct peer *p, int fd)
{
    (void)p;
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, 5000);
}

static void
script_http(struct peer *p, int fd)
{
    (void)p;
    peer_write(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
}

static void
script_other_protocol(struct peer *p, int fd)
{
    uint8_t hello[SP_HELLO_BYTES];
    (void)p;
    sp_hello(hello, SP_PROTO_REQ);
    peer_write(fd, hello, sizeof hello);
}

static void
script_close(struct peer *p, int fd)
{
    (void)p;
    (void)fd;
}

static void
nobody_there_is_told_with_what_helps(void **state)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade_error e;
    struct stockade *s = NULL;
    (void)state;
    o.address = "ipc:///nonexistent/stockade.sock";
    assert_int_equal(stockade_open(&s, &o, &e), 0);
    assert_true(ask(s, 0, NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_non_null(strstr(e.hint, "stockaded"));
    stockade_close(s);
    o.address = "carrier-pigeon://x";
    assert_true(stockade_open(&s, &o, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
}

static void
a_peer_that_is_no_broker_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fails(script_silent, 0).code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(fails(script_http, 0).code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(fails(script_other_protocol, 0).code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(fails(script_close, 0).code, STOCKADE_UNAVAILABLE);
}

// ---- Bytes that are no frames

static const uint8_t *garbage;
static size_t garbage_n;

static void
script_garbage(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_write(fd, garbage, garbage_n);
    script_silent(p, fd);
}

static void
garbage_and_lengths_that_lie_end_the_call_at_once(void **state)
{
    static const uint8_t huge[] = {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t above[] = {1, 0, 0, 0, 0, 0, 0x40, 0, 1, 0x80, 0, 0, 1};
    static const uint8_t tiny[] = {1, 0, 0, 0, 0, 0, 0, 0, 3, 0x80, 0, 0};
    static const uint8_t not_sp[] = {7, 0, 0, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t no_proto[] = {1,    0, 0, 0, 0,    0,    0,    0,   8,
                                       0x80, 0, 0, 1, 0xff, 0xff, 0xff, 0xff};
    static const struct stockade_bytes all[] = {
        {huge, sizeof huge},     {above, sizeof above},       {tiny, sizeof tiny},
        {not_sp, sizeof not_sp}, {no_proto, sizeof no_proto},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        garbage = all[i].bytes;
        garbage_n = all[i].n;
        assert_int_equal(fails(script_garbage, 60000).code, STOCKADE_DATA_LOSS);
    }
}

// 64 KiB of nested fields, which would run a recursive decoder off its stack.
static void
script_nesting(struct peer *p, int fd)
{
    static uint8_t deep[65536];
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    memset(deep, 0x22, sizeof deep); // field 4 (status), length 34, again and again
    uint8_t header[9];
    (void)sp_header(header, true, sizeof deep);
    deep[0] = 0x80;
    peer_write(fd, header, sizeof header);
    peer_write(fd, deep, sizeof deep);
    script_silent(p, fd);
}

static void
nesting_that_lies_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fails(script_nesting, 60000).code, STOCKADE_DATA_LOSS);
}

static void
script_half_frame(struct peer *p, int fd)
{
    static const uint8_t half[] = {1, 0, 0, 0, 0, 0, 0, 0, 100, 0x80, 0, 0, 1, 8};
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_write(fd, half, sizeof half);
}

static void
a_connection_that_breaks_within_a_frame_is_unavailable_and_says_so(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_half_frame, 60000);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(e.reason, "CONNECTION_LOST");
}

// ---- Frames that are not ours

static void
script_wrong_ids(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id + 1, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "no", 2);
    peer_say(fd, 5, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "no", 2);
    peer_say(fd, p->id + 9, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "no", 2);
    peer_say(fd, p->id, 99, "no", 2);
    script_silent(p, fd);
}

static void
an_answer_to_another_call_is_passed_over_and_the_deadline_ends_the_wait(void **state)
{
    (void)state;
    assert_int_equal(fails(script_wrong_ids, 200).code, STOCKADE_DEADLINE_EXCEEDED);
}

static void
script_data_for_unary(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "no", 2);
    script_silent(p, fd);
}

static void
data_for_a_unary_call_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fails(script_data_for_unary, 60000).code, STOCKADE_DATA_LOSS);
}

// An error whose details are partly nonsense, with an escape sequence in each text.
static void
script_error(struct peer *p, int fd)
{
    Stockade__V1__ErrorInfo info = STOCKADE__V1__ERROR_INFO__INIT;
    Stockade__V1__ErrorInfo__MetadataEntry hint = STOCKADE__V1__ERROR_INFO__METADATA_ENTRY__INIT;
    Stockade__V1__ErrorInfo__MetadataEntry *entries[] = {&hint};
    uint8_t packed[256], broken[] = {0x0a, 0xff, 0xff};
    hint.key = "hint";
    hint.value = "ask\033[2J nicely";
    info.reason = "LIMIT_ABOVE_MAXIMUM";
    info.n_metadata = 1;
    info.metadata = entries;
    static char no_slash[] = "no slash";
    static char retry_url[] = "type.googleapis.com/stockade.v1.RetryInfo";
    static char info_url[] = "type.googleapis.com/stockade.v1.ErrorInfo";
    Google__Protobuf__Any any[3];
    Google__Protobuf__Any *details[] = {&any[0], &any[1], &any[2]};
    for (int i = 0; i < 3; i++)
        google__protobuf__any__init(&any[i]);
    any[0].type_url = no_slash;
    any[1].type_url = retry_url;
    any[1].value.data = broken;
    any[1].value.len = sizeof broken;
    any[2].type_url = info_url;
    any[2].value.data = packed;
    any[2].value.len = stockade__v1__error_info__pack(&info, packed);
    Stockade__V1__Status status = STOCKADE__V1__STATUS__INIT;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    status.code = 4000000000u;
    status.message = "too\033]0;x\007 much";
    status.n_details = 3;
    status.details = details;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    f.status = &status;
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_send(fd, p->id, &f);
    script_silent(p, fd);
}

static void
texts_of_an_error_cannot_drive_a_terminal_and_broken_details_are_skipped(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_error, 60000);
    assert_int_equal(e.code, STOCKADE_UNKNOWN);
    assert_string_equal(e.text, "too?]0;x? much");
    assert_string_equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
    assert_string_equal(e.hint, "ask?[2J nicely");
    assert_int_equal(e.retry_ms, 0);
}

static void
script_goaway(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, WIRE_ID_REQUEST, STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY, "", 0);
    script_silent(p, fd);
}

static void
a_call_that_the_broker_will_not_begin_any_more_is_unavailable(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_goaway, 60000);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(e.reason, "GOAWAY");
}

// ---- Streams

struct counted {
    unsigned messages;
    unsigned stop_at;
};

static int
count_message(void *cookie, const void *bytes, size_t n)
{
    struct counted *c = cookie;
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, "data", 4);
    return ++c->messages == c->stop_at ? 1 : 0;
}

// More messages than credit was given for.
static void
script_flood(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    for (uint32_t i = 0; i < 5000; i++)
        peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    script_silent(p, fd);
}

// Exactly as many as it may send, then waits for more credit.
static void
script_stream(struct peer *p, int fd)
{
    uint32_t credit = 0;
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id;
    credit = p->credit;
    for (int i = 0; i < 1000; i++) {
        while (credit == 0) {
            if (!peer_frame(p, fd))
                return;
            credit += p->credit;
        }
        credit--;
        peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    }
    peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "", 0);
    script_silent(p, fd);
}

// Goes on until CANCEL comes, and answers it.
static void
script_until_cancel(struct peer *p, int fd)
{
    Stockade__V1__Status status = STOCKADE__V1__STATUS__INIT;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    do {
        if (!peer_frame(p, fd))
            return;
    } while (p->kind != STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL);
    status.code = STOCKADE_CANCELLED;
    status.message = "as you wish";
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    f.status = &status;
    peer_send(fd, p->id, &f);
    script_silent(p, fd);
}

static int
stream(struct peer *p, script *fn, struct counted *c, struct stockade_error *e)
{
    peer_start(p, fn, 1);
    struct stockade *s = open_handle(p);
    int rc =
        stockade_call(s, METHOD, (struct stockade_bytes){"", 0}, NULL, count_message, c, NULL, e);
    stockade_close(s);
    peer_stop(p);
    return rc;
}

static void
a_peer_that_sends_more_than_its_credit_is_cut_off(void **state)
{
    struct peer p;
    struct counted c = {0};
    struct stockade_error e;
    (void)state;
    // the handler is slow, so that no credit is given back while the flood comes
    assert_true(stream(&p, script_flood, &c, &e) < 0);
    assert_true(e.code == STOCKADE_DATA_LOSS || e.code == STOCKADE_UNAVAILABLE);
    assert_true(c.messages < 5000);
}

static void
a_stream_gets_new_credit_as_it_is_read(void **state)
{
    struct peer p;
    struct counted c = {0};
    struct stockade_error e;
    (void)state;
    assert_int_equal(stream(&p, script_stream, &c, &e), 0);
    assert_int_equal(c.messages, 1000);
}

static void
a_handler_that_says_no_cancels_its_stream(void **state)
{
    struct peer p;
    struct counted c = {.stop_at = 1};
    struct stockade_error e;
    (void)state;
    assert_true(stream(&p, script_until_cancel, &c, &e) < 0);
    assert_int_equal(e.code, STOCKADE_CANCELLED);
    assert_string_equal(e.text, "as you wish");
    assert_int_equal(c.messages, 1);
}

static void *
interrupt_soon(void *cookie)
{
    (void)poll(NULL, 0, 100);
    stockade_interrupt(cookie);
    return NULL;
}

static void
a_stream_is_interrupted_from_another_thread(void **state)
{
    struct peer p;
    struct counted c = {0};
    struct stockade_error e;
    pthread_t thread;
    (void)state;
    peer_start(&p, script_until_cancel, 1);
    struct stockade *s = open_handle(&p);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, s), 0);
    assert_true(stockade_call(s, METHOD, (struct stockade_bytes){"", 0}, NULL, count_message, &c,
                              NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_CANCELLED);
    (void)pthread_join(thread, NULL);
    stockade_close(s);
    peer_stop(&p);
}

// A run whose stream ends well but never said how the job ended.
static void
script_no_result(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "", 0);
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "\x0a\x00", 2);
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "", 0);
    script_silent(p, fd);
}

static void
a_run_without_a_result_is_data_loss_and_never_success(void **state)
{
    struct peer p;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    (void)state;
    peer_start(&p, script_no_result, 1);
    struct stockade *s = open_handle(&p);
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0); // no program at all
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    o.command.args = (const char *const[]){"true", NULL};
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_DATA_LOSS);
    assert_null(r);
    assert_int_equal(strlen(p.key), 32);
    o.size = 0;
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    stockade_close(s);
    peer_stop(&p);
}

// ---- Connections

static void
script_echo_once(struct peer *p, int fd)
{
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "ok", 2);
}

static void
a_lost_connection_is_made_again_between_calls(void **state)
{
    struct peer p;
    struct stockade_error e;
    (void)state;
    peer_start(&p, script_echo_once, 3);
    struct stockade *s = open_handle(&p);
    for (int i = 0; i < 3; i++) {
        const struct stockade_bytes *out = NULL;
        assert_int_equal(ask(s, 5000, &out, &e), 0);
        assert_int_equal(out->n, 2);
        assert_memory_equal(out->bytes, "ok", 2);
        stockade_free(out);
        (void)poll(NULL, 0, 20); // for the peer to close
    }
    stockade_close(s);
    peer_stop(&p);
}

// Breaks off after the CALL; a second connection would be a second execution.
static void
script_drop(struct peer *p, int fd)
{
    peer_hello(fd);
    (void)peer_frame(p, fd);
    p->credit++;
}

static void
a_call_whose_connection_breaks_is_not_sent_again(void **state)
{
    struct peer p;
    struct stockade_error e;
    (void)state;
    peer_start(&p, script_drop, 2);
    struct stockade *s = open_handle(&p);
    assert_true(ask(s, 5000, NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(e.reason, "CONNECTION_LOST");
    assert_int_equal(p.credit, 1);
    stockade_close(s);
    peer_stop(&p);
}

// Answers PINGs of its own making, then the call.
static void
script_pings(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id;
    peer_say(fd, WIRE_ID_REQUEST | 77, STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, "12345678", 8);
    if (!peer_frame(p, fd))
        return;
    bool pong =
        p->kind == STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG && p->id == (WIRE_ID_REQUEST | 77);
    peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, pong ? "pong" : "none", 4);
    script_silent(p, fd);
}

static void
a_ping_is_answered(void **state)
{
    struct peer p;
    struct stockade_error e;
    const struct stockade_bytes *out = NULL;
    (void)state;
    peer_start(&p, script_pings, 1);
    struct stockade *s = open_handle(&p);
    assert_int_equal(ask(s, 5000, &out, &e), 0);
    assert_memory_equal(out->bytes, "pong", 4);
    stockade_free(out);
    stockade_close(s);
    peer_stop(&p);
}

// ---- Many threads, one handle: each answer comes back to the call it belongs to, in whatever order they come

enum { THREADS = 8, CALLS = 200 };

// Holds calls back while more come, and answers the last one first.
static void
script_echo_backwards(struct peer *p, int fd)
{
    uint32_t ids[THREADS];
    unsigned n = 0;
    peer_hello(fd);
    for (;;) {
        struct pollfd more = {.fd = fd, .events = POLLIN};
        if (n < THREADS && poll(&more, 1, n > 0 ? 1 : 10000) > 0) {
            if (!peer_frame(p, fd))
                return;
            ids[n++] = p->id;
            continue;
        }
        while (n > 0) {
            n--;
            peer_say(fd, ids[n], STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, &ids[n], 4);
        }
    }
}

static void *
call_often(void *cookie)
{
    for (int i = 0; i < CALLS; i++) {
        const struct stockade_bytes *out = NULL;
        if (ask(cookie, 20000, &out, NULL) < 0 || out->n != 4)
            return cookie;
        stockade_free(out);
    }
    return NULL;
}

static void
many_threads_share_one_connection(void **state)
{
    struct peer p;
    pthread_t threads[THREADS];
    (void)state;
    peer_start(&p, script_echo_backwards, 1);
    struct stockade *s = open_handle(&p);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, s), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    stockade_close(s);
    peer_stop(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_there_is_told_with_what_helps),
        cmocka_unit_test(a_peer_that_is_no_broker_is_refused),
        cmocka_unit_test(garbage_and_lengths_that_lie_end_the_call_at_once),
        cmocka_unit_test(nesting_that_lies_is_refused),
        cmocka_unit_test(a_connection_that_breaks_within_a_frame_is_unavailable_and_says_so),
        cmocka_unit_test(an_answer_to_another_call_is_passed_over_and_the_deadline_ends_the_wait),
        cmocka_unit_test(data_for_a_unary_call_is_refused),
        cmocka_unit_test(texts_of_an_error_cannot_drive_a_terminal_and_broken_details_are_skipped),
        cmocka_unit_test(a_call_that_the_broker_will_not_begin_any_more_is_unavailable),
        cmocka_unit_test(a_peer_that_sends_more_than_its_credit_is_cut_off),
        cmocka_unit_test(a_stream_gets_new_credit_as_it_is_read),
        cmocka_unit_test(a_handler_that_says_no_cancels_its_stream),
        cmocka_unit_test(a_stream_is_interrupted_from_another_thread),
        cmocka_unit_test(a_run_without_a_result_is_data_loss_and_never_success),
        cmocka_unit_test(a_lost_connection_is_made_again_between_calls),
        cmocka_unit_test(a_call_whose_connection_breaks_is_not_sent_again),
        cmocka_unit_test(a_ping_is_answered),
        cmocka_unit_test(many_threads_share_one_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
