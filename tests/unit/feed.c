// SPDX-License-Identifier: Apache-2.0
// The feed: peers that are not SUB sockets are closed, a stalled peer loses only messages, and every bound is kept.
//
// Peers are real sockets that the test reads and writes.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/wire.h"
#include "server/base/metrics.h"
#include "server/telemetry/events.h"
#include "server/telemetry/feed.h"
#include "server/rpc/transport.h"

enum { TIMEOUT_MS = 30000, NOTE_BYTES = 4096, IPC_HEADER = 9 };

static const uint8_t sub_hello[SP_HELLO_BYTES] = {0, 'S', 'P', 0, 0, 0x21, 0, 0};
static const uint8_t pub_hello[SP_HELLO_BYTES] = {0, 'S', 'P', 0, 0, 0x20, 0, 0};
static const char box[] = "abcdefabcdefabcdefabcdefabcdefab";

struct fixture {
    uv_loop_t loop;
    struct events *hub;
    struct feed *feed;
    char folder[64], path[96], url[112], bound[TRANSPORT_BOUND_BYTES];
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct err e;
    assert_non_null(f);
    metrics_clear();
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->hub = events_new(&f->loop);
    assert_non_null(f->hub);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/stockade-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof f->path, "%s/feed", f->folder);
    (void)snprintf(f->url, sizeof f->url, "ipc://%s", f->path);
    assert_int_equal(feed_open(&f->loop, f->hub, f->url, f->bound, &f->feed, &e), 0);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    feed_close(f->feed);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT); // returns: no handle of the feed is left
    events_free(f->hub);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static uint64_t
now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

// One turn of the loop, which waits a moment for this descriptor (-1: none) to become readable.
static void
turn(struct fixture *f, int fd)
{
    if (uv_run(&f->loop, UV_RUN_NOWAIT) == 0)
        fail_msg("the loop has nothing left");
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1);
}

static void
until_peers(struct fixture *f, uint32_t n)
{
    uint64_t end = now_ms() + TIMEOUT_MS;
    while (feed_peers(f->feed) != n && now_ms() < end)
        turn(f, -1);
    assert_int_equal(feed_peers(f->feed), n);
}

static int
dial(const struct fixture *f)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", f->path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void
say(int fd, const void *bytes, size_t n)
{
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
}

// Reads exactly n bytes while the loop runs. False: the feed has closed the connection.
static bool
hear(struct fixture *f, int fd, void *bytes, size_t n)
{
    uint64_t end = now_ms() + TIMEOUT_MS;
    for (size_t have = 0; have < n;) {
        ssize_t got = recv(fd, (uint8_t *)bytes + have, n - have, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return false;
        if (got < 0) {
            assert_true(errno == EAGAIN && now_ms() < end);
            turn(f, fd);
        } else {
            have += (size_t)got;
        }
    }
    return true;
}

static int
subscribe(struct fixture *f)
{
    uint8_t hello[SP_HELLO_BYTES];
    int fd = dial(f);
    say(fd, sub_hello, sizeof sub_hello);
    assert_true(hear(f, fd, hello, sizeof hello));
    assert_memory_equal(hello, pub_hello, sizeof hello);
    return fd;
}

static void
publish(struct fixture *f, const char *note)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    m.sandbox_id = box;
    m.tenant = "uid:1";
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    m.severity = STOCKADE__V1__SEVERITY__SEVERITY_NOTICE;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_NOTE;
    m.note = note;
    events_publish(f->hub, &m);
}

// The sequence number of the next message; checks its topic and length. 0: the feed has closed the connection.
static uint64_t
message(struct fixture *f, int fd, size_t header_n)
{
    static const char topic[] = "EXEC/NOTICE/abcdefabcdefabcdefabcdefabcdefab\n";
    static uint8_t body[2 * EVENT_BYTES];
    uint8_t header[IPC_HEADER];
    uint64_t n = 0;
    if (!hear(f, fd, header, header_n))
        return 0;
    assert_int_equal(sp_header_read(header, header_n, header_n == IPC_HEADER, &n), 1);
    assert_true(n > sizeof topic && n < sizeof body);
    if (!hear(f, fd, body, n))
        return 0;
    assert_memory_equal(body, topic, sizeof topic - 1);
    Stockade__V1__Event *e =
        stockade__v1__event__unpack(NULL, n - (sizeof topic - 1), body + (sizeof topic - 1));
    assert_non_null(e);
    uint64_t sequence = e->sequence;
    stockade__v1__event__free_unpacked(e, NULL);
    return sequence;
}

// ---- refusals

static void
addresses_that_cannot_be_used_are_refused(void **state)
{
    static const char *const wrong[] = {"", "x", "ipc://relative", "tcp://0.0.0.0:0",
                                        "tcp://127.0.0.1:99999"};
    struct fixture *f = *state;
    char bound[TRANSPORT_BOUND_BYTES];
    struct feed *feed = NULL;
    struct err e = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(feed_open(&f->loop, f->hub, wrong[i], bound, &feed, &e) < 0);
        assert_null(feed);
        assert_true(e.code != 0 && e.text[0] != '\0');
    }
    assert_true(feed_open(&f->loop, f->hub, f->url, bound, &feed, &e) < 0); // the address is in use
    assert_int_equal(e.code, ERR_ALREADY_EXISTS);
}

static void
peers_that_are_not_sub_sockets_are_closed(void **state)
{
    static const uint8_t wrong[][SP_HELLO_BYTES] = {
        {0, 'S', 'P', 0, 0, 0x30, 0, 0}, // REQ
        {0, 'S', 'P', 0, 0, 0x20, 0, 0}, // another PUB
        {0, 'S', 'P', 1, 0, 0x21, 0, 0}, // a later version
        {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T'}, {0},
    };
    struct fixture *f = *state;
    uint8_t byte = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int fd = dial(f);
        say(fd, wrong[i], SP_HELLO_BYTES);
        assert_false(hear(f, fd, &byte, 1));
        (void)close(fd);
        until_peers(f, 0);
    }
    publish(f, "nobody is there");
}

static void
a_sub_socket_that_sends_more_is_closed(void **state)
{
    struct fixture *f = *state;
    static uint8_t much[64 * 1024];
    uint8_t byte = 0;
    int fd = dial(f);
    say(fd, sub_hello, sizeof sub_hello);
    say(fd, much, sizeof much); // together with its hello
    uint8_t hello[SP_HELLO_BYTES];
    while (hear(f, fd, hello, 1)) // possibly the feed's own hello
        ;
    (void)close(fd);
    until_peers(f, 0);
    fd = subscribe(f);
    say(fd, much, 1); // later
    assert_false(hear(f, fd, &byte, 1));
    (void)close(fd);
    until_peers(f, 0);
}

static void
half_a_hello_gets_no_message_and_times_out(void **state)
{
    struct fixture *f = *state;
    uint8_t byte = 0;
    int silent = dial(f);
    int half = dial(f);
    say(half, sub_hello, 3);
    until_peers(f, 2);
    uint64_t begun = now_ms();
    publish(f, "x");
    assert_int_equal(metrics_sum(METRIC_FEED_LOST), 0); // they belong to no peer
    int gone = dial(f);
    say(gone, sub_hello, 5);
    (void)close(gone);
    until_peers(f, 2);
    until_peers(f, 0);
    assert_true(now_ms() - begun >= FEED_HELLO_MS - 1000);
    assert_false(hear(f, silent, &byte, 1));
    assert_false(hear(f, half, &byte, 1));
    (void)close(silent);
    (void)close(half);
}

static void
the_65th_peer_is_closed_until_another_leaves(void **state)
{
    struct fixture *f = *state;
    int fd[FEED_PEERS_MAX];
    uint8_t byte = 0;
    for (size_t i = 0; i < FEED_PEERS_MAX; i++)
        fd[i] = i % 2 == 0 ? subscribe(f) : dial(f); // with and without hello: each counts
    until_peers(f, FEED_PEERS_MAX);
    int more = dial(f);
    (void)send(more, sub_hello, sizeof sub_hello, MSG_NOSIGNAL);
    assert_false(hear(f, more, &byte, 1));
    (void)close(more);
    assert_int_equal(feed_peers(f->feed), FEED_PEERS_MAX);
    assert_int_equal(metrics_value(METRIC_FEED_PEERS, 0, 0), FEED_PEERS_MAX);
    assert_int_equal(metrics_sum(METRIC_FEED_REFUSED), 1);
    (void)close(fd[0]);
    until_peers(f, FEED_PEERS_MAX - 1);
    fd[0] = subscribe(f);
    publish(f, "x");
    assert_int_equal(message(f, fd[0], IPC_HEADER), 1);
    for (size_t i = 0; i < FEED_PEERS_MAX; i++)
        (void)close(fd[i]);
    until_peers(f, 0);
}

// ---- messages

static void
a_peer_that_does_not_read_loses_whole_messages_and_others_none(void **state)
{
    enum { MESSAGES = 1500 };
    struct fixture *f = *state;
    char note[NOTE_BYTES];
    memset(note, 'n', sizeof note - 1);
    note[sizeof note - 1] = '\0';
    int deaf = subscribe(f);
    int good = subscribe(f);
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        publish(f, note);
        assert_int_equal(message(f, good, IPC_HEADER), i);
    }
    uint64_t lost = metrics_sum(METRIC_FEED_LOST);
    assert_true(lost > MESSAGES / 2); // a MiB waits, and what the kernel took of it
    publish(f, note);
    assert_int_equal(metrics_sum(METRIC_FEED_LOST), lost + 1);
    // Received messages are complete and in order, even if a write ended within one; then there is room again.
    uint64_t got = 0;
    for (uint64_t last = 0; got < MESSAGES + 1 - lost - 1; got++) {
        uint64_t sequence = message(f, deaf, IPC_HEADER);
        assert_true(sequence > last);
        last = sequence;
    }
    assert_true(got * NOTE_BYTES >= FEED_QUEUE_BYTES / 2);
    publish(f, "again");
    assert_int_equal(message(f, deaf, IPC_HEADER), MESSAGES + 2);
    assert_int_equal(message(f, good, IPC_HEADER), MESSAGES + 1);
    assert_int_equal(message(f, good, IPC_HEADER), MESSAGES + 2);
    (void)close(deaf);
    (void)close(good);
    until_peers(f, 0);
}

static void
small_messages_have_a_bound_of_their_own(void **state)
{
    struct fixture *f = *state;
    int deaf = subscribe(f);
    for (unsigned i = 0; i < 2 * FEED_QUEUE_MAX; i++)
        publish(
            // without a turn of the loop: the kernel has at most the data of the first write
            f, "x");
    assert_true(metrics_sum(METRIC_FEED_LOST) >= FEED_QUEUE_MAX - 1);
    (void)close(deaf); // while all of them still wait
    until_peers(f, 0);
}

static void
a_peer_over_tcp_gets_the_same_in_tcps_frames(void **state)
{
    struct fixture *f = *state;
    char bound[TRANSPORT_BOUND_BYTES];
    struct feed *feed = NULL;
    struct err e;
    uint8_t hello[SP_HELLO_BYTES];
    feed_close(f->feed);
    assert_int_equal(feed_open(&f->loop, f->hub, "tcp://127.0.0.1:0", bound, &feed, &e), 0);
    f->feed = feed;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(bound, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    say(fd, sub_hello, sizeof sub_hello);
    until_peers(f, 1);
    int flags = MSG_DONTWAIT;
    uint64_t end = now_ms() + TIMEOUT_MS;
    while (recv(fd, hello, sizeof hello, flags | MSG_PEEK) != SP_HELLO_BYTES && now_ms() < end)
        turn(f, fd);
    assert_int_equal(recv(fd, hello, sizeof hello, flags), SP_HELLO_BYTES);
    publish(f, "x");
    while (recv(fd, hello, 1, flags | MSG_PEEK) != 1 && now_ms() < end)
        turn(f, fd);
    assert_int_equal(message(f, fd, IPC_HEADER - 1), 1);
    (void)close(fd);
    until_peers(f, 0);
}

static void
closing_the_feed_closes_all_peers(void **state)
{
    struct fixture *f = *state;
    uint8_t byte = 0;
    int greeted = subscribe(f);
    int silent = dial(f);
    until_peers(f, 2);
    publish(f, "the last");
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    feed_close(f->feed);
    feed_close(f->feed); // closing twice is harmless
    publish(f, "for nobody");
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    f->feed = NULL;
    while (recv(greeted, &byte, 1, 0) == 1)
        ;
    assert_true(recv(greeted, &byte, 1, 0) <= 0 && errno != EAGAIN);
    assert_true(recv(silent, &byte, 1, 0) <= 0 && errno != EAGAIN);
    (void)close(greeted);
    (void)close(silent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(addresses_that_cannot_be_used_are_refused),
        TEST(peers_that_are_not_sub_sockets_are_closed),
        TEST(a_sub_socket_that_sends_more_is_closed),
        TEST(half_a_hello_gets_no_message_and_times_out),
        TEST(the_65th_peer_is_closed_until_another_leaves),
        TEST(a_peer_that_does_not_read_loses_whole_messages_and_others_none),
        TEST(small_messages_have_a_bound_of_their_own),
        TEST(a_peer_over_tcp_gets_the_same_in_tcps_frames),
        TEST(closing_the_feed_closes_all_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
