// SPDX-License-Identifier: Apache-2.0
// See keeper.h.
#include "keeper.h"

#include <errno.h>
#include <sys/socket.h>

#include "proto/fdpass.h"

static void
was_killed(enum keeper_task task, struct err *e)
{
    static const struct {
        const char *text, *reason, *subject, *hint;
    } of[KEEPER_TASKS] = {
        [KEEPER_COPIES] = {"the process that copied the files was killed: the sandbox has no "
                           "memory left",
                           "COPY_MEMORY", "memory_bytes", "raise the limit, or write fewer files"},
        [KEEPER_DECRYPTS] = {"the process that decrypted the files was killed: the sandbox has no "
                             "memory left",
                             "COPY_MEMORY", "memory_bytes",
                             "encrypted files are decrypted into the sandbox's memory: raise the "
                             "limit"},
        [KEEPER_STORES] = {"the process that wrote or read kept files was killed", KEEPER_KILLED,
                           NULL, "try again; the kernel log says if the host ran out of memory"},
    };
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%s", of[task].text);
    err_detail(e, of[task].reason, of[task].subject, of[task].hint);
}

// The kernel reports first that an order was not read, and then what came before.
static ssize_t
receive(int fd, struct keep_answer *out)
{
    const ssize_t n = recv(fd, out, sizeof *out, MSG_DONTWAIT);
    return n < 0 && errno == ECONNRESET ? recv(fd, out, sizeof *out, MSG_DONTWAIT) : n;
}

bool
keeper_answer(int fd, enum keeper_task task, struct keep_answer *out)
{
    const ssize_t n = receive(fd, out);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == (ssize_t)sizeof *out) {
        err_sanitize(&out->err);
        return true;
    }
    *out = (struct keep_answer){.ok = 0};
    was_killed(task, &out->err);
    return true;
}

int
keeper_order(int fd, enum keeper_task task, const struct keep_order *order, int list_fd,
             struct err *e)
{
    struct keep_answer a;
    const struct fdpass m = {(void *)(uintptr_t)order, sizeof *order, &list_fd, list_fd >= 0};
    const int r = fd < 0 ? -EMFILE : fdpass_send(fd, &m, MSG_DONTWAIT);
    if (r == 0)
        return 0;
    if ((r == -EPIPE || r == -ECONNRESET) && keeper_answer(fd, task, &a))
        *e = a.err;
    else
        (void)err_sys(e, -r, "give the keeper its order");
    return r;
}
