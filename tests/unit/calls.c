// SPDX-License-Identifier: Apache-2.0
// client/calls.c: invalid frames, streams and their credit, broken connections, many threads.
#include "tests/harness/peer.h"

// ---- invalid frames

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
an_answer_to_another_call_is_skipped_and_the_deadline_ends_the_wait(void **state)
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

// An error whose details are partly invalid, with an escape sequence in each text.
static void
script_error(struct peer *p, int fd)
{
    Stockade__V1__ErrorInfo info = STOCKADE__V1__ERROR_INFO__INIT;
    static const char *const facts[][2] = {{"hint", "ask\033[2J nicely"},
                                           {"rule", "base/\tno-push"},
                                           {"new", "unknown"},
                                           {"allowed", "other\rcommands"}};
    Stockade__V1__ErrorInfo__MetadataEntry entry[4], *entries[4];
    uint8_t packed[256], broken[] = {0x0a, 0xff, 0xff};
    for (int i = 0; i < 4; i++) {
        stockade__v1__error_info__metadata_entry__init(&entry[i]);
        entry[i].key = facts[i][0];
        entry[i].value = facts[i][1];
        entries[i] = &entry[i];
    }
    info.reason = "LIMIT_ABOVE_MAXIMUM";
    info.n_metadata = 4;
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
    assert_string_equal(e.rule, "base/?no-push");
    assert_string_equal(e.allowed, "other?commands");
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

// ---- streams

struct counted {
    unsigned messages;
    unsigned stop_at;
    sem_t *first; // posted at the first message, or NULL
};

static int
count_message(void *cookie, const void *bytes, size_t n)
{
    struct counted *c = cookie;
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, "data", 4);
    if (++c->messages == 1 && c->first != NULL)
        (void)sem_post(c->first);
    return c->messages == c->stop_at ? 1 : 0;
}

// Sends more messages than the credit allows.
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

// Sends exactly the credit's number of messages, then waits for more credit.
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

// Sends until CANCEL arrives, and replies to it.
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
count_all(struct stockade *s, struct counted *c, struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = METHOD;
    r.on_message = count_message;
    r.cookie = c;
    return stockade_call(s, &r, NULL, e);
}

static int
stream(struct peer *p, script *fn, struct counted *c, struct stockade_error *e)
{
    peer_start(p, fn, 1);
    struct stockade *s = open_handle(p);
    int rc = count_all(s, c, e);
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
    // the handler is slow, so no credit is given while the messages arrive
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
a_handler_that_returns_nonzero_cancels_its_stream(void **state)
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

struct interrupter {
    struct stockade *handle;
    sem_t begun;
};

static void *
interrupt_it(void *cookie)
{
    struct interrupter *in = cookie;
    (void)sem_wait(&in->begun);
    stockade_interrupt(in->handle);
    return NULL;
}

static void
a_stream_is_interrupted_from_another_thread(void **state)
{
    struct peer p;
    struct interrupter in;
    struct counted c = {.first = &in.begun};
    struct stockade_error e;
    pthread_t thread;
    (void)state;
    peer_start(&p, script_until_cancel, 1);
    in.handle = open_handle(&p);
    assert_int_equal(sem_init(&in.begun, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_it, &in), 0);
    assert_true(count_all(in.handle, &c, &e) < 0);
    assert_int_equal(e.code, STOCKADE_CANCELLED);
    (void)pthread_join(thread, NULL);
    (void)sem_destroy(&in.begun);
    stockade_close(in.handle);
    peer_stop(&p);
}

// A run whose stream ends successfully without a result of the job.
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
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0); // no program is given
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    o.command.args = (const char *const[]){"true", NULL};
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_DATA_LOSS);
    assert_null(r);
    // a call that starts a job has a key only if the program sets one
    assert_int_equal(strlen(p.key), 0);
    o.size = 0;
    assert_true(stockade_run(s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    stockade_close(s);
    peer_stop(&p);
}

// ---- connections

static void
script_echo_once(struct peer *p, int fd)
{
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "ok", 2);
}

static void
a_lost_connection_is_replaced_between_calls(void **state)
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
        assert_int_equal(sem_wait(&p.closed), 0);
    }
    stockade_close(s);
    peer_stop(&p);
}

// Disconnects after the CALL; a second connection would mean a second execution.
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

// ---- an error that names a very long delay

static void
script_retry_never(struct peer *p, int fd)
{
    Stockade__V1__RetryInfo retry = STOCKADE__V1__RETRY_INFO__INIT;
    uint8_t packed[16];
    static char url[] = "type.googleapis.com/stockade.v1.RetryInfo";
    Google__Protobuf__Any any, *details[] = {&any};
    Stockade__V1__Status status = STOCKADE__V1__STATUS__INIT;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    google__protobuf__any__init(&any);
    retry.retry_delay_ms = UINT32_MAX;
    any.type_url = url;
    any.value.data = packed;
    any.value.len = stockade__v1__retry_info__pack(&retry, packed);
    status.code = STOCKADE_RESOURCE_EXHAUSTED;
    status.n_details = 1;
    status.details = details;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    f.status = &status;
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_send(fd, p->id, &f);
    script_silent(p, fd);
}

static void
a_retry_delay_of_49_days_is_shortened_to_an_hour(void **state)
{
    (void)state;
    assert_int_equal(fails(script_retry_never, 60000).retry_ms, 3600000);
}

// ---- many threads with one handle: each response reaches its call, in any order

enum { THREADS = 8, CALLS = 200 };

// Holds calls back while more arrive, and replies to the last one first.
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
        cmocka_unit_test(an_answer_to_another_call_is_skipped_and_the_deadline_ends_the_wait),
        cmocka_unit_test(data_for_a_unary_call_is_refused),
        cmocka_unit_test(texts_of_an_error_cannot_drive_a_terminal_and_broken_details_are_skipped),
        cmocka_unit_test(a_call_that_the_broker_will_not_begin_any_more_is_unavailable),
        cmocka_unit_test(a_peer_that_sends_more_than_its_credit_is_cut_off),
        cmocka_unit_test(a_stream_gets_new_credit_as_it_is_read),
        cmocka_unit_test(a_handler_that_returns_nonzero_cancels_its_stream),
        cmocka_unit_test(a_stream_is_interrupted_from_another_thread),
        cmocka_unit_test(a_run_without_a_result_is_data_loss_and_never_success),
        cmocka_unit_test(a_lost_connection_is_replaced_between_calls),
        cmocka_unit_test(a_call_whose_connection_breaks_is_not_sent_again),
        cmocka_unit_test(a_retry_delay_of_49_days_is_shortened_to_an_hour),
        cmocka_unit_test(many_threads_share_one_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
