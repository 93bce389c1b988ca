// SPDX-License-Identifier: Apache-2.0
// DiffFile: the difference of one regular file as text.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "diff.h"
#include "text_diff.h"

enum { TEXT_MAX = 8 * 1024 * 1024 };

// What was not sent yet.
struct sending {
    struct op *op;
    size_t n; // bytes in op->packet.data
};

static int
flush(struct sending *s, struct err *e)
{
    int r = s->n > 0 ? op_data(s->op, s->n, e) : 0;
    s->n = 0;
    return r;
}

static int
put(void *cookie, const char *bytes, size_t n, struct err *e)
{
    struct sending *s = cookie;
    int r = 0;
    while (n > 0 && r == 0) {
        size_t room = FILES_DATA_MAX - s->n;
        size_t piece = n < room ? n : room;
        memcpy(s->op->packet.data + s->n, bytes, piece);
        s->n += piece;
        bytes += piece;
        n -= piece;
        if (s->n == FILES_DATA_MAX)
            r = flush(s, e);
    }
    return r;
}

// "--- a/home/agent/x", in quotes where a name could be taken for something else, as git(1) writes it.
static int
put_name(struct sending *s, const char *sign, char side, const char *path, bool there,
         struct err *e)
{
    char byte[8];
    bool plain = true;
    for (const char *at = path; *at != '\0'; at++)
        plain = plain && (unsigned char)*at >= ' ' && *at != 0x7f && *at != '"' && *at != '\\';
    int n = snprintf(byte, sizeof byte, "%s %s", sign, there && !plain ? "\"" : "");
    int r = put(s, byte, (size_t)n, e);
    if (r == 0 && !there)
        return put(s, "/dev/null\n", 10, e);
    if (r == 0)
        r = put(s, &side, 1, e);
    for (const char *at = path; r == 0 && *at != '\0'; at++) {
        bool odd = (unsigned char)*at < ' ' || *at == 0x7f;
        if (odd)
            n = snprintf(byte, sizeof byte, "\\%03o", (unsigned)(unsigned char)*at);
        else
            n = snprintf(byte, sizeof byte, "%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at);
        r = put(s, byte, (size_t)n, e);
    }
    return r == 0 ? put(s, plain ? "\n" : "\"\n", plain ? 1 : 2, e) : r;
}

// A regular file in one state. A job may put something else in its place at any time, so its type is that of what was opened: first
// without a right to it, since open(2) of a socket fails.
static int
open_regular(const struct diff *d, enum spawn_state_fd which, const char *path, struct err *e)
{
    struct stat st;
    int auto_close at = states_open(&d->states, which, path, O_PATH);
    if (at < 0 || fstat(at, &st) < 0)
        return file_err(e, at < 0 ? -at : errno, "read", path);
    if (!S_ISREG(st.st_mode))
        return file_not_regular(e, st.st_mode, "compare", path);
    int auto_close fd = states_open(&d->states, which, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return file_err(e, fd < 0 ? -fd : errno, "read", path);
    return S_ISREG(st.st_mode) ? take_fd(&fd) : file_not_regular(e, st.st_mode, "compare", path);
}

// The whole file in one state, *owned*; nothing, if it is not there.
static int
read_all(struct diff *d, enum spawn_state_fd which, const Stockade__V1__File *file,
         const char *path, char **out, size_t *n, struct err *e)
{
    *out = NULL;
    *n = 0;
    if (file == NULL)
        return 0;
    if (file->size > TEXT_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "a file of more than %d MiB", TEXT_MAX >> 20);
        err_detail(e, "TEXT_TOO_LARGE", "path",
                   "read the file in both states, and compare it there");
        return r;
    }
    int auto_close fd = open_regular(d, which, path, e);
    if (fd < 0)
        return fd;
    char *bytes = malloc(file->size + 1);
    if (bytes == NULL)
        return file_err(e, ENOMEM, "read", path);
    for (ssize_t got = 1; got > 0 && *n<file->size; *n += got> 0 ? (size_t)got : 0)
        if ((got = pread(fd, bytes + *n, file->size - *n, (off_t)*n)) < 0) {
            free(bytes);
            return file_err(e, errno, "read", path);
        }
    *out = bytes;
    return 0;
}

static int
send_text(struct diff *d, const char *path, const Stockade__V1__Change *c, struct text *from,
          struct text *to, struct err *e)
{
    struct sending s = {.op = d->op};
    int r = text_diff(from, to, e);
    if (r == 0)
        r = put_name(&s, "---", 'a', path, c->before != NULL, e);
    if (r == 0)
        r = put_name(&s, "+++", 'b', path, c->after != NULL, e);
    if (r == 0)
        r = text_hunks(from, to, put, &s, e);
    return r == 0 ? flush(&s, e) : r;
}

static int
compare(struct diff *d, const char *path, const Stockade__V1__Change *c, struct err *e)
{
    Stockade__V1__SnapshotServiceDiffFileResponse head =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_FILE_RESPONSE__INIT;
    char *bytes[2] = {NULL, NULL};
    struct text text[2] = {{0}, {0}};
    size_t n[2] = {0, 0};
    head.change = (Stockade__V1__Change *)(uintptr_t)c;
    int r = read_all(d, STATE_FD_FROM, c->before, path, &bytes[0], &n[0], e);
    if (r == 0)
        r = read_all(d, STATE_FD_TO, c->after, path, &bytes[1], &n[1], e);
    for (int i = 0; r == 0 && i < 2; i++)
        head.binary = head.binary || (n[i] > 0 && memchr(bytes[i], 0, n[i]) != NULL);
    for (int i = 0; r == 0 && i < 2 && !head.binary; i++)
        r = text_lines(bytes[i], n[i], &text[i], e);
    if (r == 0)
        r = op_message(d->op, &head.base, e);
    if (r == 0 && !head.binary)
        r = send_text(d, path, c, &text[0], &text[1], e);
    for (int i = 0; i < 2; i++) {
        text_free(&text[i]);
        free(bytes[i]);
    }
    return r;
}

// The file is the same in both states, or in neither.
static int
send_nothing(struct diff *d, const char *path, struct err *e)
{
    const Stockade__V1__SnapshotServiceDiffFileResponse head =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_FILE_RESPONSE__INIT;
    int auto_close fd = states_open(&d->states, STATE_FD_FROM, path, O_PATH);
    return fd < 0 ? file_err(e, -fd, "compare", path) : op_message(d->op, &head.base, e);
}

int
files_diff_file(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__SnapshotServiceDiffFileRequest *m =
        (const Stockade__V1__SnapshotServiceDiffFileRequest *)request;
    static struct diff d; // of this process, which does nothing else
    const ProtobufCBinaryData none = {0, NULL};
    char path[FILES_PATH_MAX];
    int r = states_receive(op, &d.states, e);
    if (r < 0)
        return r;
    d.op = op;
    d.max = 1;
    r = diff_walk(&d, &m->path, &none, e);
    (void)snprintf(path, sizeof path, "%.*s", (int)m->path.len, (const char *)m->path.data);
    if (r == 0 && d.n == 1 && d.change[0]->m.path.len == strlen(path) &&
        memcmp(d.change[0]->m.path.data, path, strlen(path)) == 0)
        r = compare(&d, path, &d.change[0]->m, e);
    else if (r == 0)
        r = send_nothing(&d, path, e);
    diff_free(&d);
    return r;
}
