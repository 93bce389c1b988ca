// SPDX-License-Identifier: Apache-2.0
// See feed.h.
#include "feed.h"

#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "tty.h"

enum {
    CHUNK_BYTES = 60 * 1024, // Input accepts at most 65,536
    RETRY_MS_MIN = 5,
    RETRY_MS_MAX = 200,
    REPEAT_MS = 100, // cancels again, in case the call had not begun
};

enum source { SOURCE_SIGNAL, SOURCE_EVENT, SOURCE_INPUT, SOURCE_OUTLET, SOURCES };

struct feed {
    struct feed_options o;
    pthread_t thread;
    int signal_fd, event_fd;
    pthread_mutex_t lock; // protects the members that the main thread sets
    char id[CLI_ID_SIZE]; // "" before it runs
    bool stop;

    // of the thread
    char process[CLI_ID_SIZE];
    bool reading;
    struct feed_end end;
    bool from_terminal; // stdin is a terminal
    unsigned signals;
    bool cancelling;
    char chunk[CHUNK_BYTES];
    size_t chunk_n;
    bool ending;  // the end of input must be sent again
    int retry_ms; // 0: none
};

static void
fill_signals(sigset_t *set)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    (void)sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaddset(set, numbers[i]);
    struct sigaction hup;
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler == SIG_IGN)
        (void)sigdelset(set, SIGHUP);
}

void
feed_block_signals(void)
{
    sigset_t set;
    fill_signals(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void
resize(struct feed *f)
{
    uint32_t rows = 0, columns = 0;
    if (!f->o.terminal || f->process[0] == '\0')
        return;
    tty_size(&rows, &columns);
    (void)stockade_resize(f->o.s, f->process, rows, columns, NULL);
}

static void
cancel(struct feed *f)
{
    if (f->o.kills && !f->cancelling && f->process[0] != '\0')
        (void)stockade_signal(f->o.s, f->process, SIGKILL, true, NULL);
    f->cancelling = f->end.cancelled = true;
    stockade_interrupt(f->o.s);
}

static void
on_signal(struct feed *f, int number)
{
    if (number == SIGWINCH) {
        resize(f);
        return;
    }
    if (f->signals++ == 0)
        f->end.signal = number;
    if (f->signals >= 3) {
        tty_restore();
        _exit(128 + number);
    }
    bool forward = f->o.signals && f->signals == 1 && f->process[0] != '\0';
    if (!forward || stockade_signal(f->o.s, f->process, number, true, NULL) < 0) {
        cancel(f);
        return;
    }
    if (number == SIGINT && isatty(STDERR_FILENO))
        (void)fprintf(stderr,
                      "stockade: sent the signal to the job; repeat it to cancel the job\n");
}

static void
read_signals(struct feed *f)
{
    struct signalfd_siginfo info;
    while (read(f->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        on_signal(f, (int)info.ssi_signo);
}

static void
retry_later(struct feed *f)
{
    f->retry_ms = f->retry_ms == 0 ? RETRY_MS_MIN : 2 * f->retry_ms;
    if (f->retry_ms > RETRY_MS_MAX)
        f->retry_ms = RETRY_MS_MAX;
}

// Without the end of input a job that reads all of it would never end. Sending it twice does no harm.
static void
send_end(struct feed *f)
{
    struct stockade_error e;
    f->ending = stockade_close_input(f->o.s, f->process, &e) < 0 &&
                (e.code == STOCKADE_RESOURCE_EXHAUSTED || e.code == STOCKADE_UNAVAILABLE ||
                 e.code == STOCKADE_DEADLINE_EXCEEDED);
    if (f->ending)
        retry_later(f);
    else
        f->retry_ms = 0;
}

// The call was refused before anything was executed: the queue of the job's input is full, or the connection that it was
// sent on is being closed by a broker that shuts down.
static bool
was_refused(const struct stockade_error *e)
{
    return e->code == STOCKADE_RESOURCE_EXHAUSTED ||
           (e->code == STOCKADE_UNAVAILABLE && strcmp(e->reason, "GOAWAY") == 0);
}

// The queued chunk: was sent, must be retried later, or is not needed any more.
static void
send_chunk(struct feed *f)
{
    struct stockade_error e;
    if (stockade_input(f->o.s, f->process, f->chunk, f->chunk_n, &e) == 0) {
        f->chunk_n = 0;
        f->retry_ms = 0;
    } else if (was_refused(&e)) {
        retry_later(f);
    } else {
        f->reading = false; // the job has ended, or has closed its stdin
        f->retry_ms = 0;
    }
}

static void
read_input(struct feed *f)
{
    ssize_t n = read(STDIN_FILENO, f->chunk, sizeof f->chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    f->reading = n > 0;
    if (n < 0 && !(errno == EIO && f->from_terminal)) { // EIO: the terminal was closed
        f->end.input_error = errno;
        cancel(f);
        return;
    }
    if (n <= 0) {
        send_end(f);
        return;
    }
    f->chunk_n = (size_t)n;
    send_chunk(f);
}

// Handles a change by the main thread. False: stop.
static bool
read_event(struct feed *f)
{
    eventfd_t count = 0;
    (void)eventfd_read(f->event_fd, &count);
    pthread_mutex_lock(&f->lock);
    bool stop = f->stop;
    bool began = f->process[0] == '\0' && f->id[0] != '\0';
    if (began)
        memcpy(f->process, f->id, sizeof f->id);
    pthread_mutex_unlock(&f->lock);
    if (began) {
        f->reading = f->o.input;
        resize(f);
    }
    return !stop;
}

static int
wait_ms(const struct feed *f)
{
    if (f->retry_ms != 0)
        return f->retry_ms;
    return f->cancelling ? REPEAT_MS : -1;
}

static void *
feed_main(void *cookie)
{
    struct feed *f = cookie;
    for (;;) {
        struct pollfd p[SOURCES] = {
            [SOURCE_SIGNAL] = {.fd = f->signal_fd, .events = POLLIN},
            [SOURCE_EVENT] = {.fd = f->event_fd, .events = POLLIN},
            [SOURCE_INPUT] = {.fd = f->reading && f->chunk_n == 0 ? STDIN_FILENO : -1,
                              .events = POLLIN},
            [SOURCE_OUTLET] = {.fd = f->o.outlet && !f->cancelling ? STDOUT_FILENO : -1},
        };
        int n = poll(p, SOURCES, wait_ms(f));
        if (n < 0 && errno != EINTR)
            return NULL;
        if (n > 0 && p[SOURCE_EVENT].revents != 0 && !read_event(f))
            return NULL;
        if (n > 0 && p[SOURCE_SIGNAL].revents != 0)
            read_signals(f);
        if (n > 0 && p[SOURCE_INPUT].revents != 0)
            read_input(f);
        else if (f->ending)
            send_end(f);
        else if (f->retry_ms != 0)
            send_chunk(f);
        if (n > 0 && p[SOURCE_OUTLET].revents != 0) // POLLERR or POLLHUP: the reader has closed it
            f->cancelling = true;
        if (f->cancelling)
            stockade_interrupt(f->o.s);
    }
}

static void
feed_free(struct feed *f)
{
    if (f->signal_fd >= 0)
        (void)close(f->signal_fd);
    if (f->event_fd >= 0)
        (void)close(f->event_fd);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

struct feed *
feed_start(const struct feed_options *o)
{
    struct feed *f = calloc(1, sizeof *f);
    if (f == NULL) {
        (void)fprintf(stderr, "stockade: out of memory\n");
        return NULL;
    }
    sigset_t set;
    fill_signals(&set);
    f->o = *o;
    f->from_terminal = isatty(STDIN_FILENO);
    (void)pthread_mutex_init(&f->lock, NULL);
    f->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    f->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int sys = f->signal_fd < 0 || f->event_fd < 0 ? errno
                                                  : pthread_create(&f->thread, NULL, feed_main, f);
    if (sys != 0) {
        (void)fprintf(stderr, "stockade: cannot watch stdin and signals: %s\n%s",
                      strerrordesc_np(sys),
                      sys == EMFILE ? "  hint: raise the limit of open files, 'ulimit -n'\n" : "");
        feed_free(f);
        return NULL;
    }
    return f;
}

void
feed_started(struct feed *f, const char *process_id)
{
    pthread_mutex_lock(&f->lock);
    (void)snprintf(f->id, sizeof f->id, "%s", process_id);
    pthread_mutex_unlock(&f->lock);
    (void)eventfd_write(f->event_fd, 1);
}

struct feed_end
feed_stop(struct feed *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    (void)eventfd_write(f->event_fd, 1);
    (void)pthread_join(f->thread, NULL);
    struct feed_end end = f->end;
    feed_free(f);
    return end;
}
