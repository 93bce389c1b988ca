// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AdminService: the broker's database, as a stream of bytes from a file without a name.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api.h"
#include "convert.h"
#include "server/base/server.h"
#include "server/state/state.h"
#include "stockade/v1/access_service.pb-c.h"

enum { PIECE_BYTES = 32 * 1024 };

struct backup {
    struct call *call; // NULL: it was cancelled while the copy was being made
    int fd;            // -1: the copy is being made
    off_t sent;
    uint8_t piece[PIECE_BYTES];
};

static void
backup_free(struct backup *b)
{
    if (b->fd >= 0)
        (void)close(b->fd);
    free(b);
}

// Sends as much as the caller has credit for. The file was written a moment ago, so reading it does not wait for the disk.
static void
send_more(void *cookie)
{
    struct backup *b = cookie;
    Stockade__V1__BackupResponse m = STOCKADE__V1__BACKUP_RESPONSE__INIT;
    struct err e;
    int r = 0;
    for (;;) {
        const ssize_t n = pread(b->fd, b->piece, sizeof b->piece, b->sent);
        if (n <= 0) {
            r = n < 0 ? err_sys(&e, errno, "read the copy of the state") : 0;
            break;
        }
        m.data = (ProtobufCBinaryData){.data = b->piece, .len = (size_t)n};
        r = call_send(b->call, &m.base);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            (void)err_sys(&e, -r, "send the copy of the state");
            break;
        }
        b->sent += n;
    }
    if (r < 0)
        call_fail(b->call, &e);
    else
        call_end(b->call);
    backup_free(b);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct backup *b = cookie;
    (void)why;
    b->call = NULL;
    if (b->fd >= 0)
        backup_free(b);
}

static void
on_copied(void *cookie, int fd, uint64_t bytes, const struct err *e)
{
    struct backup *b = cookie;
    (void)bytes;
    b->fd = fd;
    if (b->call != NULL && e == NULL) {
        send_more(b);
        return;
    }
    if (b->call != NULL)
        call_fail(b->call, e);
    backup_free(b);
}

static void
backup(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    struct backup *b = calloc(1, sizeof *b);
    (void)req;
    if (b == NULL) {
        convert_no_memory(c);
        return;
    }
    b->call = c;
    b->fd = -1;
    if (state_copy(s->state, on_copied, b, &e) < 0) {
        call_fail(c, &e);
        backup_free(b);
        return;
    }
    call_watch(c, on_cancel, send_more, b);
}

const struct call_method admin_methods[] = {
    {"/stockade.v1.AdminService/Backup", &stockade__v1__backup_request__descriptor,
     &stockade__v1__backup_response__descriptor, backup},
    {0},
};
