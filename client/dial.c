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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "proto/now.h"

enum { RETRY_NS = 5000000 }; // until connect(2) is tried again on a full backlog

struct dial {
    const struct address *address;
    char where[sizeof((struct address){0}.host) + sizeof((struct address){0}.port) + 1];
    uint64_t deadline_ns;
    uint64_t retry_ns; // 0: now
    struct addrinfo *all;
    const struct addrinfo *at; // tcp: the address that is tried
    struct channel channel;
    unsigned sockets;
    enum { START, CONNECTING, SHAKING, HELLO } state;
    bool shake_out; // SHAKING: it waits until the socket is writable
    uint8_t hello[SP_HELLO_BYTES];
    size_t hello_n;
};

static uint64_t
now(void)
{
    return (uint64_t)now_ns(CLOCK_MONOTONIC);
}

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
        (void)snprintf(out, n, "is stockaded running at %s%.50s? check --address, STOCKADE_ADDRESS",
                       a->ipc   ? "ipc://"
                       : a->tls ? "tls+tcp://"
                                : "tcp://",
                       where);
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

// connect(2). 0: connected, or negative errno: -EINPROGRESS, -EAGAIN: the backlog of a unix socket is full.
static int
connect_once(int fd, const struct sockaddr *to, socklen_t n)
{
    if (connect(fd, to, n) == 0 || errno == EISCONN)
        return 0;
    return errno == EINTR || errno == EALREADY ? -EINPROGRESS : -errno;
}

static int
new_socket(struct dial *d, int family)
{
    channel_close(&d->channel);
    d->channel.fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    d->sockets++;
    return d->channel.fd < 0 ? -errno : 0;
}

static int
start_ipc(struct dial *d)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    _Static_assert(sizeof to.sun_path == sizeof d->address->path, "address_parse bounds the path");
    memcpy(to.sun_path, d->address->path, sizeof to.sun_path);
    int rc = new_socket(d, AF_UNIX);
    return rc < 0 ? rc : connect_once(d->channel.fd, (const struct sockaddr *)&to, sizeof to);
}

static int
start_tcp(struct dial *d)
{
    int rc = new_socket(d, d->at->ai_family);
    if (rc < 0)
        return rc;
    int on = 1;
    (void)setsockopt(d->channel.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(d->channel.fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return connect_once(d->channel.fd, d->at->ai_addr, d->at->ai_addrlen);
}

// The end of a connect(2) in progress: 0, -EINPROGRESS or its errno.
static int
connected(struct dial *d)
{
    struct pollfd p = {.fd = d->channel.fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0)
        return now() < d->deadline_ns ? -EINPROGRESS : -ETIMEDOUT;
    int sys = 0;
    socklen_t size = sizeof sys;
    return getsockopt(d->channel.fd, SOL_SOCKET, SO_ERROR, &sys, &size) < 0 ? -errno : -sys;
}

static int
no_broker(struct err *e, const char *what)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "the program at this address is not a Stockade broker: %s", what);
    err_detail(e, "NOT_A_BROKER", "address", "check --address and STOCKADE_ADDRESS");
    return rc;
}

// A new socket has room for the 8 bytes. A peer that has already closed may have sent the reason: the following read
// decides.
static void
send_hello(struct dial *d)
{
    uint8_t mine[SP_HELLO_BYTES];
    sp_hello(mine, SP_PROTO_REQ);
    (void)channel_send(&d->channel, mine, sizeof mine);
    d->state = HELLO;
}

// The peer's hello: 1, 0 (not all of it is here), or negative.
static int
receive_hello(struct dial *d, struct err *e)
{
    while (d->hello_n < sizeof d->hello) {
        ssize_t n =
            channel_receive(&d->channel, d->hello + d->hello_n, sizeof d->hello - d->hello_n);
        if (n > 0) {
            d->hello_n += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && channel_refused(&d->channel, e))
            return -EPERM;
        if (n == 0 || errno != EAGAIN) {
            int rc = err_set(e, ERR_UNAVAILABLE, "the broker closed the connection at once");
            err_detail(e, "CONNECTION_REJECTED", NULL,
                       d->address->ipc || d->address->tls
                           ? "it may be stopping, or this user has too many connections open"
                           : "it may speak TLS there (tls+tcp://), be stopping, or have too many "
                             "connections open");
            return rc;
        }
        if (now() < d->deadline_ns)
            return 0;
        int rc = err_set(e, ERR_UNAVAILABLE, "the program at this address does not answer");
        err_detail(e, "BROKER_SILENT", "address",
                   "the broker may be busy, or the address belongs to another program");
        return rc;
    }
    return sp_hello_is(d->hello, SP_PROTO_REP) ? 1 : no_broker(e, "it uses another protocol");
}

// One step of the connection itself, with the result of connect(2): 0, or a negative errno.
static int
advance(struct dial *d)
{
    if (d->state == CONNECTING)
        return connected(d);
    if (now() < d->retry_ns)
        return -EAGAIN;
    return d->address->ipc ? start_ipc(d) : start_tcp(d);
}

static int
fail_to_connect(const struct dial *d, int sys, struct err *e)
{
    struct stat st;
    if (d->address->ipc && sys == ECONNREFUSED && stat(d->where, &st) == 0 && !S_ISSOCK(st.st_mode))
        return not_a_socket(e, d->where, st.st_mode);
    return unreachable(e, d->address, d->where, sys);
}

// 1: connected; 0: wait; negative: no address answers.
static int
step_connect(struct dial *d, struct err *e)
{
    for (;;) {
        int rc = advance(d);
        d->state = rc == -EINPROGRESS ? CONNECTING : START;
        d->retry_ns = 0;
        if (rc == 0)
            return 1;
        if (rc == -EINPROGRESS)
            return 0;
        if (rc == -EAGAIN && now() < d->deadline_ns) {
            d->retry_ns = now() + RETRY_NS;
            return 0;
        }
        if (d->at != NULL && d->at->ai_next != NULL) {
            d->at = d->at->ai_next;
            continue;
        }
        return fail_to_connect(d, rc == -EAGAIN ? ETIMEDOUT : -rc, e);
    }
}

// 1: the handshake is done; 0: wait; negative: it failed.
static int
step_shake(struct dial *d, struct err *e)
{
    if (d->state != SHAKING) {
        int rc = channel_tls(&d->channel, d->address->host, &d->address->proof, e);
        if (rc < 0)
            return rc;
        d->state = SHAKING;
    }
    int rc = channel_shake(&d->channel, &d->shake_out, e);
    if (rc != 0 || now() < d->deadline_ns)
        return rc;
    rc = err_set(e, ERR_UNAVAILABLE, "the program at this address does not answer");
    err_detail(e, "BROKER_SILENT", "address", "it may speak no TLS, or be busy");
    return rc;
}

int
dial_step(struct dial *d, struct channel *out, struct err *e)
{
    if (d->state == START || d->state == CONNECTING) {
        int rc = step_connect(d, e);
        if (rc <= 0)
            return rc;
        d->retry_ns = 0;
    }
    if (d->address->tls && d->state != HELLO) {
        int rc = step_shake(d, e);
        if (rc <= 0)
            return rc;
    }
    if (d->state != HELLO)
        send_hello(d);
    int rc = receive_hello(d, e);
    if (rc <= 0)
        return rc;
    *out = d->channel;
    d->channel = (struct channel){.fd = -1};
    return rc;
}

int
dial_fd(const struct dial *d)
{
    return d->state == START ? -1 : d->channel.fd;
}

short
dial_events(const struct dial *d)
{
    return d->state == CONNECTING || (d->state == SHAKING && d->shake_out) ? POLLOUT : POLLIN;
}

uint64_t
dial_due_ns(const struct dial *d)
{
    return d->retry_ns != 0 ? d->retry_ns : d->deadline_ns;
}

unsigned
dial_sockets(const struct dial *d)
{
    return d->sockets;
}

void
dial_free(struct dial *d)
{
    if (d == NULL)
        return;
    channel_close(&d->channel);
    if (d->all != NULL)
        freeaddrinfo(d->all);
    free(d);
}

static int
resolve(struct dial *d, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    int rc = getaddrinfo(d->address->host, d->address->port, &hints, &d->all);
    if (rc != 0) {
        int sys = err_set(e, ERR_UNAVAILABLE, "cannot reach the broker at %s: %s", d->where,
                          gai_strerror(rc));
        err_detail(e, "BROKER_UNREACHABLE", d->where, "check the host's name in --address");
        return sys;
    }
    d->at = d->all;
    return 0;
}

int
dial_begin(struct dial **out, const struct address *a, uint64_t deadline_ns, struct err *e)
{
    struct dial *d = calloc(1, sizeof *d);
    if (d == NULL)
        return err_sys(e, ENOMEM, "connect");
    d->address = a;
    d->deadline_ns = deadline_ns;
    d->channel.fd = -1;
    if (a->ipc)
        (void)snprintf(d->where, sizeof d->where, "%s", a->path);
    else
        (void)snprintf(d->where, sizeof d->where, "%s:%s", a->host, a->port);
    int rc = a->ipc ? 0 : resolve(d, e);
    if (rc < 0) {
        dial_free(d);
        return rc;
    }
    *out = d;
    return 0;
}
