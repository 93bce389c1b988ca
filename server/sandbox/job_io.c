// SPDX-License-Identifier: Apache-2.0
// The pipes of a job, or its terminal: stores its output, and queues its input until the job reads it.
#include "job_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/auto.h"
#include "sandbox.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/unblock.h"

enum {
    READ_MAX = 64 * 1024,
    DRAIN_READS_MAX = 256, // per pipe: 16 MiB, four times the final size of the output
    SMALL_READ = 2048, // reads smaller than this that follow each other within BATCH_MS are delayed
    BATCH_MS = 2,
    SPACE_AGAIN_MS = 500, // a stalled reader is detected after this time at the latest
    MAJOR_PTMX = 5,       // Documentation/admin-guide/devices.txt
    MINOR_PTMX = 2,
    MAJOR_PTY_MASTER = 128,
    CTRL_D = 4,
    // Writes to a terminal that waited for UNBLOCK_MS, before its guest counts as hostile. One may be an accident, since a
    // signal interrupts any; a read that waited shows that the terminal is blocking.
    WAITS_MAX = 8,
};

static uv_loop_t *
loop_of(const struct job *j)
{
    return j->all->srv->loop;
}

static void
close_end(struct job *j, int i)
{
    loop_poll_stop(&j->poll[i]);
    if (j->fd[i] >= 0)
        (void)close(j->fd[i]);
    j->fd[i] = -1;
}

// A job may reopen its own stdout through /proc/self/fd, with the permissions of the file, so everyone gets them.
static int
make_pipe(int ends[2], int ours, struct err *e)
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    if (fchmod(ends[0], 0666) < 0 || fcntl(ends[ours], F_SETFL, O_NONBLOCK) < 0) {
        int sys = errno;
        (void)close(ends[0]);
        (void)close(ends[1]);
        return err_sys(e, sys, "make a pipe");
    }
    return 0;
}

// An unused pipe needs no large buffer. The broker's account has a limit on the pipe pages of all jobs
// (fs.pipe-user-pages-soft); a pipe has 16 by default.
static void
make_small(int fd)
{
    enum { LEAST = 4096 };
    (void)fcntl(fd, F_SETPIPE_SZ, LEAST);
}

static int
queue_input(struct job *j, const uint8_t *bytes, size_t n, struct err *e)
{
    if (j->input_at == j->input_n)
        j->input_at = j->input_n = 0;
    if (j->input_n + n > j->input_size) {
        size_t waits = j->input_n - j->input_at;
        size_t size = waits + n;
        if (!job_take_bytes(j, size)) {
            int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                            "unread output and input of %s use too much memory", j->tenant->name);
            err_detail(e, "BYTES_PER_UID", j->tenant->name,
                       "read the output of its jobs, or wait until they have read their input");
            err_rule(e, "rpc.bytes_per_uid", "input, when there is less unread output");
            return r;
        }
        uint8_t *bigger = malloc(size);
        if (bigger == NULL) {
            job_give_bytes(j, size);
            return err_sys(e, ENOMEM, "queue input");
        }
        job_give_bytes(j, j->input_size);
        if (waits > 0)
            memcpy(bigger, j->input + j->input_at, waits);
        free(j->input);
        j->input = bigger;
        j->input_size = size;
        j->input_at = 0;
        j->input_n = waits;
    }
    memcpy(j->input + j->input_n, bytes, n);
    j->input_n += n;
    return 0;
}

static void
drop_input(struct job *j)
{
    job_give_bytes(j, j->input_size);
    free(j->input);
    j->input = NULL;
    j->input_at = j->input_n = j->input_size = 0;
}

static void
on_blocking_terminal(void *cookie)
{
    struct job *j = cookie;
    struct err e;
    const struct log_about about = {
        .sandbox = j->sandbox_id, .job = j->id.id, .tenant = j->tenant->name};
    (void)err_set(&e, ERR_INTERNAL, "sandbox %s: the guest made a terminal blocking",
                  j->sandbox_id);
    log_err_about(LOG_ERROR, "sandbox-lost", &about, &e);
    metrics_add(METRIC_SANDBOXES_LOST, 1);
    sandbox_destroy(j->sandbox, &e, NULL);
}

// The guest shares a terminal's master and its flags. If it made it blocking, a call waited for a while: the terminal is
// closed, and the sandbox destroyed.
static void
count_waits(struct job *j, unsigned n)
{
    j->waits += n;
    if (j->waits < WAITS_MAX || j->fd[OUT] < 0)
        return;
    close_end(j, IN);
    close_end(j, OUT);
    if (loop_timer_start(loop_of(j), &j->retry, 0, on_blocking_terminal, j) < 0)
        job_cancel(j, "its guest made the terminal blocking");
}

static bool
stays_non_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && ((flags & O_NONBLOCK) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

// As read(2) and write(2), without waiting. errno EAGAIN: not now.
static ssize_t
read_end(struct job *j, int i, void *bytes, size_t n)
{
    if (!j->terminal)
        return read(j->fd[i], bytes, n);
    ssize_t r = stays_non_blocking(j->fd[i]) ? unblock_read(j->fd[i], bytes, n) : -1;
    if (r < 0 && errno == ETIME) {
        count_waits(j, WAITS_MAX);
        errno = EAGAIN;
    }
    return r;
}

static ssize_t
write_end(struct job *j, const void *bytes, size_t n)
{
    if (!j->terminal)
        return write(j->fd[IN], bytes, n);
    ssize_t r = stays_non_blocking(j->fd[IN]) ? unblock_write(j->fd[IN], bytes, n) : -1;
    if (r < 0 && errno == ETIME) {
        count_waits(j, 1);
        errno = EAGAIN;
    }
    return r;
}

// Writes as much as the pipe accepts. Closes the pipe if that was requested or nobody reads it any more.
static void
push_input(struct job *j)
{
    while (j->fd[IN] >= 0 && j->input_at < j->input_n) {
        ssize_t w = write_end(j, j->input + j->input_at, j->input_n - j->input_at);
        if (w < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (w < 0) {
            drop_input(j);
            close_end(j, IN);
            return;
        }
        j->input_at += (size_t)w;
    }
    bool empty = j->input_at == j->input_n;
    if (empty)
        drop_input(j);
    if (empty && j->input_ends)
        close_end(j, IN);
    if (j->poll[IN] != NULL)
        loop_poll_want(j->poll[IN], empty ? 0 : UV_WRITABLE);
}

static void
on_input(void *cookie, int events)
{
    (void)events;
    push_input(cookie);
}

int
job_io_open(struct job *j, const struct job_spec *spec, int child[STDIO_N], struct err *e)
{
    static const char end_of_file = CTRL_D;
    if (spec->input_n > 0 && queue_input(j, spec->input, spec->input_n, e) < 0)
        return err_errno(e);
    if (j->terminal) {
        if (!spec->input_open)
            return queue_input(j, (const uint8_t *)&end_of_file, 1, e);
        return 0;
    }
    j->input_ends = !spec->input_open;
    for (int i = 0; i < STDIO_N; i++) {
        int ends[2];
        int ours = i == IN ? 1 : 0;
        if (make_pipe(ends, ours, e) < 0) {
            for (int k = 0; k < i; k++)
                (void)close(child[k]);
            return err_errno(e);
        }
        j->fd[i] = ends[ours];
        child[i] = ends[1 - ours];
    }
    if (!spec->input_open && spec->input_n == 0)
        make_small(child[IN]);
    push_input(j);
    return 0;
}

// It must be a terminal's master, because reading another file could block the broker.
static bool
is_pty_master(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
        return false;
    bool ptmx = major(st.st_rdev) == MAJOR_PTMX && minor(st.st_rdev) == MINOR_PTMX;
    unsigned number = 0;
    return (ptmx || major(st.st_rdev) == MAJOR_PTY_MASTER) && ioctl(fd, TIOCGPTN, &number) == 0;
}

int
job_io_terminal(struct job *j, int master, struct err *e)
{
    int auto_close fd = master;
    if (!is_pty_master(fd))
        return err_set(e, ERR_INTERNAL, "the guest sent no terminal");
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_sys(e, errno, "receive the terminal");
    j->fd[IN] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (j->fd[IN] < 0)
        return err_sys(e, errno, "receive the terminal");
    j->fd[OUT] = take_fd(&fd);
    return 0;
}

static void want_output(struct job *j);

static void
on_retry(void *cookie)
{
    struct job *j = cookie;
    j->reading = READING;
    want_output(j);
}

// Delays reading: BATCHING or FULL.
static void
wait_with_output(struct job *j, enum job_reading why, uint64_t ms)
{
    j->reading = why;
    want_output(j);
    (void)loop_timer_start(loop_of(j), &j->retry, ms, on_retry, j);
}

static void
want_output(struct job *j)
{
    for (int i = OUT; i <= ERR; i++)
        if (j->poll[i] != NULL)
            loop_poll_want(j->poll[i], j->reading != READING ? 0 : UV_READABLE);
}

void
job_io_reader_moved(struct job *j)
{
    if (j->reading != FULL || j->state == JOB_DONE)
        return;
    if (output_space(j->output, uv_hrtime()) < READ_MAX)
        return;
    j->reading = READING;
    want_output(j);
}

// How much may be read now. The pipes of an ended job are read in any case; what does not fit becomes a gap.
static size_t
room(struct job *j, uint64_t now)
{
    size_t space = output_space(j->output, now);
    size_t n = space < READ_MAX ? space : READ_MAX;
    return j->state == JOB_DRAINING || n == 0 ? n : output_make_room(j->output, n, now);
}

// Reads one stream once. Returns the number of bytes; 0: nothing is available now. The descriptor is -1 after the
// end.
static size_t
read_some(struct job *j, int i, uint64_t now)
{
    static uint8_t bytes[READ_MAX];
    size_t space = j->fd[i] >= 0 ? room(j, now) : 0;
    if (space == 0)
        return 0;
    ssize_t n = read_end(j, i, bytes, space);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) { // a terminal returns EIO after its last user has closed it
        close_end(j, i);
        return 0;
    }
    enum output_stream stream = i == ERR ? OUTPUT_STDERR : OUTPUT_STDOUT;
    output_write(j->output, stream, bytes, (size_t)n, now);
    OBSERVERS_NOTIFY(job_observers(j), job_output, j, stream, bytes, (size_t)n);
    return (size_t)n;
}

static bool
output_is_over(const struct job *j)
{
    return j->fd[OUT] < 0 && j->fd[ERR] < 0;
}

static void
read_stream(struct job *j, int i)
{
    uint64_t now = uv_hrtime();
    if (room(j, now) == 0) {
        wait_with_output(j, FULL, SPACE_AGAIN_MS);
        return;
    }
    size_t n = read_some(j, i, now);
    if (n > 0 && n < SMALL_READ && now - j->last_read_ns < BATCH_MS * UINT64_C(1000000))
        wait_with_output(j, BATCHING, BATCH_MS);
    j->last_read_ns = now;
    if (n > 0 && !job_notify_followers(j))
        return; // a follower has ended its sandbox, and nobody can attach to it
    if (output_is_over(j))
        job_output_ended(j);
}

static void
on_stdout(void *cookie, int events)
{
    (void)events;
    read_stream(cookie, OUT);
}

static void
on_stderr(void *cookie, int events)
{
    (void)events;
    read_stream(cookie, ERR);
}

int
job_io_begin(struct job *j, struct err *e)
{
    push_input(j);
    int r = 0;
    if (j->fd[IN] >= 0) {
        int events = j->input_at < j->input_n ? UV_WRITABLE : 0;
        r = loop_poll_start(loop_of(j), &j->poll[IN], j->fd[IN], events, on_input, j);
    }
    if (r == 0)
        r = loop_poll_start(loop_of(j), &j->poll[OUT], j->fd[OUT], UV_READABLE, on_stdout, j);
    if (r == 0 && j->fd[ERR] >= 0)
        r = loop_poll_start(loop_of(j), &j->poll[ERR], j->fd[ERR], UV_READABLE, on_stderr, j);
    return r < 0 ? err_sys(e, r, "watch its output") : 0;
}

bool
job_io_drain(struct job *j)
{
    uint64_t now = uv_hrtime();
    for (int i = OUT; i <= ERR; i++)
        for (int k = 0; k < DRAIN_READS_MAX && read_some(j, i, now) > 0; k++)
            continue;
    j->reading = READING;
    if (j->waits < WAITS_MAX)
        loop_timer_stop(&j->retry);
    want_output(j);
    return output_is_over(j);
}

void
job_read_now(struct job *j)
{
    if (j->state != JOB_RUNNING)
        return;
    (void)job_io_drain(j);
    (void)job_notify_followers(j);
}

void
job_io_end(struct job *j)
{
    for (int i = 0; i < STDIO_N; i++)
        close_end(j, i);
    loop_timer_stop(&j->retry);
    drop_input(j);
}

static int
check_input(const struct job *j, struct err *e)
{
    if (j->state != JOB_STARTING && j->state != JOB_RUNNING)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %s has ended", j->id.id);
    bool none_yet = j->terminal && j->state == JOB_STARTING;
    if (j->input_ends || (j->fd[IN] < 0 && !none_yet))
        return err_set(e, ERR_FAILED_PRECONDITION, "stdin of process %s is closed", j->id.id);
    return 0;
}

int
job_input(struct job *j, const uint8_t *bytes, size_t n, struct err *e)
{
    int r = check_input(j, e);
    if (r < 0 || n == 0)
        return r;
    size_t waits = j->input_n - j->input_at;
    if (waits + n > JOB_INPUT_QUEUE_MAX) {
        r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "%zu bytes of input are already queued; at most %d are allowed", waits,
                    JOB_INPUT_QUEUE_MAX);
        err_detail(e, "INPUT_QUEUE_FULL", j->id.id,
                   "try again when the process has read some of it");
        return r;
    }
    r = queue_input(j, bytes, n, e);
    if (r == 0 && j->state == JOB_RUNNING)
        push_input(j);
    return r;
}

int
job_close_input(struct job *j, struct err *e)
{
    static const uint8_t end_of_file = CTRL_D;
    if (j->state == JOB_DRAINING || j->state == JOB_DONE || j->input_ends)
        return 0;
    if (j->terminal)
        return job_input(j, &end_of_file, 1, e);
    j->input_ends = true;
    push_input(j);
    return 0;
}

int
job_resize(struct job *j, uint32_t rows, uint32_t columns, struct err *e)
{
    if (!j->terminal)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %s has no terminal", j->id.id);
    if (j->state != JOB_RUNNING || j->fd[OUT] < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %s does not run", j->id.id);
    struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    return ioctl(j->fd[OUT], TIOCSWINSZ, &w) < 0 ? err_sys(e, errno, "resize the terminal") : 0;
}
