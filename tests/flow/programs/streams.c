// SPDX-License-Identifier: Apache-2.0
// Thousands of streams in one thread: a program of libstockade that only includes stockade.h (tests/flow/streams.py).
//
//   streams HANDLES STREAMS BYTES_MAX
//
// The streams follow the output of one job; every hundredth follows its events (the broker accepts 32 subscriptions of one
// caller). All must be open and have received something before the job may end, and all must see its end. BYTES_MAX bounds
// what each takes in this process.
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stockade.h>

enum { HANDLES_MAX = 64, LINES = 200, TIMEOUT_S = 120 };

static const char job[] =
    "echo ready; read x; i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; exit 7";

struct stream {
    uint64_t call;
    size_t bytes;
    unsigned sum, events;
    int begun, ended; // the first message and on_end came
};

static struct stockade *handles[HANDLES_MAX];
static struct pollfd fds[HANDLES_MAX];
static int handles_n;
static struct stream *streams;
static int streams_n, live, ended;
static struct stockade_error e;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "line %d: %s (%s: %s)\n", __LINE__, #x, stockade_code_name(e.code),    \
                    e.text);                                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// A line of /proc/self/status.
static long
status(const char *name)
{
    char line[128];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "re");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    fclose(f);
    CHECK(value >= 0);
    return value;
}

static int
follows_events(int i)
{
    return i % 100 == 99;
}

static void
is_live(struct stream *st)
{
    live += !st->begun;
    st->begun = 1;
}

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct stream *st = cookie;
    CHECK(stream == STOCKADE_STDOUT && offset == st->bytes);
    for (size_t i = 0; i < n; i++)
        st->sum = st->sum * 31 + ((const unsigned char *)bytes)[i];
    st->bytes += n;
    is_live(st);
    return 0;
}

static int
on_event(void *cookie, const struct stockade_event *event)
{
    struct stream *st = cookie;
    st->events++;
    is_live(st);
    return strcmp(event->kind, "JOB_ENDED") == 0; // enough
}

static void
on_attach_end(void *cookie, const struct stockade_end *end)
{
    struct stream *st = cookie;
    if (end->error != NULL)
        e = *end->error;
    CHECK(end->error == NULL && end->call == st->call && !st->ended);
    CHECK(end->result != NULL && end->result->exit_code == 7);
    st->ended = 1;
    ended++;
}

static void
on_events_end(void *cookie, const struct stockade_end *end)
{
    struct stream *st = cookie;
    CHECK(end->error != NULL && end->call == st->call && !st->ended);
    e = *end->error;
    CHECK(end->error->code == STOCKADE_CANCELLED && st->events >= 2);
    st->ended = 1;
    ended++;
}

static void
begin(int i, const char *process, const char *sandbox)
{
    struct stream *st = &streams[i];
    struct stockade *s = handles[i % handles_n];
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    a.cookie = st;
    a.credit = 4;
    if (!follows_events(i)) {
        struct stockade_handlers h = {.on_output = on_output, .cookie = st};
        a.on_end = on_attach_end;
        CHECK(stockade_begin_attach(s, process, 0, &h, &a, &st->call, &e) == 0);
        return;
    }
    struct stockade_event_handlers h = {.on_event = on_event, .cookie = st};
    struct stockade_events_options o = STOCKADE_EVENTS_OPTIONS_INIT;
    o.sandboxes = &sandbox;
    o.sandboxes_n = 1;
    o.kinds = (const char *const[]){"JOB_STARTED", "JOB_ENDED"};
    o.kinds_n = 2;
    o.from_sequence = 1;
    a.on_end = on_events_end;
    CHECK(stockade_begin_events(s, &o, &h, &a, &st->call, &e) == 0);
}

// The poll loop: until *counter has come to `wanted`.
static void
loop_until(const int *counter, int wanted)
{
    time_t until = time(NULL) + TIMEOUT_S;
    while (*counter < wanted) {
        int n = poll(fds, (nfds_t)handles_n, 1000);
        CHECK(n >= 0 && time(NULL) < until);
        for (int i = 0; i < handles_n; i++)
            if (fds[i].revents != 0)
                CHECK(stockade_pump(handles[i], 0, &e) >= 0);
    }
}

static char process_id[64];

static int
on_started(void *cookie, const char *process, const char *sandbox, uint32_t pid)
{
    (void)cookie, (void)sandbox, (void)pid;
    snprintf(process_id, sizeof process_id, "%s", process);
    return 0;
}

static const struct stockade_sandbox *
start_job(struct stockade *s)
{
    const struct stockade_sandbox *box = NULL;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_handlers h = {.on_started = on_started};
    CHECK(stockade_create(s, NULL, &box, &e) == 0);
    o.sandbox = box->id;
    o.command.args = (const char *const[]){"sh", "-c", job, NULL};
    o.command.stdin_open = true;
    o.detach = true;
    CHECK(stockade_start(s, &o, &h, NULL, &e) == 0);
    return box;
}

// What each follower of the output must have received.
static void
check_output(void)
{
    char line[32];
    struct stream all = {0};
    CHECK(on_output(&all, STOCKADE_STDOUT, "ready\n", 6, 0) == 0);
    for (int i = 0; i < LINES; i++) {
        int n = snprintf(line, sizeof line, "line %d\n", i);
        CHECK(on_output(&all, STOCKADE_STDOUT, line, (size_t)n, all.bytes) == 0);
    }
    for (int i = 0; i < streams_n; i++)
        if (!follows_events(i))
            CHECK(streams[i].bytes == all.bytes && streams[i].sum == all.sum);
}

int
main(int argc, char **argv)
{
    CHECK(argc == 4);
    handles_n = atoi(argv[1]);
    streams_n = atoi(argv[2]);
    CHECK(handles_n > 0 && handles_n <= HANDLES_MAX && streams_n > 0);
    streams = calloc((size_t)streams_n, sizeof *streams);
    CHECK(streams != NULL);
    for (int i = 0; i < handles_n; i++) {
        CHECK(stockade_open(&handles[i], NULL, &e) == 0);
        fds[i] = (struct pollfd){.fd = stockade_fd(handles[i], &e), .events = POLLIN};
        CHECK(fds[i].fd >= 0);
    }
    const struct stockade_sandbox *box = start_job(handles[0]);
    long before = status("VmRSS:");
    for (int i = 0; i < streams_n; i++)
        begin(i, process_id, box->id);
    loop_until(&live, streams_n);
    CHECK(ended == 0 && live == streams_n); // all of them at once
    long taken = status("VmRSS:") - before;
    CHECK(status("Threads:") == 1);
    CHECK(stockade_input(handles[0], process_id, "\n", 1, &e) == 0);
    loop_until(&ended, streams_n);
    check_output();
    long most = status("VmRSS:") - before;
    CHECK(status("Threads:") == 1);
    printf("%d streams on %d handles: %ld bytes each while they are open, %ld at the end\n",
           streams_n, handles_n, taken * 1024 / streams_n, most * 1024 / streams_n);
    CHECK(most * 1024 / streams_n <= strtol(argv[3], NULL, 10));
    CHECK(stockade_delete(handles[0], box->id, &e) == 0);
    stockade_free(box);
    for (int i = 0; i < handles_n; i++)
        stockade_close(handles[i]);
    free(streams);
    return 0;
}
