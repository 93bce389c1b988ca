// SPDX-License-Identifier: Apache-2.0
// `stockade batch`: jobs from a file or a pipe, one per line, and a line of JSON for the result of each.
//
//   lines -> queue -> AddToBatch (as far as the window permits) ... RunBatch -> a line -> confirmed with AddToBatch
//
// A result is confirmed after its line was written, so a command that is killed loses none: with --key and --resume
// another one continues. A lost connection is made again for RECONNECT_MS; the batch goes on meanwhile.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/requests.h"
#include "client/results.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "batch_input.h"
#include "cli.h"
#include "commands.h"
#include "json.h"

enum {
    RESULT_ARENA_MAX = 4 * 1024 * 1024,
    RECONNECT_MS = 60000, // a host that starts again, too
    RETRY_MS = 100,
    PROGRESS_MS = 200,
};

static volatile sig_atomic_t interrupted;

static void
on_signal(int number)
{
    interrupted = number;
}

static uint64_t
now_ms(void)
{
    return (uint64_t)now_ns(CLOCK_MONOTONIC) / 1000000;
}

// ---- results

static void
keep_output(struct batch *b, const Stockade__V1__RunBatchResponse__Output *o)
{
    struct output *to = &b->out[o->stream == STOCKADE__V1__STREAM__STREAM_STDERR];
    char *more = realloc(to->bytes, to->n + o->data.len + 1);
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    if (more == NULL) {
        batch_fail(b, &e);
        return;
    }
    memcpy(more + to->n, o->data.data, o->data.len);
    to->bytes = more;
    to->n += o->data.len;
}

static void
forget_output(struct batch *b)
{
    b->out[0].n = b->out[1].n = 0;
}

static void
print_result(struct batch *b, struct arena *a, const Stockade__V1__RunBatchResponse__Finished *f)
{
    struct stockade_result r = {0};
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    if (f->sequence <= b->printed)
        return;
    if (!result_from(&r, a, f->result)) {
        batch_fail(b, &e);
        return;
    }
    const uint64_t missing = r.bill.output_cut_bytes.value + f->lost_bytes;
    json_t *o = json_object();
    (void)json_object_set_new(o, "number", json_integer((json_int_t)f->number));
    (void)json_object_set_new(o, "key", json_string(f->key));
    json_t *rest = json_of_result(&r);
    (void)json_object_update(o, rest);
    json_decref(rest);
    (void)json_object_set_new(o, "process_id", json_string(f->process_id));
    (void)json_set_bytes(o, "stdout", b->out[0].n > 0 ? b->out[0].bytes : "", b->out[0].n);
    (void)json_set_bytes(o, "stderr", b->out[1].n > 0 ? b->out[1].bytes : "", b->out[1].n);
    (void)json_object_set_new(o, "output_missing_bytes", json_integer((json_int_t)missing));
    forget_output(b);
    int code = json_put(o);
    if (code != EXIT_OK) {
        b->code = code;
        return;
    }
    b->printed = f->sequence;
    b->failed += r.outcome != STOCKADE_OUTCOME_EXITED || r.exit_code != 0;
}

static void
on_begun(struct batch *b, const Stockade__V1__RunBatchResponse__Begun *m)
{
    b->begun = true;
    b->lost = false;
    b->lost_ms = 0;
    b->window = m->window;
    b->accepted = m->accepted;
    b->confirmed = b->printed;
    b->said_last = m->last;
    forget_output(b);
}

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct batch *b = cookie;
    struct arena *auto_arena a = arena_new(RESULT_ARENA_MAX);
    ProtobufCMessage *m = NULL;
    struct stockade_error e;
    struct err bad;
    if (a == NULL ||
        wire_unpack(&stockade__v1__run_batch_response__descriptor, bytes, n, a, &m, &bad) != 0) {
        e = (struct stockade_error){.code = STOCKADE_DATA_LOSS,
                                    .text = "the broker sent a message that is not valid"};
        batch_fail(b, &e);
        return 1;
    }
    const Stockade__V1__RunBatchResponse *r = (const Stockade__V1__RunBatchResponse *)m;
    if (r->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_BEGUN)
        on_begun(b, r->begun);
    else if (r->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_OUTPUT)
        keep_output(b, r->output);
    else if (r->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_FINISHED)
        print_result(b, a, r->finished);
    else if (r->event_case == STOCKADE__V1__RUN_BATCH_RESPONSE__EVENT_ENDED)
        b->ended = true;
    return b->code != EXIT_OK;
}

// ---- calls

// After a restart the broker does not know the batch any more.
static void
say_unknown(struct batch *b, const struct stockade_error *e)
{
    struct stockade_error lost = *e;
    if (b->said_last && b->queue_n == 0 && b->printed == b->accepted) {
        b->ended = true; // only the end was lost
        return;
    }
    (void)snprintf(
        lost.text, sizeof lost.text,
        "the broker does not know the batch any more: %llu jobs that it accepted have no "
        "result, and it is unknown whether they were executed",
        (unsigned long long)(b->accepted - b->printed));
    batch_fail(b, &lost);
}

static void
on_stream_end(void *cookie, const struct stockade_end *end)
{
    struct batch *b = cookie;
    b->call = 0;
    if (b->ended || b->code != EXIT_OK)
        return;
    if (end->error == NULL)
        b->ended = true;
    else if (end->error->code == STOCKADE_NOT_FOUND && b->begun)
        say_unknown(b, end->error);
    else if (end->error->code != STOCKADE_UNAVAILABLE || !b->begun ||
             (b->lost_ms != 0 && now_ms() - b->lost_ms > RECONNECT_MS))
        batch_fail(b, end->error);
    else
        b->lost = true;
    if (b->lost && b->lost_ms == 0)
        b->lost_ms = now_ms();
}

static int
begin(struct batch *b, const char *method, const ProtobufCMessage *m,
      int (*each)(void *cookie, const void *bytes, size_t n),
      void (*on_end)(void *cookie, const struct stockade_end *end), uint64_t *call,
      struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async async = STOCKADE_ASYNC_INIT;
    uint8_t *auto_free packed = NULL;
    size_t n = 0;
    if (invoke_pack(m, &packed, &n, e) < 0)
        return -1;
    r.method = method;
    r.body = (struct stockade_bytes){packed, n};
    r.on_message = each;
    r.cookie = b;
    async.on_end = on_end;
    async.cookie = b;
    return stockade_begin(b->s, &r, &async, call, e);
}

static int
fill(struct batch *b, Stockade__V1__RunBatchRequest *m, struct arena *a, struct stockade_error *e)
{
    const struct options *o = b->o;
    struct stockade_policy policy;
    struct err bad;
    bool resumes = b->begun || o->resume;
    m->key = b->key;
    m->resume = resumes;
    m->received = b->begun ? b->printed : 0;
    if (resumes)
        return 0;
    m->template_ = o->template_name != NULL ? o->template_name : "";
    m->reset = o->reset != NULL && strcmp(o->reset, "files") == 0
                   ? STOCKADE__V1__BATCH_RESET__BATCH_RESET_FILES
                   : STOCKADE__V1__BATCH_RESET__BATCH_RESET_SANDBOX;
    m->parallel = (uint32_t)o->parallel;
    m->window = (uint32_t)o->window;
    m->deadline_ms = o->deadline_ms;
    int r = request_limits(&m->limits, a, &o->limits, &bad);
    if (r == 0 && options_policy(o, &policy))
        r = request_network(&m->network, a, policy.mode, &policy, &bad);
    if (r == 0)
        r = request_mounts(&m->volumes, &m->n_volumes, a, o->mounts, o->mounts_n, &bad);
    if (r == 0)
        return 0;
    *e = (struct stockade_error){.code = bad.code};
    (void)snprintf(e->text, sizeof e->text, "%s", bad.text);
    return r;
}

static void
follow(struct batch *b)
{
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    Stockade__V1__RunBatchRequest m = STOCKADE__V1__RUN_BATCH_REQUEST__INIT;
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    int r = a != NULL ? fill(b, &m, a, &e) : -1;
    if (r == 0)
        r = begin(b, "/stockade.v1.ProcessService/RunBatch", &m.base, on_message, on_stream_end,
                  &b->call, &e);
    b->lost = false;
    if (r == 0)
        return;
    b->call = 0;
    if (e.code == STOCKADE_UNAVAILABLE && b->begun && now_ms() - b->lost_ms <= RECONNECT_MS)
        b->lost = true;
    else
        batch_fail(b, &e);
}

static void
on_added(void *cookie, const struct stockade_end *end)
{
    struct batch *b = cookie;
    struct arena *auto_arena a = arena_new(BATCH_JOB_ARENA_MAX);
    ProtobufCMessage *m = NULL;
    struct err bad;
    b->adding = false;
    if (end->error != NULL && end->error->code == STOCKADE_UNAVAILABLE &&
        strcmp(end->error->reason, "DRAINING") != 0)
        return; // the stream is lost, too, and begins again
    if (end->error != NULL && (end->error->code == STOCKADE_UNAVAILABLE ||
                               end->error->code == STOCKADE_DEADLINE_EXCEEDED)) {
        b->stopped = true;
        b->why = *end->error;
    } else if (end->error != NULL && end->error->code == STOCKADE_NOT_FOUND && !b->stopped) {
        // it has just ended, or the broker was restarted: the stream knows which
        b->stopped = true;
        b->why = (struct stockade_error){.code = STOCKADE_DEADLINE_EXCEEDED,
                                         .text = "the batch ended before all jobs were accepted"};
    } else if (end->error != NULL) {
        if (!b->lost && b->call != 0)
            batch_fail(b, end->error);
    } else if (a != NULL && wire_unpack(&stockade__v1__add_to_batch_response__descriptor,
                                        end->response.bytes, end->response.n, a, &m, &bad) == 0) {
        uint64_t accepted = ((const Stockade__V1__AddToBatchResponse *)m)->accepted;
        b->accepted = accepted > b->accepted ? accepted : b->accepted;
        b->said_last |= b->last_is_sent && accepted == b->last_after;
        batch_drop_accepted(b);
    }
}

// Sends jobs and confirms results, where that is worth a call.
static void
add(struct batch *b)
{
    Stockade__V1__AddToBatchRequest m = STOCKADE__V1__ADD_TO_BATCH_REQUEST__INIT;
    Stockade__V1__BatchJob *jobs[BATCH_QUEUE_MAX];
    struct stockade_error e;
    uint64_t open = b->accepted - b->printed;
    uint64_t unconfirmed = b->printed - b->confirmed;
    size_t n = b->stopped || open >= b->window ? 0 : b->queue_n;
    bool all = b->eof && b->line_n == 0 && !b->stopped;
    bool ends = all && !b->said_last && n == b->queue_n;
    if (b->adding || !b->begun || b->call == 0 || b->front < b->accepted ||
        (n == 0 && !ends && unconfirmed < (open == 0 && unconfirmed > 0 ? 1 : b->window / 4 + 1)))
        return;
    for (size_t i = 0; i < n; i++)
        jobs[i] = b->queue[i].job;
    m.key = b->key;
    m.first = b->front;
    m.jobs = jobs;
    m.n_jobs = n;
    m.last = ends;
    m.received = b->printed;
    if (begin(b, "/stockade.v1.ProcessService/AddToBatch", &m.base, NULL, on_added, NULL, &e) < 0)
        return; // the stream ends, too
    b->adding = true;
    b->confirmed = b->printed;
    b->last_is_sent = ends;
    b->last_after = b->front + n;
}

// ---- the command

static void
show_progress(struct batch *b, bool last)
{
    const uint64_t now = now_ms();
    if (isatty(STDERR_FILENO) == 0 || isatty(STDOUT_FILENO) != 0 ||
        (!last && now - b->shown_ms < PROGRESS_MS))
        return;
    b->shown_ms = now;
    double seconds = (double)(now - b->began_ms + 1) / 1000;
    (void)fprintf(stderr, "\r%llu of %llu%s results, %llu failed, %.0f per second%s ",
                  (unsigned long long)b->printed, (unsigned long long)b->accepted,
                  b->said_last ? "" : " or more", (unsigned long long)b->failed,
                  (double)b->printed / seconds, b->lost ? " (connection lost)" : "");
    if (last)
        (void)fputc('\n', stderr);
}

static void
wait_for_more(struct batch *b, int fd)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = b->in, .events = POLLIN}};
    nfds_t n = batch_wants_input(b) ? 2 : 1;
    if (poll(p, n, b->lost ? RETRY_MS : PROGRESS_MS) > 0 && n == 2 && p[1].revents != 0)
        batch_read_more(b);
}

static int
work(struct batch *b)
{
    struct stockade_error e;
    int fd = stockade_fd(b->s, &e);
    if (fd < 0)
        batch_fail(b, &e);
    else
        follow(b);
    while (b->code == EXIT_OK && !b->ended && interrupted == 0) {
        if (b->lost)
            follow(b);
        batch_split(b);
        batch_drop_accepted(b);
        add(b);
        if (stockade_pump(b->s, 0, &e) < 0)
            batch_fail(b, &e);
        show_progress(b, false);
        if (b->code == EXIT_OK && !b->ended)
            wait_for_more(b, fd);
    }
    show_progress(b, true);
    if (b->code == EXIT_OK && !b->ended)
        b->code = EXIT_SIGNAL + interrupted;
    else if (b->code == EXIT_OK && b->stopped)
        batch_fail(b, &b->why);
    if (b->call != 0) { // the jobs that are left are cancelled
        (void)stockade_cancel(b->s, b->call, &e);
        while (b->call != 0 && stockade_pump(b->s, RETRY_MS, &e) > 0) {
        }
    }
    return b->code != EXIT_OK ? b->code : b->failed != 0 ? EXIT_PROBLEM : EXIT_OK;
}

static int
open_input(struct batch *b)
{
    const char *name = b->o->args[0];
    char why[256];
    b->in = strcmp(name, "-") == 0 ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    if (b->in >= 0)
        return 0;
    (void)snprintf(why, sizeof why, "%.150s: %s", name, strerror(errno));
    return cli_usage(b->c, why, "");
}

static int
choose_key(struct batch *b)
{
    uint8_t random[16];
    if (b->o->resume && b->o->key == NULL)
        return cli_usage(b->c, "--resume needs --key", "the key that the batch began with");
    if (b->o->key != NULL && strlen(b->o->key) >= sizeof b->key)
        return cli_usage(b->c, "--key is longer than 128 bytes", "");
    if (b->o->key != NULL) {
        (void)snprintf(b->key, sizeof b->key, "%s", b->o->key);
        return 0;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return cli_usage(b->c, "no random numbers", "");
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(b->key + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static void
batch_free(struct batch *b)
{
    while (b->queue_n > 0)
        batch_drop_first(b);
    if (b->in > STDIN_FILENO)
        (void)close(b->in);
    stockade_close(b->s);
    free(b->line);
    free(b->out[0].bytes);
    free(b->out[1].bytes);
}

int
cli_batch(const struct command *c, const struct options *o)
{
    static struct batch b;
    struct sigaction action = {.sa_handler = on_signal};
    b = (struct batch){.c = c, .o = o, .in = -1, .began_ms = now_ms()};
    b.line = malloc(BATCH_LINE_MAX + 1);
    int code = b.line == NULL ? EXIT_PROBLEM : choose_key(&b);
    if (code == 0)
        code = open_input(&b);
    if (code == 0) {
        batch_check_file(&b);
        code = b.code;
    }
    if (code == 0)
        b.s = cli_open(c, o, &code);
    if (b.s != NULL) {
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        code = work(&b);
    }
    batch_free(&b);
    return code;
}
