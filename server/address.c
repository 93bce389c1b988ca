// See address.h. One row per scheme. nng itself would unlink any file that refuses a connect, socket or not, and would
// ask the resolver about any name: neither gets that far.
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
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
prepare_ipc(const struct transport_address *a, const char *version, struct err *e)
{
    (void)version;
    const char *path = a->url + strlen("ipc://");
    if (path[0] != '/' || strlen(path) > SOCKET_PATH_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "listen on %s: needs an absolute path of at most %d bytes", a->url,
                       (int)SOCKET_PATH_MAX);
    return remove_stale_socket(path, e);
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
prepare_tcp(const struct transport_address *a, const char *version, struct err *e)
{
    (void)version;
    const char *host_port = a->url + strlen("tcp://");
    if (strrchr(host_port, ':') == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: needs a port", a->url);
    if (!a->any && !is_loopback(host_port))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: callers over tcp are not known by uid, so only loopback "
                       "addresses (127.0.0.1, [::1]) are taken",
                       a->url);
    return 0;
}

static int
refuse_ws(const struct transport_address *a, const char *version, struct err *e)
{
    char *end = NULL;
    long major = strtol(version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (major < 1 || (major == 1 && minor < 6))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: nng %s reads beyond its buffer in a request's first line; "
                       "1.6 or later is needed",
                       a->url, version);
    return err_set(e, ERR_UNIMPLEMENTED,
                   "listen on %s: ws was tested with no nng from 1.6 on (this is %s), so it is not "
                   "served; use ipc or tcp",
                   a->url, version);
}

static int
refuse_tls(const struct transport_address *a, const char *version, struct err *e)
{
    (void)version;
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "listen on %s: nng loses a descriptor for each TLS client that drops; end TLS "
                   "in a proxy",
                   a->url);
}

static const struct {
    const char *prefix;
    int (*prepare)(const struct transport_address *a, const char *version, struct err *e);
} schemes[] = {
    {"ipc://", prepare_ipc}, {"tcp://", prepare_tcp},    {"ws://", refuse_ws},
    {"wss://", refuse_tls},  {"tls+tcp://", refuse_tls},
};

int
address_prepare(const struct transport_address *a, const char *nng_version, bool *ipc,
                struct err *e)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(a->url, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) {
            *ipc = schemes[i].prepare == prepare_ipc;
            return schemes[i].prepare(a, nng_version, e);
        }
    return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: an address begins with ipc:// or tcp://",
                   a->url);
}

int
address_open_socket(const struct transport_address *a, struct err *e)
{
    const char *path = a->url + strlen("ipc://");
    if (a->group >= 0 && lchown(path, (uid_t)-1, (gid_t)a->group) < 0)
        return err_sys(e, errno, "give %s to group %d", path, a->group);
    if (chmod(path, (mode_t)(a->mode & 0777)) < 0)
        return err_sys(e, errno, "chmod %s", path);
    return 0;
}
