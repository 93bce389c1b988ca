// SPDX-License-Identifier: Apache-2.0
// The broker does not trust the guest: each message becomes an event, or ends the link.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest.pb-c.h"
#include "proto/fdpass.h"
#include "server/sandbox/guest_link.h"
#include "tests/harness/process.h"

// The events that the broker received.
struct received {
    unsigned ready, started, failed, exited, gone;
    uint32_t job, pid, exit_code, status;
    int terminal, sys;
    char text[1024];
    struct bill_rusage usage;
    struct guest_link *free_in_event;
};

struct fixture {
    uv_loop_t loop;
    struct guest_link *link;
    int guest; // the other end
    struct received received;
};

static void
on_ready(void *cookie)
{
    struct received *t = cookie;
    t->ready++;
    if (t->free_in_event != NULL)
        guest_link_free(t->free_in_event);
}

static void
on_started(void *cookie, uint32_t job, uint32_t pid, int terminal)
{
    struct received *t = cookie;
    t->started++;
    t->job = job;
    t->pid = pid;
    t->terminal = terminal;
}

static void
on_failed(void *cookie, uint32_t job, uint32_t exit_code, int sys, const char *text)
{
    struct received *t = cookie;
    t->failed++;
    t->job = job;
    t->exit_code = exit_code;
    t->sys = sys;
    (void)snprintf(t->text, sizeof t->text, "%s", text);
}

static void
on_exited(void *cookie, uint32_t job, uint32_t status, const struct bill_rusage *usage)
{
    struct received *t = cookie;
    t->exited++;
    t->job = job;
    t->status = status;
    t->usage = *usage;
}

static void
on_gone(void *cookie, const struct err *why)
{
    struct received *t = cookie;
    t->gone++;
    (void)snprintf(t->text, sizeof t->text, "%s", why->text);
}

static const struct guest_events events = {on_ready, on_started, on_failed, on_exited, on_gone};

static int
open_link(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int ends[2];
    struct err e;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
                     0);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->guest = ends[1];
    f->received.terminal = -1;
    f->link = guest_link_new(&f->loop, ends[0], &events, &f->received, &e);
    assert_non_null(f->link);
    *state = f;
    return 0;
}

static int
close_link(void **state)
{
    struct fixture *f = *state;
    guest_link_free(f->link);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    if (f->guest >= 0)
        (void)close(f->guest);
    free(f);
    return 0;
}

static void
turn(struct fixture *f)
{
    for (int i = 0; i < 3; i++)
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

// Sends bytes with `fds_n` copies of a device's descriptor.
static void
say(const struct fixture *f, const void *bytes, size_t n, size_t fds_n)
{
    int fds[200];
    int device = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < fds_n; i++)
        fds[i] = device;
    const struct fdpass m = {(void *)(uintptr_t)bytes, n, fds, fds_n};
    assert_int_equal(fdpass_send(f->guest, &m, 0), 0);
    (void)close(device);
}

static void
say_event(const struct fixture *f, const Stockade__Guest__Event *ev, size_t fds_n)
{
    uint8_t bytes[8192];
    assert_true(stockade__guest__event__get_packed_size(ev) <= sizeof bytes);
    say(f, bytes, stockade__guest__event__pack(ev, bytes), fds_n);
}

static void
say_started(const struct fixture *f, size_t fds_n)
{
    Stockade__Guest__Event ev = STOCKADE__GUEST__EVENT__INIT;
    Stockade__Guest__Started body = STOCKADE__GUEST__STARTED__INIT;
    ev.event_case = STOCKADE__GUEST__EVENT__EVENT_STARTED;
    ev.started = &body;
    body.job = 3;
    body.pid = 4;
    say_event(f, &ev, fds_n);
}

static void
say_ready(const struct fixture *f, uint32_t version)
{
    Stockade__Guest__Event ev = STOCKADE__GUEST__EVENT__INIT;
    Stockade__Guest__Ready body = STOCKADE__GUEST__READY__INIT;
    ev.event_case = STOCKADE__GUEST__EVENT__EVENT_READY;
    ev.ready = &body;
    body.version = version;
    say_event(f, &ev, 0);
}

struct garbage {
    const char *bytes;
    size_t n;
};
#define BYTES(s)                                                                                   \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }

static const struct garbage garbage[] = {
    BYTES("\xff"),                     // a tag that does not end
    BYTES("\x0a\x05\x08"),             // a length beyond the end
    BYTES("\x38\x01"),                 // an unknown field: an event without a kind
    BYTES("\x1a\x04\x22\x02\xff\xfe"), // Failed with a text that is not UTF-8
};

static void
garbage_ends_the_link(void **state)
{
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        struct fixture *f = *state;
        say(f, garbage[i].bytes, garbage[i].n, 0);
        say_ready(f, 1);
        turn(f);
        assert_int_equal(f->received.gone, 1);
        assert_int_equal(f->received.ready, 0); // no event follows
        assert_non_null(strstr(f->received.text, "broke the protocol"));
        assert_int_equal(close_link(state), 0);
        assert_int_equal(open_link(state), 0);
    }
}

static void
a_packet_above_its_size_ends_the_link(void **state)
{
    struct fixture *f = *state;
    char *big = calloc(1, GUEST_EVENT_MAX + 1);
    say(f, big, GUEST_EVENT_MAX + 1, 0);
    turn(f);
    assert_int_equal(f->received.gone, 1);
    free(big);
}

static void
another_version_ends_the_link(void **state)
{
    struct fixture *f = *state;
    say_ready(f, 2);
    turn(f);
    assert_int_equal(f->received.gone, 1);
    assert_int_equal(f->received.ready, 0);
}

static void
more_descriptors_than_an_event_may_have_end_the_link_and_are_closed(void **state)
{
    struct fixture *f = *state;
    unsigned before = process_fds(getpid());
    say_started(f, 1);
    turn(f);
    assert_int_equal(f->received.started, 1);
    assert_true(f->received.terminal >= 0);
    (void)close(f->received.terminal);
    assert_int_equal(process_fds(getpid()), before);
    say_started(f, 2); // more than an event may contain
    turn(f);
    assert_int_equal(f->received.gone, 1);
    assert_int_equal(f->received.started, 1);
    assert_int_equal(process_fds(getpid()), before);
}

static void
a_descriptor_that_is_no_device_ends_the_link_and_is_closed(void **state)
{
    struct fixture *f = *state;
    unsigned before = process_fds(getpid());
    uint8_t bytes[] = {0x12, 0x02, 0x08, 0x01};
    const struct fdpass m = {bytes, sizeof bytes, &f->guest, 1};
    assert_int_equal(fdpass_send(f->guest, &m, 0), 0);
    turn(f);
    assert_int_equal(f->received.gone, 1);
    assert_int_equal(f->received.started, 0);
    assert_int_equal(process_fds(getpid()), before);
}

static void
the_end_of_the_guest_is_reported_once(void **state)
{
    struct fixture *f = *state;
    (void)close(f->guest);
    f->guest = -1;
    turn(f);
    turn(f);
    assert_int_equal(f->received.gone, 1);
}

static void
a_guest_that_does_not_read_fills_a_queue_and_then_is_refused(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    int sent = 0;
    while (sent < 100000 && guest_link_signal(f->link, 1, 15, false, &e) == 0)
        sent++;
    assert_true(sent >= GUEST_QUEUE_MAX && sent < 100000);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    uint8_t bytes[256];
    int got = 0;
    for (int idle = 0; idle < 10; idle++) {
        turn(f);
        while (recv(f->guest, bytes, sizeof bytes, 0) > 0) {
            got++;
            idle = 0;
        }
    }
    assert_int_equal(got, sent); // the others arrived after it read again
}

static void
a_start_that_is_refused_closes_its_descriptors(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    char *big = malloc(GUEST_PACKET_MAX + 1);
    memset(big, 'x', GUEST_PACKET_MAX);
    big[GUEST_PACKET_MAX] = '\0';
    const char *args[] = {big};
    unsigned before = process_fds(getpid());
    struct guest_start s = {.job = 1, .args = args, .args_n = 1, .workdir = "/"};
    for (int i = 0; i < 3; i++)
        s.stdio[i] = dup(f->guest);
    assert_true(guest_link_start(f->link, &s, &e) < 0);
    assert_int_equal(process_fds(getpid()), before);
    free(big);
}

static void
a_link_may_be_freed_in_its_own_event(void **state)
{
    struct fixture *f = *state;
    f->received.free_in_event = f->link;
    f->link = NULL;
    say_ready(f, 1);
    say_ready(f, 1);
    turn(f);
    assert_int_equal(f->received.ready, 1);
}

static void
events_come_as_they_were_sent_and_text_is_escaped(void **state)
{
    struct fixture *f = *state;
    Stockade__Guest__Event ev = STOCKADE__GUEST__EVENT__INIT;
    Stockade__Guest__Failed failed = STOCKADE__GUEST__FAILED__INIT;
    Stockade__Guest__Exited exited = STOCKADE__GUEST__EXITED__INIT;
    failed.job = 7;
    failed.exit_code = 127;
    failed.sys = ENOENT;
    failed.text = "no\nsuch \x1b[31mthing";
    ev.event_case = STOCKADE__GUEST__EVENT__EVENT_FAILED;
    ev.failed = &failed;
    say_event(f, &ev, 0);
    turn(f);
    assert_int_equal(f->received.exit_code, 127);
    assert_int_equal(f->received.sys, ENOENT);
    assert_string_equal(f->received.text, "no\\u000asuch \\u001b[31mthing");
    exited.job = 8;
    exited.status = 9;
    exited.faults_minor = 77;
    ev.event_case = STOCKADE__GUEST__EVENT__EVENT_EXITED;
    ev.exited = &exited;
    say_event(f, &ev, 0);
    turn(f);
    assert_int_equal(f->received.job, 8);
    assert_int_equal(f->received.status, 9);
    assert_int_equal(f->received.usage.faults_minor, 77);
    assert_int_equal(f->received.gone, 0);
}

#define LINK(test) cmocka_unit_test_setup_teardown(test, open_link, close_link)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LINK(garbage_ends_the_link),
        LINK(a_packet_above_its_size_ends_the_link),
        LINK(another_version_ends_the_link),
        LINK(more_descriptors_than_an_event_may_have_end_the_link_and_are_closed),
        LINK(a_descriptor_that_is_no_device_ends_the_link_and_is_closed),
        LINK(the_end_of_the_guest_is_reported_once),
        LINK(a_guest_that_does_not_read_fills_a_queue_and_then_is_refused),
        LINK(a_start_that_is_refused_closes_its_descriptors),
        LINK(a_link_may_be_freed_in_its_own_event),
        LINK(events_come_as_they_were_sent_and_text_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
