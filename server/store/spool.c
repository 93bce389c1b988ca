// SPDX-License-Identifier: Apache-2.0
// See spool.h.
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "proto/auto.h"
#include "server/base/server.h"
#include "server/keeper/keep.h"

struct spool {
    uv_loop_t *loop;
    uint32_t *works; // of the store
    int fd;
    struct sealed_key key;
    uint64_t end; // of what was written
    uint32_t n;
    struct spool_stream stream[SPOOL_STREAMS_MAX];
    bool busy, closing;
    uv_work_t work;
    // ---- of the work; the thread has them
    uint8_t *bytes; // owned
    struct spool_piece *pieces;
    size_t pieces_n;
    uint32_t reading;
    size_t to_n; // 0: it writes
    uint8_t to[SPOOL_READ_MAX];
    int rc;
    struct err e;
    spool_done *done;
    void *cookie;
    bool is_open; // the reader
    uint32_t open;
    uint64_t read_at;
    struct sealed_writer w;
    struct sealed_reader r;
};

static const struct sealed_what WHAT = {.kind = SEALED_LAYER};

static int
put(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct spool *s = cookie;
    const char *from = bytes;
    while (n > 0) {
        ssize_t w = pwrite(s->fd, from, n, (off_t)s->end);
        if (w <= 0) {
            int r = err_sys(e, w == 0 ? ENOSPC : errno, "write the archive to the disk");
            if (e->sys == ENOSPC || e->sys == EDQUOT) {
                e->code = ERR_RESOURCE_EXHAUSTED;
                err_detail(e, "DISK_FULL", "state_dir",
                           "free some space on the disk of the state directory");
            }
            return r;
        }
        from += w;
        n -= (size_t)w;
        s->end += (uint64_t)w;
    }
    return 0;
}

static long
get(void *cookie, void *bytes, size_t room, struct err *e)
{
    struct spool *s = cookie;
    const struct spool_stream *of = &s->stream[s->open];
    const uint64_t left = of->at + of->file_bytes - s->read_at;
    const size_t most = room < left ? room : (size_t)left;
    size_t n = 0;
    while (n < most) {
        ssize_t r = pread(s->fd, (char *)bytes + n, most - n, (off_t)(s->read_at + n));
        if (r < 0)
            return err_sys(e, errno, "read the archive");
        if (r == 0)
            break;
        n += (size_t)r;
    }
    s->read_at += n;
    return (long)n;
}

// ---- in the thread

static int
write_piece(struct spool *s, const struct spool_piece *p)
{
    int rc = 0;
    if (p->begins) {
        s->stream[s->n] = (struct spool_stream){.at = s->end};
        rc = sealed_begin(&s->w, &s->key, &WHAT, &s->e);
    }
    if (rc == 0)
        rc = sealed_add(&s->w, s->bytes + p->at, p->n, &s->e);
    s->stream[s->n].bytes += p->n;
    if (rc == 0 && p->ends) {
        rc = sealed_end(&s->w, &s->e);
        s->stream[s->n].file_bytes = s->end - s->stream[s->n].at;
        s->n++;
    }
    return rc;
}

static int
read_on(struct spool *s)
{
    int rc = 0;
    if (!s->is_open || s->open != s->reading) {
        s->is_open = true;
        s->open = s->reading;
        s->read_at = s->stream[s->open].at;
        rc = sealed_open(&s->r, &s->key, &WHAT, &s->e);
    }
    return rc == 0 ? sealed_read(&s->r, s->to, s->to_n, &s->e) : rc;
}

static void
in_thread(uv_work_t *work)
{
    struct spool *s = work->data;
    s->rc = s->to_n > 0 ? read_on(s) : 0;
    for (size_t i = 0; i < s->pieces_n && s->rc == 0; i++)
        s->rc = write_piece(s, &s->pieces[i]);
}

// ---- in the loop

static void
clear(struct spool *s)
{
    free(take_ptr(s->bytes));
    free(take_ptr(s->pieces));
    s->pieces_n = 0;
    s->to_n = 0;
}

static void
on_worked(uv_work_t *work, int status)
{
    struct spool *s = work->data;
    (void)status; // never cancelled
    --*s->works;
    s->busy = false;
    clear(s);
    if (s->closing)
        spool_free(s);
    else
        s->done(s->cookie, s->rc < 0 ? &s->e : NULL);
}

static void
start(struct spool *s, spool_done *done, void *cookie)
{
    s->done = done;
    s->cookie = cookie;
    s->work.data = s;
    s->busy = true;
    ++*s->works;
    (void)uv_queue_work(s->loop, &s->work, in_thread, on_worked);
}

struct spool *
spool_new(const struct server *srv, const char *folder, uint32_t *works, struct err *e)
{
    struct spool *s = calloc(1, sizeof *s);
    int auto_close fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s == NULL || fd < 0) {
        (void)err_sys(e, s == NULL ? ENOMEM : errno, "make a file in %s", folder);
        free(s);
        return NULL;
    }
    _Static_assert(sizeof KEEP_ARCHIVE_NAMES == SEALED_KEY, "a key with its NUL");
    memcpy(s->key.names, KEEP_ARCHIVE_NAMES, sizeof s->key.names);
    randombytes_buf(s->key.contents, sizeof s->key.contents);
    s->key.id[0] = 1;
    s->loop = srv->loop;
    s->works = works;
    s->fd = take_fd(&fd);
    s->w.put = put;
    s->r.get = get;
    s->w.cookie = s->r.cookie = s;
    return s;
}

void
spool_free(struct spool *s)
{
    if (s == NULL)
        return;
    s->closing = true;
    if (s->busy)
        return;
    clear(s);
    (void)close(s->fd);
    sodium_memzero(s, sizeof *s);
    free(s);
}

void
spool_write(struct spool *s, uint8_t *bytes, struct spool_piece *pieces, size_t pieces_n,
            spool_done *done, void *cookie)
{
    s->bytes = bytes;
    s->pieces = pieces;
    s->pieces_n = pieces_n;
    start(s, done, cookie);
}

void
spool_read(struct spool *s, uint32_t stream, size_t n, spool_done *done, void *cookie)
{
    s->reading = stream;
    s->to_n = n < SPOOL_READ_MAX ? n : SPOOL_READ_MAX;
    start(s, done, cookie);
}

const uint8_t *
spool_bytes(const struct spool *s)
{
    return s->to;
}

void
spool_expect(struct spool *s, uint32_t i, const uint8_t digest[SPAWN_DIGEST_BYTES])
{
    memcpy(s->stream[i].digest, digest, sizeof s->stream[i].digest);
}

uint32_t
spool_streams(const struct spool *s)
{
    return s->n;
}

const struct spool_stream *
spool_stream(const struct spool *s, uint32_t i)
{
    return &s->stream[i];
}

int
spool_fd(const struct spool *s)
{
    return s->fd;
}

const struct sealed_key *
spool_key(const struct spool *s)
{
    return &s->key;
}

int
spool_add(struct spool *s, const struct spool_stream *like, struct err *e)
{
    off_t end = lseek(s->fd, 0, SEEK_END);
    if (end < 0 || s->n == SPOOL_STREAMS_MAX)
        return err_sys(e, end < 0 ? errno : E2BIG, "write an archive");
    s->stream[s->n] = *like;
    s->stream[s->n].at = s->end;
    s->stream[s->n++].file_bytes = (uint64_t)end - s->end;
    s->end = (uint64_t)end;
    return 0;
}
