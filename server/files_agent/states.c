// SPDX-License-Identifier: Apache-2.0
// See states.h.
#include "states.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"

enum { AGAIN_MAX = 64 };

void
states_close(struct states *s)
{
    fdpass_close(s->fd, STATE_FDS);
}

// 1: there are more; 0: that was the last.
static int
receive_one(const struct op *op, struct states *out, struct err *e)
{
    struct files_head head;
    int auto_close fd = -1;
    struct fdpass m = {&head, sizeof head, &fd, 1};
    int r = fdpass_receive(op->fd, &m, 0);
    if (r == -EMFILE)
        return err_sys(e, EMFILE, "receive the states of the files");
    if (r <= 0 || m.n != sizeof head)
        return err_set(e, ERR_CANCELLED, "the broker has closed the operation");
    if (head.kind == FILES_STATE && head.method < STATE_FDS && out->fd[head.method] < 0)
        out->fd[head.method] = take_fd(&fd);
    return head.kind == FILES_STATE;
}

int
states_receive(struct op *op, struct states *out, struct err *e)
{
    int r = 0;
    for (int i = 0; i < STATE_FDS; i++)
        out->fd[i] = -1;
    do
        r = receive_one(op, out, e);
    while (r > 0);
    if (r == 0 && (out->fd[STATE_FD_FROM] < 0 || out->fd[STATE_FD_TO] < 0))
        r = err_set(e, ERR_INTERNAL, "a state of the files is missing");
    if (r < 0)
        states_close(out);
    return r;
}

int
states_open(const struct states *s, enum spawn_state_fd which, const char *path, int flags)
{
    const struct open_how how = {.flags = (__u64)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
                                 .resolve =
                                     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    if (s->fd[which] < 0)
        return -ENOENT;
    // a job may rename folders on the way
    for (int i = 0; i < AGAIN_MAX; i++) {
        long fd =
            syscall(SYS_openat2, s->fd[which], path[1] != '\0' ? path + 1 : ".", &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            return fd >= 0 ? (int)fd : -errno;
    }
    return -EBUSY;
}
