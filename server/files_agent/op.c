// SPDX-License-Identifier: Apache-2.0
// See op.h.
#include "op.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "proto/now.h"

static int
send_packet(struct op *op, enum files_kind kind, size_t n, struct err *e)
{
    op->packet.head = (struct files_head){.kind = kind};
    ssize_t sent = 0;
    do
        sent = send(op->fd, &op->packet, sizeof op->packet.head + n, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    op->busy_ns = (uint64_t)now_ns(CLOCK_MONOTONIC);
    return sent < 0 ? err_set(e, ERR_CANCELLED, "the broker has closed the operation") : 0;
}

int
op_message(struct op *op, const ProtobufCMessage *m, struct err *e)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    if (n > FILES_DATA_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "a response of %zu bytes", n);
    (void)protobuf_c_message_pack(m, op->packet.data);
    return send_packet(op, FILES_MESSAGE, n, e);
}

int
op_data(struct op *op, size_t n, struct err *e)
{
    return send_packet(op, FILES_DATA, n, e);
}

int
op_busy(struct op *op, struct err *e)
{
    uint64_t now = (uint64_t)now_ns(CLOCK_MONOTONIC);
    if (op->busy_ns != 0 && now - op->busy_ns < FILES_BUSY_MS / 2 * UINT64_C(1000000))
        return 0;
    return send_packet(op, FILES_BUSY, 0, e);
}

ssize_t
op_receive(struct op *op, struct err *e)
{
    ssize_t n = 0;
    do
        n = recv(op->fd, &op->packet, sizeof op->packet, 0);
    while (n < 0 && errno == EINTR);
    if (n < (ssize_t)sizeof op->packet.head)
        return err_set(e, ERR_CANCELLED, "the broker has closed the operation");
    return op->packet.head.kind == FILES_DATA ? n - (ssize_t)sizeof op->packet.head : 0;
}

void
op_end(struct op *op, const struct err *e)
{
    struct err done = {.code = ERR_OK};
    struct err ignored;
    if (e != NULL)
        done = *e;
    memcpy(op->packet.data, &done, sizeof done);
    (void)send_packet(op, FILES_END, sizeof done, &ignored);
}

void
op_wait(struct op *op)
{
    while (recv(op->fd, &op->packet, sizeof op->packet, 0) > 0)
        continue;
}

#define NOT_REGULAR "NOT_REGULAR"

// What an errno means for a file. ENXIO: open(2) of a socket, and of a device without a driver.
static const struct {
    int sys;
    enum err_code code;
    const char *reason;
    const char *hint;
} meanings[] = {
    {ENOENT, ERR_NOT_FOUND, "FILE_NOT_FOUND", NULL},
    {EACCES, ERR_PERMISSION_DENIED, "FILE_PERMISSION", "the sandbox's user may not do this"},
    {EPERM, ERR_PERMISSION_DENIED, "FILE_PERMISSION", "the sandbox's user may not do this"},
    {EROFS, ERR_PERMISSION_DENIED, "READ_ONLY", "write below /home/agent or /tmp"},
    {EEXIST, ERR_ALREADY_EXISTS, "FILE_EXISTS", NULL},
    {ENOTDIR, ERR_FAILED_PRECONDITION, "NOT_A_FOLDER", NULL},
    {EISDIR, ERR_FAILED_PRECONDITION, "IS_A_FOLDER", NULL},
    {ENOTEMPTY, ERR_FAILED_PRECONDITION, "NOT_EMPTY", "remove what it holds, too: recursive"},
    {ELOOP, ERR_FAILED_PRECONDITION, "LINK", "a symbolic link is in the way"},
    {EXDEV, ERR_FAILED_PRECONDITION, "OTHER_FILE_SYSTEM", "copy it, then remove it"},
    {EBUSY, ERR_FAILED_PRECONDITION, "FILE_BUSY", NULL},
    {ETXTBSY, ERR_FAILED_PRECONDITION, "FILE_BUSY", NULL},
    {ENXIO, ERR_FAILED_PRECONDITION, NOT_REGULAR, "only regular files are read and written"},
    {EINVAL, ERR_INVALID_ARGUMENT, NULL, NULL},
    {ENAMETOOLONG, ERR_INVALID_ARGUMENT, "NAME_TOO_LONG", NULL},
    {ENOSPC, ERR_RESOURCE_EXHAUSTED, "DISK_FULL",
     "remove files, or raise the limits disk_bytes or inodes (of a volume: its size)"},
    {EDQUOT, ERR_RESOURCE_EXHAUSTED, "DISK_FULL",
     "remove files, or raise the limits disk_bytes or inodes (of a volume: its size)"},
    {EFBIG, ERR_RESOURCE_EXHAUSTED, "FILE_SIZE", "raise file_size_bytes"},
};

int
file_err(struct err *e, int sys, const char *what, const char *path)
{
    int r = err_sys(e, sys, "%s %.300s", what, path);
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].sys != sys)
            continue;
        e->code = (int32_t)meanings[i].code;
        err_detail(e, meanings[i].reason, "path", meanings[i].hint);
    }
    return r;
}

static const char *
type_name(mode_t mode)
{
    return S_ISFIFO(mode)                   ? "a FIFO"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISLNK(mode)                  ? "a symbolic link"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "of an unknown type";
}

int
file_not_regular(struct err *e, mode_t mode, const char *what, const char *path)
{
    if (S_ISDIR(mode))
        return file_err(e, EISDIR, what, path);
    int r = err_set(e, ERR_FAILED_PRECONDITION, "%s %.300s: it is %s, and no regular file", what,
                    path, type_name(mode));
    err_detail(e, NOT_REGULAR, "path", "only regular files are read and written");
    return r;
}
