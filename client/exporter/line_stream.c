// SPDX-License-Identifier: Apache-2.0
// See line_stream.h. A socket, as systemd passes it, has a flag for each send(2). A pipe that is ready takes PIPE_BUF bytes
// without waiting (pipe(7)); O_NONBLOCK would change it for all who share it.
#include "line_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

int
line_stream_open(struct line_stream *s, int fd, struct err *e)
{
    struct stat st;
    *s = (struct line_stream){.fd = -1};
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "examine stdout");
    s->socket = S_ISSOCK(st.st_mode);
    int mine = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (mine < 0)
        return err_sys(e, errno, "open stdout");
    s->fd = mine;
    return 0;
}

void
line_stream_close(struct line_stream *s)
{
    int auto_close fd = take_fd(&s->fd);
    (void)fd;
    free(take_ptr(s->rest));
}

static ssize_t
write_some(const struct line_stream *s, const char *bytes, size_t n)
{
    struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
    if (s->socket)
        return send(s->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (poll(&ready, 1, 0) <= 0 || (ready.revents & POLLOUT) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(s->fd, bytes, n < PIPE_BUF ? n : PIPE_BUF);
}

static int
flush(struct line_stream *s)
{
    while (s->rest_done < s->rest_n) {
        ssize_t n = write_some(s, s->rest + s->rest_done, s->rest_n - s->rest_done);
        if (n < 0)
            return -errno;
        s->rest_done += (size_t)n;
    }
    free(take_ptr(s->rest));
    s->rest_n = s->rest_done = 0;
    return 0;
}

int
line_stream_write(struct line_stream *s, const char *line, size_t n)
{
    int r = flush(s);
    if (r < 0)
        return r;
    s->rest = malloc(n);
    if (s->rest == NULL)
        return -ENOMEM;
    memcpy(s->rest, line, n);
    s->rest_n = n;
    r = flush(s);
    if (r == 0 || s->rest_done > 0)
        return 0;
    free(take_ptr(s->rest));
    s->rest_n = 0;
    return r;
}
