// SPDX-License-Identifier: Apache-2.0
// forward: a port of this machine's loopback that leads into a sandbox.
//
// Each connection has two threads: one takes what comes from the sandbox, the other, begun once it is open, sends what the
// program here says. They end each other by shutting the socket down; the first waits for the second.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "proto/target.h"
#include "cli.h"
#include "commands.h"
#include "text.h"

enum {
    PIECE = 32 * 1024,
    ID_MAX = 33,
    AGAIN_NS = 2000000,
    TEXT_MAX = 600,
    LOOK_MS = 1000, // between two looks whether the sandbox still exists
    MISSES_MAX = 3, // looks in a row that the broker did not answer
};

struct link {
    struct stockade *s;
    const char *sandbox;
    uint16_t port;
    int fd;
    char connection[ID_MAX];
    pthread_t sender;
    bool sending;
};

static int
send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t r = send(fd, bytes, n, MSG_NOSIGNAL);
        if (r < 0 && errno != EINTR)
            return -1;
        bytes += r > 0 ? r : 0;
        n -= r > 0 ? (size_t)r : 0;
    }
    return 0;
}

// A full queue at the broker is not a failure: the sandbox reads slowly, so this sends slowly.
static int
send_piece(const struct link *l, const char *bytes, size_t n)
{
    struct stockade_error e;
    int rc = 0;
    while ((rc = stockade_forward_input(l->s, l->connection, bytes, n, &e)) < 0 &&
           e.code == STOCKADE_RESOURCE_EXHAUSTED) {
        const struct timespec again = {.tv_nsec = AGAIN_NS};
        (void)nanosleep(&again, NULL);
    }
    return rc;
}

static void *
sender(void *cookie)
{
    const struct link *l = cookie;
    char bytes[PIECE];
    ssize_t n = 0;
    while ((n = recv(l->fd, bytes, sizeof bytes, 0)) > 0)
        if (send_piece(l, bytes, (size_t)n) < 0)
            return NULL;
    (void)stockade_forward_close(l->s, l->connection, NULL);
    return NULL;
}

static int
on_open(void *cookie, const char *connection_id)
{
    struct link *l = cookie;
    (void)snprintf(l->connection, sizeof l->connection, "%s", connection_id);
    l->sending = pthread_create(&l->sender, NULL, sender, l) == 0;
    return l->sending ? 0 : -1;
}

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    const struct link *l = cookie;
    return send_all(l->fd, bytes, n);
}

static void *
serve(void *cookie)
{
    struct link *l = cookie;
    const struct stockade_forward_handlers h = {on_open, on_data, l};
    struct stockade_error e = {0};
    char text[TEXT_MAX];
    if (stockade_forward(l->s, l->sandbox, l->port, &h, &e) < 0)
        (void)fprintf(stderr, "stockade forward: %s\n", text_clean(e.text, text, sizeof text));
    (void)shutdown(l->fd, SHUT_RDWR);
    if (l->sending)
        (void)pthread_join(l->sender, NULL);
    (void)close(l->fd);
    free(l);
    return NULL;
}

static void
begin(struct stockade *s, const char *sandbox, uint16_t port, int fd)
{
    struct link *l = malloc(sizeof *l);
    pthread_t thread;
    if (l != NULL) {
        *l = (struct link){.s = s, .sandbox = sandbox, .port = port, .fd = fd};
        if (pthread_create(&thread, NULL, serve, l) == 0) {
            (void)pthread_detach(thread);
            return;
        }
    }
    free(l);
    (void)close(fd);
    (void)fprintf(stderr, "stockade forward: cannot start a thread for another connection\n");
}

static int
listen_at(uint16_t *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int on = 1;
    int auto_close fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0)
        return -errno;
    *port = ntohs(at.sin_port);
    return take_fd(&fd);
}

// "LOCAL:PORT", or "PORT" for the same on both sides; LOCAL 0: any free port.
static bool
read_ports(const char *text, uint16_t *local, uint16_t *port)
{
    const char *colon = strchr(text, ':');
    uint16_t last = 0;
    if (!target_ports(colon != NULL ? colon + 1 : text, port, &last) || last != *port)
        return false;
    *local = *port;
    if (colon == NULL)
        return true;
    char first[8];
    size_t n = (size_t)(colon - text);
    if (n >= sizeof first)
        return false;
    memcpy(first, text, n);
    first[n] = '\0';
    *local = 0;
    return strcmp(first, "0") == 0 || (target_ports(first, local, &last) && last == *local);
}

static int
stop_at_once(void *cookie, const char *connection_id)
{
    (void)cookie;
    (void)connection_id;
    return 1;
}

// Makes the broker report immediately what each connection would report: the sandbox does not exist, or its policy
// does not allow the port. Replaces a name in `id` by the sandbox's id: another sandbox may get the name.
static bool
is_let_in(struct stockade *s, const struct command *c, char *id, uint16_t port, int *code)
{
    const struct stockade_forward_handlers h = {stop_at_once, on_data, NULL};
    const struct stockade_sandbox *box = NULL;
    struct stockade_error e;
    bool listed = false;
    if (stockade_get(s, id, &box, &e) < 0) {
        *code = cli_fail_sandbox(s, c, id, &e);
        return false;
    }
    for (size_t i = 0; i < box->policy.inbound_n; i++) {
        uint16_t first = 0, last = 0;
        listed = listed || (target_ports(box->policy.inbound[i], &first, &last) && first <= port &&
                            port <= last);
    }
    (void)snprintf(id, CLI_ID_SIZE, "%s", box->id);
    stockade_free(box);
    if (listed || stockade_forward(s, id, port, &h, &e) == 0 || e.code == STOCKADE_CANCELLED)
        return true;
    if (strcmp(e.subject, "network.inbound") == 0)
        (void)snprintf(e.hint, sizeof e.hint,
                       "use it with 'stockade create' or 'stockade network'");
    *code = cli_fail(c, "", &e);
    return false;
}

static int
wrong_port(const struct command *c, const char *typed)
{
    char why[128];
    (void)snprintf(why, sizeof why, "'%.60s' is not PORT or LOCAL:PORT", typed);
    return cli_usage(c, why, "use 8080:80, for example, or 0:80 for any free local port");
}

// False: the sandbox or the broker is gone, which was reported.
static bool
still_there(struct stockade *s, const struct command *c, const char *typed, const char *id,
            int *code)
{
    static unsigned misses;
    const struct stockade_sandbox *box = NULL;
    struct stockade_error e;
    int rc = stockade_get(s, id, &box, &e);
    bool gone = rc == 0 ? box->state == STOCKADE_STATE_DELETING : e.code == STOCKADE_NOT_FOUND;
    stockade_free(box);
    misses = rc < 0 && !gone ? misses + 1 : 0;
    if (!gone && misses < MISSES_MAX)
        return true;
    if (gone)
        e = (struct stockade_error){.code = STOCKADE_NOT_FOUND, .text = "the sandbox was removed"};
    *code = cli_fail(c, gone ? typed : "", &e);
    return false;
}

// Accepts connections as long as the sandbox exists.
static int
accept_all(struct stockade *s, const struct command *c, const struct options *o, const char *id,
           uint16_t port, int fd)
{
    int code = EXIT_PROBLEM;
    int64_t look_ns = now_ns(CLOCK_MONOTONIC);
    for (;;) {
        int64_t left_ms = (look_ns - now_ns(CLOCK_MONOTONIC)) / 1000000 + LOOK_MS;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0) {
            if (!still_there(s, c, o->args[0], id, &code))
                return code;
            look_ns = now_ns(CLOCK_MONOTONIC);
        } else if (poll(&p, 1, (int)left_ms) > 0) {
            int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
            if (one >= 0)
                begin(s, id, port, one);
            else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE)
                return code;
        }
    }
}

int
cli_forward(const struct command *c, const struct options *o)
{
    uint16_t local = 0;
    uint16_t port = 0;
    char id[65];
    int code = 0;
    if (!read_ports(o->args[1], &local, &port))
        return wrong_port(c, o->args[1]);
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (!cli_find_sandbox(s, c, o->args[0], id, &code) || !is_let_in(s, c, id, port, &code)) {
        stockade_close(s);
        return code;
    }
    int fd = listen_at(&local);
    if (fd < 0) {
        (void)fprintf(stderr, "stockade forward: listen on 127.0.0.1:%u: %s\n", local,
                      strerror(-fd));
        stockade_close(s);
        return EXIT_PROBLEM;
    }
    (void)printf("127.0.0.1:%u\n", local);
    code = cli_flush(c);
    if (code == EXIT_OK)
        code = accept_all(s, c, o, id, port, fd);
    (void)close(fd);
    // threads may still use connections, so the end of the process frees the handle
    return code;
}
