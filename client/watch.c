// SPDX-License-Identifier: Apache-2.0
// See watch.h. The timer is set again only for an earlier time: deadlines mostly move away, and a timer that expires too
// early costs one call of stockade_pump().
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "due.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "stockade.h"

enum { UNWATCHED_NS = 10 * 1000 * 1000 }; // interval of work on a socket that epoll refused

static int
watch_fd(struct watch *w, int operation, int fd, short events)
{
    struct epoll_event event = {.data.fd = fd};
    if ((events & POLLIN) != 0)
        event.events |= EPOLLIN;
    if ((events & POLLOUT) != 0)
        event.events |= EPOLLOUT;
    return epoll_ctl(w->epoll_fd, operation, fd, &event);
}

static int
watch_open(struct watch *w, struct err *e)
{
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (w->epoll_fd < 0)
        return err_sys(e, errno, "make an epoll descriptor");
    w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (w->timer_fd < 0)
        return err_sys(e, errno, "make a timerfd");
    w->flag_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->flag_fd < 0)
        return err_sys(e, errno, "make an eventfd");
    if (watch_fd(w, EPOLL_CTL_ADD, w->timer_fd, POLLIN) < 0 ||
        watch_fd(w, EPOLL_CTL_ADD, w->flag_fd, POLLIN) < 0)
        return err_sys(e, errno, "watch a descriptor with epoll");
    return 0;
}

static void
close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void
watch_close(struct stockade *s)
{
    close_fd(&s->watch.epoll_fd);
    close_fd(&s->watch.timer_fd);
    close_fd(&s->watch.flag_fd);
}

int
stockade_fd(struct stockade *s, struct stockade_error *error)
{
    struct err e;
    if (s == NULL) {
        (void)err_set(&e, ERR_INVALID_ARGUMENT, "there is no handle");
        return error_from_err(error, &e);
    }
    pthread_mutex_lock(&s->lock);
    int rc = s->watch.epoll_fd < 0 ? watch_open(&s->watch, &e) : 0;
    int fd = s->watch.epoll_fd;
    if (rc < 0)
        watch_close(s);
    watch_unlock(s);
    return rc < 0 ? error_from_err(error, &e) : fd;
}

void
watch_forget(struct stockade *s)
{
    struct watch *w = &s->watch;
    if (w->socket >= 0)
        (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, w->socket, NULL); // it may be closed already
    w->socket = -1;
    w->events = 0;
    w->of = NULL;
}

// False: epoll refused the socket.
static bool
sync_socket(struct stockade *s)
{
    struct watch *w = &s->watch;
    int fd = s->link != NULL ? link_fd(s->link) : -1;
    if (fd < 0) {
        watch_forget(s);
        return true;
    }
    short events = link_events(s->link);
    unsigned number = link_socket_number(s->link);
    bool same = w->of == s->link && w->number == number && w->socket == fd;
    if (same && w->events == events)
        return true;
    if (!same)
        watch_forget(s);
    if (watch_fd(w, same ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, events) < 0)
        return false;
    w->of = s->link;
    w->number = number;
    w->socket = fd;
    w->events = events;
    return true;
}

// Brings it up to date with the connection, the deadlines and the calls that are ready. While a thread is in
// stockade_pump() this does nothing: that thread does it at the end.
static void
sync_all(struct stockade *s)
{
    struct watch *w = &s->watch;
    if (w->epoll_fd < 0 || s->in_pump)
        return;
    uint64_t due = due_ns(s), soon = link_now_ns() + UNWATCHED_NS;
    if (!sync_socket(s) && (due == 0 || soon < due))
        due = soon;
    if (s->ready_first != NULL && !w->flagged)
        w->flagged = eventfd_write(w->flag_fd, 1) == 0;
    if (due == 0 || (w->timer_ns != 0 && w->timer_ns <= due))
        return;
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)}};
    if (timerfd_settime(w->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
        w->timer_ns = due;
}

void
watch_unlock(struct stockade *s)
{
    sync_all(s);
    pthread_mutex_unlock(&s->lock);
}

void
watch_quiet(struct stockade *s)
{
    struct watch *w = &s->watch;
    eventfd_t count = 0;
    if (w->flagged)
        (void)eventfd_read(w->flag_fd, &count);
    w->flagged = false;
    if (w->timer_ns == 0 || link_now_ns() < w->timer_ns)
        return;
    uint64_t expirations = 0;
    (void)!read(w->timer_fd, &expirations, sizeof expirations);
    w->timer_ns = 0;
}
