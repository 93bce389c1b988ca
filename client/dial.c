// SPDX-License-Identifier: Apache-2.0
// See dial.h. Every failure to reach the broker has a hint: whether it runs, and how to get access.
#include "dial.h"

#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "proto/now.h"

static const char usual_path[] = "/run/stockade/stockade.sock";

// The group that may connect: that of the socket, or of its folder if nobody else may look into it. "": none is known.
static void
group_of(const char *path, char *out, size_t n)
{
    char folder[sizeof((struct address *)0)->path];
    char memory[4096];
    struct stat st;
    struct group group, *found = NULL;
    out[0] = '\0';
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL && slash != folder)
        *slash = '\0';
    if ((stat(path, &st) == 0 || stat(folder, &st) == 0) && (st.st_mode & S_IRWXG) != 0 &&
        st.st_gid != 0 && getgrgid_r(st.st_gid, &group, memory, sizeof memory, &found) == 0 &&
        found != NULL)
        (void)snprintf(out, n, "%s", group.gr_name);
}

static void
hint_access(const struct address *a, char *out, size_t n)
{
    char group[40];
    group_of(a->path, group, sizeof group);
    if (group[0] != '\0')
        (void)snprintf(out, n, "use sudo, or 'sudo usermod -aG %s $USER' and log in again", group);
    else
        (void)snprintf(out, n, "use sudo: only root may connect to this socket");
}

static void
hint_start(const struct address *a, const char *where, char *out, size_t n)
{
    if (a->ipc && strcmp(a->path, usual_path) == 0)
        (void)snprintf(out, n,
                       "is stockaded running? 'sudo systemctl start stockade', or 'sudo stockaded' "
                       "in a terminal");
    else
        (void)snprintf(out, n, "is stockaded running at %s%.60s? check --address, STOCKADE_ADDRESS",
                       a->ipc ? "ipc://" : "tcp://", where);
}

static int
unreachable(struct err *e, const struct address *a, const char *where, int sys)
{
    const char *why = strerrordesc_np(sys);
    bool denied = a->ipc && (sys == EACCES || sys == EPERM);
    char hint[sizeof e->hint];
    if (denied)
        hint_access(a, hint, sizeof hint);
    else
        hint_start(a, where, hint, sizeof hint);
    int rc = err_set(e, denied ? ERR_PERMISSION_DENIED : ERR_UNAVAILABLE,
                     "cannot reach the broker at %s: %s", where, why != NULL ? why : "error");
    e->sys = sys;
    err_detail(e, denied ? "SOCKET_DENIED" : "BROKER_UNREACHABLE", where, hint);
    return rc;
}

// A path that is something else than a socket will not become one by waiting.
static int
not_a_socket(struct err *e, const char *path, mode_t mode)
{
    int rc = err_set(e, ERR_INVALID_ARGUMENT, "%s is %s and not a socket", path,
                     S_ISDIR(mode)   ? "a folder"
                     : S_ISREG(mode) ? "a file"
                                     : "something else");
    err_detail(e, "NOT_A_SOCKET", "address", "check --address and STOCKADE_ADDRESS");
    return rc;
}

// Waits for events until the deadline. 0, or -ETIMEDOUT.
static int
wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = (uint64_t)now_ns(CLOCK_MONOTONIC);
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        uint64_t ms = (deadline_ns - now) / 1000000 + 1;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, ms > 60000 ? 60000 : (int)ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

// connect(2) on a non-blocking socket. 0 or a negative errno. A unix socket with a full backlog fails with EAGAIN.
static int
connect_until(int fd, const struct sockaddr *to, socklen_t n, uint64_t deadline_ns)
{
    while (connect(fd, to, n) < 0) {
        int sys = errno;
        if (sys == EISCONN)
            return 0;
        if (sys == EAGAIN) {
            if ((uint64_t)now_ns(CLOCK_MONOTONIC) >= deadline_ns)
                return -ETIMEDOUT;
            (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
            continue;
        }
        if (sys != EINPROGRESS && sys != EINTR && sys != EALREADY)
            return -sys;
        int rc = wait_for(fd, POLLOUT, deadline_ns);
        if (rc < 0)
            return rc;
        socklen_t size = sizeof sys;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &size) < 0)
            return -errno;
        return -sys;
    }
    return 0;
}

static int
dial_ipc(int *out, const struct address *a, uint64_t deadline_ns, struct err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    _Static_assert(sizeof to.sun_path == sizeof a->path, "address_parse bounds the path");
    memcpy(to.sun_path, a->path, sizeof to.sun_path);
    int auto_close fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "create a socket");
    int rc = connect_until(fd, (const struct sockaddr *)&to, sizeof to, deadline_ns);
    struct stat st;
    if (rc == -ECONNREFUSED && stat(a->path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return not_a_socket(e, a->path, st.st_mode);
    if (rc < 0)
        return unreachable(e, a, a->path, -rc);
    *out = take_fd(&fd);
    return 0;
}

static int
dial_one(int *out, const struct addrinfo *ai, uint64_t deadline_ns)
{
    int auto_close fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = connect_until(fd, ai->ai_addr, ai->ai_addrlen, deadline_ns);
    if (rc < 0)
        return rc;
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    *out = take_fd(&fd);
    return 0;
}

static int
dial_tcp(int *out, const struct address *a, uint64_t deadline_ns, struct err *e)
{
    char where[sizeof a->host + sizeof a->port + 1];
    (void)snprintf(where, sizeof where, "%s:%s", a->host, a->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *all = NULL;
    int rc = getaddrinfo(a->host, a->port, &hints, &all);
    if (rc != 0) {
        int sys = err_set(e, ERR_UNAVAILABLE, "cannot reach the broker at %s: %s", where,
                          gai_strerror(rc));
        err_detail(e, "BROKER_UNREACHABLE", where, "check the host's name in --address");
        return sys;
    }
    rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = all; ai != NULL && rc < 0; ai = ai->ai_next)
        rc = dial_one(out, ai, deadline_ns);
    freeaddrinfo(all);
    return rc < 0 ? unreachable(e, a, where, -rc) : 0;
}

static int
no_broker(struct err *e, const char *what)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "the program at this address is not a Stockade broker: %s", what);
    err_detail(e, "NOT_A_BROKER", "address", "check --address and STOCKADE_ADDRESS");
    return rc;
}

int
dial_hello(int fd, uint64_t deadline_ns, struct err *e)
{
    uint8_t mine[SP_HELLO_BYTES], theirs[SP_HELLO_BYTES];
    sp_hello(mine, SP_PROTO_REQ);
    // A peer that has already closed may have sent the reason: the following read decides.
    (void)send(fd, mine, sizeof mine, MSG_NOSIGNAL);
    size_t have = 0;
    while (have < sizeof theirs) {
        ssize_t n = recv(fd, theirs + have, sizeof theirs - have, 0);
        if (n > 0) {
            have += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            int rc = err_set(e, ERR_UNAVAILABLE, "the broker closed the connection at once");
            err_detail(e, "CONNECTION_REJECTED", NULL,
                       "it may be stopping, or this user has too many connections open");
            return rc;
        }
        if (wait_for(fd, POLLIN, deadline_ns) < 0) {
            int rc = err_set(e, ERR_UNAVAILABLE, "the program at this address does not answer");
            err_detail(e, "BROKER_SILENT", "address",
                       "the broker may be busy, or the address belongs to another program");
            return rc;
        }
    }
    return sp_hello_is(theirs, SP_PROTO_REP) ? 0 : no_broker(e, "it uses another protocol");
}

int
dial(int *out, const struct address *a, uint64_t deadline_ns, struct err *e)
{
    int auto_close fd = -1;
    int rc = a->ipc ? dial_ipc(&fd, a, deadline_ns, e) : dial_tcp(&fd, a, deadline_ns, e);
    if (rc == 0)
        rc = dial_hello(fd, deadline_ns, e);
    if (rc < 0)
        return rc;
    *out = take_fd(&fd);
    return 0;
}
