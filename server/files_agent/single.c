// SPDX-License-Identifier: Apache-2.0
// Methods on one file: Stat, Read, MakeDir, Move, SetMode.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "methods.h"
#include "path.h"

int
files_stat(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceStatRequest *m =
        (const Stockade__V1__FileServiceStatRequest *)request;
    Stockade__V1__FileServiceStatResponse answer = STOCKADE__V1__FILE_SERVICE_STAT_RESPONSE__INIT;
    struct described file;
    struct path p;
    struct stat st;
    int r = path_read(&m->path, &p, e);
    int auto_close fd = r < 0 ? -1 : path_open(p.text, O_PATH | (m->follow ? 0 : O_NOFOLLOW), e);
    if (r < 0 || fd < 0)
        return err_errno(e);
    if (fstat(fd, &st) < 0)
        return file_err(e, errno, "describe", p.text);
    describe(&st, p.text, strlen(p.text), &file);
    ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", file.target, sizeof file.target - 1) : 0;
    if (n > 0)
        file.m.target = (ProtobufCBinaryData){(size_t)n, (uint8_t *)file.target};
    answer.file = &file.m;
    return op_message(op, &answer.base, e);
}

static int
send_range(struct op *op, int fd, uint64_t from, uint64_t length, const char *path, struct err *e)
{
    uint64_t left = length != 0 ? length : UINT64_MAX;
    uint64_t at = from;
    while (left > 0) {
        size_t want = left < FILES_DATA_MAX ? (size_t)left : FILES_DATA_MAX;
        ssize_t n = pread(fd, op->packet.data, want, (off_t)at);
        if (n < 0)
            return file_err(e, errno, "read", path);
        if (n == 0)
            return 0;
        int r = op_data(op, (size_t)n, e);
        if (r < 0)
            return r;
        at += (uint64_t)n;
        left -= (uint64_t)n;
    }
    return 0;
}

// A symbolic link is followed here, inside the root, before the type is checked.
int
files_read(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceReadRequest *m =
        (const Stockade__V1__FileServiceReadRequest *)request;
    Stockade__V1__FileServiceReadResponse answer = STOCKADE__V1__FILE_SERVICE_READ_RESPONSE__INIT;
    struct described file;
    struct path p;
    struct stat st;
    int r = path_read(&m->path, &p, e);
    if (r < 0)
        return r;
    int auto_close fd = path_open(p.text, O_RDONLY | O_NONBLOCK | O_NOCTTY, e);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return file_err(e, errno, "read", p.text);
    if (!S_ISREG(st.st_mode))
        return file_not_regular(e, st.st_mode, "read", p.text);
    if (m->offset > (uint64_t)INT64_MAX)
        return err_field(e, "offset", "is larger than any file");
    describe(&st, p.text, strlen(p.text), &file);
    answer.file = &file.m;
    r = op_message(op, &answer.base, e);
    return r < 0 ? r : send_range(op, fd, m->offset, m->length, p.text, e);
}

int
files_make_dir(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceMakeDirRequest *m =
        (const Stockade__V1__FileServiceMakeDirRequest *)request;
    Stockade__V1__FileServiceMakeDirResponse answer =
        STOCKADE__V1__FILE_SERVICE_MAKE_DIR_RESPONSE__INIT;
    struct described file;
    struct path p;
    struct location at = {.folder = -1};
    int r = path_read_and_locate(&m->path, m->parents, &p, &at, e);
    if (r != 0)
        return r;
    bool made = mkdirat(at.folder, at.name, m->mode != 0 ? m->mode : 0755) == 0;
    if (!made && (errno != EEXIST || !m->parents))
        r = file_err(e, errno, "make folder", p.text);
    // mkdir(2) masks the mode with umask
    if (made && m->mode != 0 && fchmodat(at.folder, at.name, m->mode, 0) < 0)
        r = file_err(e, errno, "set the mode of", p.text);
    if (r == 0)
        r = describe_at(at.folder, at.name, p.text, &file, e);
    if (r == 0 && file.m.type != STOCKADE__V1__FILE_TYPE__FILE_TYPE_FOLDER)
        r = file_err(e, EEXIST, "make folder", p.text);
    path_leave(&at);
    answer.file = &file.m;
    return r < 0 ? r : op_message(op, &answer.base, e);
}

int
files_move(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceMoveRequest *m =
        (const Stockade__V1__FileServiceMoveRequest *)request;
    Stockade__V1__FileServiceMoveResponse answer = STOCKADE__V1__FILE_SERVICE_MOVE_RESPONSE__INIT;
    struct described file;
    struct path_pair p;
    int r = path_pair(&m->path, &m->to, m->parents, &p, e);
    if (r != 0)
        return r;
    int sys = path_rename(p.a.folder, p.a.name, p.b.folder, p.b.name, m->only_if_absent);
    if (sys < 0)
        r = file_err(e, -sys, "move", sys == -ENOENT ? p.path.text : p.to.text);
    else
        r = describe_at(p.b.folder, p.b.name, p.to.text, &file, e);
    path_pair_leave(&p);
    answer.file = &file.m;
    return r < 0 ? r : op_message(op, &answer.base, e);
}

// chmod(2) follows a link, which is refused. A job that puts one there meanwhile changes a mode that it may change anyway.
// 0 or a negative errno.
static int
change_mode(const struct location *at, mode_t mode)
{
    struct stat st;
    if (fstatat(at->folder, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return -ELOOP;
    return fchmodat(at->folder, at->name, mode, 0) < 0 ? -errno : 0;
}

int
files_set_mode(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceSetModeRequest *m =
        (const Stockade__V1__FileServiceSetModeRequest *)request;
    Stockade__V1__FileServiceSetModeResponse answer =
        STOCKADE__V1__FILE_SERVICE_SET_MODE_RESPONSE__INIT;
    struct described file;
    struct path p;
    struct location at = {.folder = -1};
    int r = path_read_and_locate(&m->path, false, &p, &at, e);
    if (r != 0)
        return r;
    int sys = change_mode(&at, m->mode & 0777);
    if (sys < 0)
        r = file_err(e, -sys, "set the mode of", p.text);
    if (r == 0)
        r = describe_at(at.folder, at.name, p.text, &file, e);
    path_leave(&at);
    answer.file = &file.m;
    return r < 0 ? r : op_message(op, &answer.base, e);
}
