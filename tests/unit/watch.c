// SPDX-License-Identifier: Apache-2.0
// client/watch.c: the descriptor that a program polls is readable whenever there is something to do, with peers that send
// garbage, do not read, do not answer or have no room. The program never waits in the library.
#include "tests/harness/polled.h"

// ---- Peers that misbehave

static void
script_garbage(struct peer *p, int fd)
{
    static const uint8_t garbage[] = {7, 0, 0, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    peer_hello(fd);
    for (int i = 0; i < 2; i++)
        if (!peer_frame(p, fd))
            return;
    peer_write(fd, garbage, sizeof garbage);
    script_silent(p, fd);
}

static void
garbage_ends_every_call_with_data_loss_and_the_next_one_connects_again(void **state)
{
    struct program p;
    struct peer peer;
    (void)state;
    program_start(&p, &peer, script_garbage, 2);
    int fd = stockade_fd(p.s, NULL);
    for (int round = 1; round <= 2; round++) {
        program_begin_stream(&p, 0);
        program_begin_stream(&p, 0);
        program_loop_until_ended(&p, 2 * round);
        assert_int_equal(p.error.code, STOCKADE_DATA_LOSS);
        assert_int_equal(stockade_fd(p.s, NULL), fd); // the same for the life of the handle
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
    }
    program_stop(&p, &peer);
}

// Reads nothing until the test says so, then answers each request.
static sem_t may_read;

static void
script_slow_reader(struct peer *p, int fd)
{
    peer_hello(fd);
    (void)sem_wait(&may_read);
    while (peer_frame(p, fd))
        peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "ok", 2);
}

static void
requests_that_a_peer_does_not_read_wait_up_to_a_limit_and_are_all_sent_in_the_end(void **state)
{
    enum { BYTES = 3 * 1024 * 1024 };
    struct program p;
    struct peer peer;
    struct stockade_error e;
    int begun = 0;
    (void)state;
    assert_int_equal(sem_init(&may_read, 0, 0), 0);
    program_start(&p, &peer, script_slow_reader, 1);
    struct stockade_bytes body = {.bytes = calloc(1, BYTES), .n = BYTES};
    assert_non_null(body.bytes);
    while (program_begin(&p, false, 60000, 0, body, &e) == 0)
        begun++;
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    assert_in_range(begun, 5, 7); // 16 MiB, and what the socket holds
    for (int i = 0; i < 20; i++)  // nothing to do, and the program does not spin
        assert_int_equal(stockade_pump(p.s, 5, NULL), begun);
    int fd = stockade_fd(p.s, NULL);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 50), 0);
    (void)sem_post(&may_read);
    program_loop_until_ended(&p, begun);
    assert_true(p.ok);
    assert_int_equal(p.response_n, 2);
    assert_memory_equal(p.response, "ok", 2);
    union {
        const void *from;
        void *to;
    } owned = {.from = body.bytes};
    free(owned.to);
    program_stop(&p, &peer);
    (void)sem_destroy(&may_read);
}

static void
a_peer_that_sends_no_greeting_is_given_up_in_time(void **state)
{
    struct program p = {0};
    struct peer peer;
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    (void)state;
    peer_start(&peer, script_silent, 1);
    o.address = peer.address;
    o.connect_timeout_ms = 200;
    assert_int_equal(stockade_open(&p.s, &o, NULL), 0);
    program_begin_stream(&p, 0);
    program_begin_stream(&p, 0);
    program_loop_until_ended(&p, 2);
    assert_int_equal(p.error.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(p.error.reason, "BROKER_SILENT");
    program_stop(&p, &peer);
}

static void
a_deadline_makes_the_descriptor_readable(void **state)
{
    struct program p;
    struct peer peer;
    (void)state;
    program_start(&p, &peer, script_one_message, 1);
    assert_int_equal(program_begin(&p, true, 100, 0, (struct stockade_bytes){0}, NULL), 0);
    program_loop_until_ended(&p, 1);
    assert_int_equal(p.error.code, STOCKADE_DEADLINE_EXCEEDED);
    assert_int_equal(p.messages, 1);
    program_stop(&p, &peer);
}

// ---- A socket whose backlog is full: connect(2) fails with EAGAIN, and nothing will say when there is room

static void *
accept_late(void *cookie)
{
    struct peer *p = cookie;
    (void)sem_wait(&p->closed);
    for (int fd = 0; (fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; (void)close(fd)) {
        peer_hello(fd);
        if (peer_frame(p, fd))
            peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "", 0);
    }
    return NULL;
}

static void
a_full_backlog_is_tried_again_without_waiting(void **state)
{
    struct program p = {0};
    struct peer peer = {.folder = "/tmp/stockade-XXXXXX"};
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    (void)state;
    assert_non_null(mkdtemp(peer.folder));
    (void)snprintf(peer.path, sizeof peer.path, "%s/s", peer.folder);
    (void)snprintf(peer.address, sizeof peer.address, "ipc://%s", peer.path);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", peer.path);
    assert_int_equal(sem_init(&peer.closed, 0, 0), 0);
    peer.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer.listener, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(peer.listener, 0), 0);
    int filler = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(filler, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(pthread_create(&peer.thread, NULL, accept_late, &peer), 0);
    o.address = peer.address;
    assert_int_equal(stockade_open(&p.s, &o, NULL), 0);
    program_begin_stream(&p, 0);
    assert_int_equal(stockade_pump(p.s, 30, NULL), 1);
    (void)close(filler);
    (void)sem_post(&peer.closed);
    program_loop_until_ended(&p, 1);
    assert_true(p.ok);
    program_stop(&p, &peer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_ends_every_call_with_data_loss_and_the_next_one_connects_again),
        cmocka_unit_test(
            requests_that_a_peer_does_not_read_wait_up_to_a_limit_and_are_all_sent_in_the_end),
        cmocka_unit_test(a_peer_that_sends_no_greeting_is_given_up_in_time),
        cmocka_unit_test(a_deadline_makes_the_descriptor_readable),
        cmocka_unit_test(a_full_backlog_is_tried_again_without_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
