// SPDX-License-Identifier: Apache-2.0
// See listen.h. One row per scheme. Hosts are numbers: nobody is asked for a name on the way to a listening socket.
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../proto/auto.h"

enum { SOCKET_PATH_MAX = sizeof((struct sockaddr_un *)NULL)->sun_path - 1 };

// Makes room for a socket file: removes one that nobody listens on, refuses a live one and whatever is no socket.
static int
remove_stale_socket(const char *path, struct err *e)
{
    struct stat st;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "listen on %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: it is there and no socket", path);
    int auto_close fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "listen on %s: socket", path);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN)
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: another process listens there", path);
    if (errno != ECONNREFUSED)
        return err_sys(e, errno, "listen on %s: probe", path);
    return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "remove stale %s", path);
}

static int
listen_failed(const struct transport_address *a, int sys, const char *what, struct err *e)
{
    if (sys == EADDRINUSE)
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: the address is in use", a->url);
    return err_sys(e, sys, "listen on %s: %s", a->url, what);
}

// Nobody can connect before listen(2), and by then the file has its group and its mode.
static int
bind_ipc(const struct transport_address *a, const char *path, int fd, struct listen_bound *bound,
         struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        return listen_failed(a, errno, "bind", e);
    if (lstat(path, &st) < 0)
        return listen_failed(a, errno, "stat", e);
    bound->file = true;
    bound->dev = st.st_dev;
    bound->ino = st.st_ino;
    if (a->group >= 0 && lchown(path, (uid_t)-1, (gid_t)a->group) < 0)
        return err_sys(e, errno, "give %s to group %d", path, a->group);
    if (chmod(path, (mode_t)(a->mode & 0777)) < 0)
        return err_sys(e, errno, "chmod %s", path);
    return listen(fd, SOMAXCONN) < 0 ? listen_failed(a, errno, "listen", e) : 0;
}

static int
check_ipc(const struct transport_address *a, struct err *e)
{
    const char *path = a->url + strlen("ipc://");
    if (path[0] == '/' && strlen(path) <= SOCKET_PATH_MAX)
        return 0;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "listen on %s: needs an absolute path of at most %d bytes", a->url,
                   (int)SOCKET_PATH_MAX);
}

static int
listen_ipc(const struct transport_address *a, int *out, struct listen_bound *bound, struct err *e)
{
    const char *path = a->url + strlen("ipc://");
    int rc = remove_stale_socket(path, e);
    if (rc != 0)
        return rc;
    int auto_close fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return listen_failed(a, errno, "socket", e);
    (void)snprintf(bound->url, sizeof bound->url, "%s", a->url);
    rc = bind_ipc(a, path, fd, bound, e);
    if (rc != 0) {
        listen_remove_file(bound);
        return rc;
    }
    *out = take_fd(&fd);
    return 0;
}

// True for "127.x.y.z:port" and "[::1]:port".
static bool
is_loopback(const char *host_port)
{
    struct in_addr v4;
    char host[64];
    if (strncmp(host_port, "[::1]:", strlen("[::1]:")) == 0)
        return true;
    size_t n = strcspn(host_port, ":");
    if (n >= sizeof host)
        return false;
    memcpy(host, host_port, n);
    host[n] = '\0';
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static int
check_host(const struct transport_address *a, const char *host_port, struct err *e)
{
    if (strrchr(host_port, ':') == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: needs a port", a->url);
    if (!a->any && !is_loopback(host_port))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: callers over tcp are not known by uid, so only loopback "
                       "addresses (127.0.0.1, [::1]) are taken",
                       a->url);
    return 0;
}

static bool
is_port(const char *text)
{
    size_t n = strlen(text); // getaddrinfo() takes larger numbers modulo 65536
    return n >= 1 && n <= 5 && strspn(text, "0123456789") == n && strtoul(text, NULL, 10) <= 65535;
}

// "HOST:PORT" to an address. An empty host, or "*", is every address of IPv4.
static int
parse_host(const struct transport_address *a, const char *host_port, struct addrinfo **out,
           struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    char host[64] = "";
    const char *port = strrchr(host_port, ':') + 1;
    size_t n = (size_t)(port - host_port) - 1;
    bool brackets = n >= 2 && host_port[0] == '[' && host_port[n - 1] == ']';
    if (n < sizeof host) {
        memcpy(host, host_port + (brackets ? 1 : 0), n - (brackets ? 2 : 0));
        if (n == 0 || strcmp(host, "*") == 0)
            (void)snprintf(host, sizeof host, "0.0.0.0");
        if (is_port(port) && getaddrinfo(host, port, &hints, out) == 0)
            return 0;
    }
    return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: needs an address in numbers and a port",
                   a->url);
}

static int
bind_tcp(const struct transport_address *a, int fd, const struct addrinfo *to, struct err *e)
{
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (to->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0))
        return listen_failed(a, errno, "socket options", e);
    if (bind(fd, to->ai_addr, to->ai_addrlen) < 0)
        return listen_failed(a, errno, "bind", e);
    return listen(fd, SOMAXCONN) < 0 ? listen_failed(a, errno, "listen", e) : 0;
}

static int
check_tcp(const struct transport_address *a, struct err *e)
{
    const char *host_port = a->url + strlen("tcp://");
    struct addrinfo *to = NULL;
    int rc = check_host(a, host_port, e);
    if (rc == 0)
        rc = parse_host(a, host_port, &to, e);
    if (to != NULL)
        freeaddrinfo(to);
    return rc;
}

static int
listen_tcp(const struct transport_address *a, int *out, struct listen_bound *bound, struct err *e)
{
    const char *host_port = a->url + strlen("tcp://");
    struct addrinfo *to = NULL;
    struct sockaddr_storage got;
    socklen_t n = sizeof got;
    char port[8];
    int rc = parse_host(a, host_port, &to, e);
    if (rc != 0 || to == NULL)
        return rc;
    int auto_close fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = fd < 0 ? listen_failed(a, errno, "socket", e) : bind_tcp(a, fd, to, e);
    freeaddrinfo(to);
    if (rc != 0)
        return rc;
    if (getsockname(fd, (struct sockaddr *)&got, &n) < 0 ||
        getnameinfo((struct sockaddr *)&got, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return listen_failed(a, errno, "getsockname", e);
    (void)snprintf(bound->url, sizeof bound->url, "tcp://%.*s:%s",
                   (int)(strrchr(host_port, ':') - host_port), host_port, port);
    *out = take_fd(&fd);
    return 0;
}

static int
refuse_tls(const struct transport_address *a, struct err *e)
{
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "listen on %s: nng loses a descriptor for each TLS client that drops; end TLS "
                   "in a proxy",
                   a->url);
}

static const struct scheme {
    const char *prefix;
    int (*check)(const struct transport_address *a, struct err *e);
    int (*listen)(const struct transport_address *a, int *fd, struct listen_bound *bound,
                  struct err *e);
} schemes[] = {
    {"ipc://", check_ipc, listen_ipc},
    {"tcp://", check_tcp, listen_tcp},
    {"wss://", refuse_tls, NULL},
    {"tls+tcp://", refuse_tls, NULL},
};

static const struct scheme *
scheme_of(const char *url)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0)
            return &schemes[i];
    return NULL;
}

int
listen_check(const struct transport_address *a, struct err *e)
{
    const struct scheme *s = scheme_of(a->url);
    if (s != NULL)
        return s->check(a, e);
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "listen on %s: an address begins with ipc://, tcp:// or ws://", a->url);
}

int
listen_open(const struct transport_address *a, int *fd, bool *ipc, struct listen_bound *bound,
            struct err *e)
{
    *bound = (struct listen_bound){0};
    int rc = listen_check(a, e);
    const struct scheme *s = scheme_of(a->url);
    if (rc != 0 || s == NULL)
        return rc;
    *ipc = s->listen == listen_ipc;
    return s->listen(a, fd, bound, e);
}

void
listen_remove_file(const struct listen_bound *b)
{
    struct stat st;
    const char *path = b->url + strlen("ipc://");
    if (b->file && lstat(path, &st) == 0 && st.st_dev == b->dev && st.st_ino == b->ino)
        (void)unlink(path);
}

bool
listen_is_ws(const char *url)
{
    return strncmp(url, "ws://", strlen("ws://")) == 0;
}

int
listen_check_ws(const struct transport_address *a, const char *nng_version, struct err *e)
{
    char *end = NULL;
    long major = strtol(nng_version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (major < 1 || (major == 1 && minor < 6))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: nng %s reads beyond its buffer in a request's first line; "
                       "1.6 or later is needed",
                       a->url, nng_version);
    return check_host(a, a->url + strlen("ws://"), e);
}
