// SPDX-License-Identifier: Apache-2.0
// See unblock.h. The signal goes to this thread alone. It comes again until the call has returned, because the first one
// may arrive before the call begins to wait.
#include "unblock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 // asm-generic/socket.h
#endif

static bool refused; // the kernel refuses descriptors for our sockets
static timer_t timer;
static pid_t owner; // of the timer; a child process has none
static volatile sig_atomic_t fired;

static void
on_time(int signal)
{
    (void)signal;
    fired = 1;
}

static int
make_timer(void)
{
    // without SA_RESTART
    const struct sigaction action = {.sa_handler = on_time};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event._sigev_un._tid = gettid();
    sigset_t ours;
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGRTMIN);
    if (sigaction(SIGRTMIN, &action, NULL) < 0 || pthread_sigmask(SIG_UNBLOCK, &ours, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
        return -1;
    owner = getpid();
    return 0;
}

static int
set_timer(long ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000};
    const struct itimerspec when = {.it_value = t, .it_interval = t};
    return timer_settime(timer, 0, &when, NULL);
}

static int
begin(long ms)
{
    if (owner != getpid() && make_timer() < 0)
        return -1;
    fired = 0;
    return set_timer(ms);
}

static ssize_t
end(ssize_t r)
{
    int sys = errno;
    (void)set_timer(0);
    errno = r < 0 && sys == EINTR && fired != 0 ? ETIME : sys;
    return r;
}

ssize_t
unblock_read(int fd, void *bytes, size_t n)
{
    return begin(UNBLOCK_MS) < 0 ? -1 : end(read(fd, bytes, n));
}

ssize_t
unblock_write(int fd, const void *bytes, size_t n)
{
    return begin(UNBLOCK_MS) < 0 ? -1 : end(write(fd, bytes, n));
}

void
unblock_begin(void)
{
    (void)begin(UNBLOCK_CLOSE_MS);
}

void
unblock_end(void)
{
    (void)end(0);
}

void
unblock_refuse(int fd)
{
    const int none = 0;
    refused = setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof none) == 0;
}

ssize_t
unblock_recv(int fd, void *bytes, size_t n)
{
    struct iovec iov = {bytes, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (refused)
        return recv(fd, bytes, n, MSG_DONTWAIT);
    unblock_begin();
    ssize_t r = recvmsg(fd, &m, MSG_DONTWAIT);
    unblock_end();
    if (r < 0 || (m.msg_flags & MSG_CTRUNC) == 0)
        return r;
    errno = EPROTO;
    return -1;
}

void
unblock_close(int fd)
{
    unblock_begin();
    (void)close(fd);
    unblock_end();
}
