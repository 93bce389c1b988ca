// SPDX-License-Identifier: Apache-2.0
// See listen.h. One row per scheme. Hosts must be numeric: listening needs no name server.
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/host_port.h"
#include "server/base/unblock.h"

enum { SOCKET_PATH_MAX = sizeof((struct sockaddr_un *)NULL)->sun_path - 1 };

// Refuses a socket file in use, and any other file. *stale: the file is a socket that no process listens on.
static int
probe_socket(const char *path, bool *stale, struct err *e)
{
    struct stat st;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *stale = false;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "listen on %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: the file exists and is not a socket",
                       path);
    int auto_close fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "listen on %s: socket", path);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN)
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: another process listens there", path);
    if (errno != ECONNREFUSED)
        return err_sys(e, errno, "listen on %s: probe", path);
    *stale = true;
    return 0;
}

// Makes room for a socket file.
static int
remove_stale_socket(const char *path, struct err *e)
{
    bool stale = false;
    int r = probe_socket(path, &stale, e);
    if (r != 0 || !stale)
        return r;
    return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "remove stale %s", path);
}

static int
listen_failed(const struct transport_address *a, int sys, const char *what, struct err *e)
{
    if (sys == EADDRINUSE)
        return err_set(e, ERR_ALREADY_EXISTS, "listen on %s: the address is in use", a->url);
    return err_sys(e, sys, "listen on %s: %s", a->url, what);
}

// No client can connect before listen(2); by then the file has its group and its mode.
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
        return err_sys(e, errno, "change the group of %s to %d", path, a->group);
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
    unblock_refuse(fd);
    (void)snprintf(bound->url, sizeof bound->url, "%s", a->url);
    rc = bind_ipc(a, path, fd, bound, e);
    if (rc != 0) {
        listen_remove_file(bound);
        return rc;
    }
    *out = take_fd(&fd);
    return 0;
}

static bool
is_loopback(const char *host)
{
    struct in_addr v4;
    return strcmp(host, "::1") == 0 ||
           (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

static int
not_numeric(const struct transport_address *a, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: needs a numeric address and a port",
                   a->url);
}

// Lower ports need CAP_NET_BIND_SERVICE, which the broker does not have (ip-sysctl: ip_unprivileged_port_start).
static uint16_t
first_port(void)
{
    uint16_t port = 1024;
    char text[8] = "";
    int auto_close fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
    (void)host_port_number(text, &port);
    return port;
}

// "HOST:PORT", and what nng reads behind it.
static int
split(const struct transport_address *a, const char *text, struct host_port *h, struct err *e)
{
    if (!host_port_split(text, h))
        return not_numeric(a, e);
    if (h->port == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: needs a port", a->url);
    if (!a->any && !is_loopback(h->host))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "listen on %s: callers over tcp are not identified, so only loopback addresses "
            "(127.0.0.1, [::1]) are accepted; tls+tcp:// takes any",
            a->url);
    uint16_t port = 0;
    if (host_port_number(h->port, &port) && port != 0 && port < first_port())
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: the broker runs without privileges and may use ports from %u",
                       a->url, first_port());
    return 0;
}

// An empty host, or "*", means every address of IPv4.
static int
resolve(const struct transport_address *a, const struct host_port *h, struct addrinfo **out,
        struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    const bool every = h->host[0] == '\0' || strcmp(h->host, "*") == 0;
    uint16_t port = 0; // getaddrinfo() takes larger numbers modulo 65536
    if (!host_port_number(h->port, &port) ||
        getaddrinfo(every ? "0.0.0.0" : h->host, h->port, &hints, out) != 0)
        return not_numeric(a, e);
    return 0;
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
    struct host_port h;
    struct addrinfo *to = NULL;
    int rc = split(a, strstr(a->url, "://") + strlen("://"), &h, e);
    if (rc == 0)
        rc = resolve(a, &h, &to, e);
    if (to != NULL)
        freeaddrinfo(to);
    return rc;
}

static int
listen_tcp(const struct transport_address *a, int *out, struct listen_bound *bound, struct err *e)
{
    struct host_port h;
    struct addrinfo *to = NULL;
    struct sockaddr_storage got;
    socklen_t n = sizeof got;
    char port[8];
    int rc = split(a, strstr(a->url, "://") + strlen("://"), &h, e);
    if (rc == 0)
        rc = resolve(a, &h, &to, e);
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
    (void)snprintf(bound->url, sizeof bound->url, h.bracket ? "%s://[%s]:%s" : "%s://%s:%s",
                   listen_is_tls(a->url) ? "tls+tcp" : "tcp", h.host, port);
    *out = take_fd(&fd);
    return 0;
}

static int
refuse_wss(const struct transport_address *a, struct err *e)
{
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "listen on %s: nng leaks a descriptor for each TLS client that disconnects; use "
                   "tls+tcp://, or terminate TLS in a proxy",
                   a->url);
}

// A caller over TLS has the rights of its certificate or of its token, so any address will do.
static int
check_tls(const struct transport_address *a, struct err *e)
{
    const struct transport_address any = {.url = a->url, .any = true};
    return check_tcp(&any, e);
}

static int
listen_tls(const struct transport_address *a, int *out, struct listen_bound *bound, struct err *e)
{
    const struct transport_address any = {.url = a->url, .any = true};
    return listen_tcp(&any, out, bound, e);
}

static const struct scheme {
    const char *prefix;
    int (*check)(const struct transport_address *a, struct err *e);
    int (*listen)(const struct transport_address *a, int *fd, struct listen_bound *bound,
                  struct err *e);
} schemes[] = {
    {"ipc://", check_ipc, listen_ipc},
    {"tcp://", check_tcp, listen_tcp},
    {"tls+tcp://", check_tls, listen_tls},
    {"wss://", refuse_wss, NULL},
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
                   "listen on %s: an address begins with ipc://, tcp://, tls+tcp:// or ws://",
                   a->url);
}

// Listens for a moment.
static int
probe_tcp(const char *url, struct err *e)
{
    const struct transport_address a = {.url = url, .any = true};
    struct listen_bound bound;
    struct err other;
    int auto_close fd = -1;
    int rc = listen_tcp(&a, &fd, &bound, &other);
    if (rc == 0 || other.code != ERR_ALREADY_EXISTS)
        return 0;
    *e = other;
    return rc;
}

int
listen_is_free(const char *url, struct err *e)
{
    static const char ipc[] = "ipc://", ws[] = "ws://";
    char tcp[TRANSPORT_BOUND_BYTES];
    bool stale = false;
    if (strncmp(url, ipc, sizeof ipc - 1) == 0)
        return probe_socket(url + sizeof ipc - 1, &stale, e);
    if (strncmp(url, ws, sizeof ws - 1) != 0)
        return strncmp(url, "tcp://", 6) == 0 || listen_is_tls(url) ? probe_tcp(url, e) : 0;
    const char *host = url + sizeof ws - 1;
    (void)snprintf(tcp, sizeof tcp, "tcp://%.*s", (int)strcspn(host, "/"), host);
    return probe_tcp(tcp, e);
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
listen_is_tls(const char *url)
{
    return strncmp(url, "tls+tcp://", strlen("tls+tcp://")) == 0;
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
    if (nng_version[0] == '\0')
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: this broker was built without nng, which its websockets need",
                       a->url);
    long major = strtol(nng_version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (major < 1 || (major == 1 && minor < 6))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: nng %s reads beyond its buffer in a request's first line; "
                       "1.6 or later is needed",
                       a->url, nng_version);
    struct host_port h;
    return split(a, a->url + strlen("ws://"), &h, e);
}
