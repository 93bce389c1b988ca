// SPDX-License-Identifier: Apache-2.0
// What a program of one thread may expect besides many streams (tests/flow/streams.py): refusals reach one call alone, a
// slow reader buffers little and loses nothing, and calls that wait work in the middle of it.
//
//   slow STREAMS_MAX BUFFER_BYTES_MAX
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stockade.h>

static struct stockade_error e;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "line %d: %s (%s: %s)\n", __LINE__, #x, stockade_code_name(e.code),    \
                    e.text);                                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static long
rss_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    CHECK(f != NULL && fscanf(f, "%*s %ld", &pages) == 1);
    fclose(f);
    return pages * 4096;
}

// Pumps as often as the descriptor asks for it: until *counter comes to `wanted`, or for ms.
static void
loop(struct stockade *s, const int *counter, int wanted, long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long until = t.tv_sec * 1000 + t.tv_nsec / 1000000 + ms, now = 0;
    struct pollfd p = {.fd = stockade_fd(s, &e), .events = POLLIN};
    CHECK(p.fd >= 0);
    while (*counter < wanted && now < until) {
        if (poll(&p, 1, 50) > 0)
            CHECK(stockade_pump(s, 0, &e) >= 0);
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
}

// ---- One stream too many

struct counts {
    int ended, refused, cancelled;
};

static int
ignore(void *cookie, const void *bytes, size_t n)
{
    (void)cookie, (void)bytes, (void)n;
    return 0;
}

static void
on_watch_end(void *cookie, const struct stockade_end *end)
{
    struct counts *c = cookie;
    CHECK(end->error != NULL);
    c->ended++;
    c->refused += end->error->code == STOCKADE_RESOURCE_EXHAUSTED;
    c->cancelled += end->error->code == STOCKADE_CANCELLED;
}

static void
one_stream_too_many_is_refused_and_the_others_go_on(struct stockade *s, int streams_max)
{
    struct counts c = {0};
    uint64_t calls[4096];
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    a.on_end = on_watch_end;
    a.cookie = &c;
    r.method = "/stockade.v1.HealthService/Watch";
    r.on_message = ignore;
    CHECK(streams_max < 4096);
    for (int i = 0; i <= streams_max; i++)
        CHECK(stockade_begin(s, &r, &a, &calls[i], &e) == 0);
    loop(s, &c.ended, 1, 20000);
    CHECK(c.ended == 1 && c.refused == 1);
    loop(s, &c.ended, 2, 200);
    CHECK(c.ended == 1);
    for (int i = 0; i < streams_max; i++)
        CHECK(stockade_cancel(s, calls[i], &e) == 0);
    loop(s, &c.ended, streams_max + 1, 20000);
    CHECK(c.cancelled == streams_max && stockade_pump(s, 0, &e) == 0);
    CHECK(stockade_cancel(s, calls[0], &e) < 0 && e.code == STOCKADE_NOT_FOUND);
}

// ---- A slow reader

enum { OUTPUT_BYTES = 48 * 1000 * 1000 };

struct reader {
    struct stockade *s;
    uint64_t call;
    size_t bytes, missing;
    int messages, ended;
    bool answered; // to a call that waits, in a callback
};

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct reader *r = cookie;
    (void)stream, (void)bytes;
    CHECK(offset == r->bytes + r->missing);
    r->bytes += n;
    if (r->messages++ == 0) {
        const struct stockade_info *info = NULL;
        CHECK(stockade_hold(r->s, r->call, true, &e) == 0);
        CHECK(stockade_info(r->s, &info, &e) == 0 && info->processes > 0);
        stockade_free(info);
        r->answered = true;
        CHECK(stockade_pump(r->s, 0, &e) < 0 && e.code == STOCKADE_FAILED_PRECONDITION);
    }
    return 0;
}

static int
on_gap(void *cookie, uint64_t offset, uint64_t n, bool limit)
{
    struct reader *r = cookie;
    CHECK(offset == r->bytes + r->missing && !limit);
    r->missing += n;
    return 0;
}

static void
on_run_end(void *cookie, const struct stockade_end *end)
{
    struct reader *r = cookie;
    if (end->error != NULL)
        e = *end->error;
    CHECK(end->error == NULL && end->result->exit_code == 0);
    CHECK(end->result->bill.output_bytes.value == OUTPUT_BYTES);
    r->ended++;
}

static void
a_slow_reader_buffers_little_and_then_gets_everything(struct stockade *s, long buffer_max)
{
    struct reader r = {.s = s};
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_handlers h = {.on_output = on_output, .on_gap = on_gap, .cookie = &r};
    a.on_end = on_run_end;
    a.cookie = &r;
    o.command.args = (const char *const[]){"head", "-c", "48000000", "/dev/zero", NULL};
    long before = rss_bytes();
    CHECK(stockade_begin_run(s, &o, &h, &a, &r.call, &e) == 0);
    loop(s, &r.ended, 1, 2000);
    CHECK(r.messages == 1 && r.answered && r.ended == 0); // held
    long held = rss_bytes() - before;
    printf("%ld bytes while 48 MB wait\n", held);
    CHECK(held < buffer_max);
    CHECK(stockade_hold(s, r.call, false, &e) == 0);
    loop(s, &r.ended, 1, 60000);
    CHECK(r.ended == 1 && r.bytes + r.missing == OUTPUT_BYTES && r.missing == 0);
}

int
main(int argc, char **argv)
{
    struct stockade *s = NULL;
    CHECK(argc == 3);
    CHECK(stockade_open(&s, NULL, &e) == 0);
    one_stream_too_many_is_refused_and_the_others_go_on(s, atoi(argv[1]));
    a_slow_reader_buffers_little_and_then_gets_everything(s, strtol(argv[2], NULL, 10));
    stockade_close(s);
    return 0;
}
