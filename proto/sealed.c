// SPDX-License-Identifier: Apache-2.0
// See sealed.h. Numbers are little-endian.
#include "sealed.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = "stk-seal";
enum { AT_VERSION = 8, AT_KIND = 12, AT_ID = 16, AT_STREAM = AT_ID + SEALED_KEY_ID };

void
sealed_key_wipe(struct sealed_key *k)
{
    sodium_memzero(k, sizeof *k);
}

bool
sealed_id_is_none(const uint8_t id[SEALED_KEY_ID])
{
    return sodium_is_zero(id, SEALED_KEY_ID) == 1;
}

static void
put32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t
get32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int
damaged(struct err *e, const char *what)
{
    int r = err_set(e, ERR_DATA_LOSS, "encrypted data are damaged: %s", what);
    err_detail(e, "SEALED_DAMAGED", NULL, "check the disk of the state directory");
    return r;
}

static size_t
add_subject(uint8_t *head, const struct sealed_what *what)
{
    assert(what->subject_n <= SEALED_SUBJECT);
    if (what->subject_n > 0)
        memcpy(head + SEALED_HEAD, what->subject, what->subject_n);
    return SEALED_HEAD + what->subject_n;
}

// ---- writing

int
sealed_begin(struct sealed_writer *w, const struct sealed_key *k, const struct sealed_what *what,
             struct err *e)
{
    w->n = 0;
    memcpy(w->head, MAGIC, sizeof MAGIC);
    put32(w->head + AT_VERSION, SEALED_VERSION);
    put32(w->head + AT_KIND, (uint32_t)what->kind);
    memcpy(w->head + AT_ID, k->id, SEALED_KEY_ID);
    if (crypto_secretstream_xchacha20poly1305_init_push(&w->stream, w->head + AT_STREAM,
                                                        k->contents) != 0)
        return err_sys(e, EIO, "encrypt");
    w->head_n = add_subject(w->head, what);
    return w->put(w->cookie, w->head, SEALED_HEAD, e);
}

static int
push(struct sealed_writer *w, unsigned char tag, struct err *e)
{
    unsigned long long n = 0;
    if (crypto_secretstream_xchacha20poly1305_push(&w->stream, w->out, &n, w->chunk, w->n, w->head,
                                                   w->head_n, tag) != 0)
        return err_sys(e, EIO, "encrypt");
    w->n = 0;
    return w->put(w->cookie, w->out, (size_t)n, e);
}

// A full chunk is written when more comes, because the last one is marked.
int
sealed_add(struct sealed_writer *w, const void *bytes, size_t n, struct err *e)
{
    const uint8_t *from = bytes;
    while (n > 0) {
        int r = w->n == SEALED_CHUNK ? push(w, 0, e) : 0;
        if (r < 0)
            return r;
        const size_t part = n < SEALED_CHUNK - w->n ? n : SEALED_CHUNK - w->n;
        memcpy(w->chunk + w->n, from, part);
        w->n += part;
        from += part;
        n -= part;
    }
    return 0;
}

int
sealed_end(struct sealed_writer *w, struct err *e)
{
    int r = push(w, crypto_secretstream_xchacha20poly1305_TAG_FINAL, e);
    sodium_memzero(&w->stream, sizeof w->stream);
    return r;
}

// ---- reading

static int
check_head(const uint8_t *head, const struct sealed_key *k, enum sealed_kind kind, struct err *e)
{
    if (memcmp(head, MAGIC, sizeof MAGIC) != 0)
        return damaged(e, "they begin with other bytes");
    if (get32(head + AT_VERSION) > SEALED_VERSION) {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "encrypted data are of version %u, and this broker knows up to %d",
                        get32(head + AT_VERSION), SEALED_VERSION);
        err_detail(e, "SEALED_NEWER", NULL, "start a newer broker");
        return r;
    }
    if (get32(head + AT_VERSION) == 0 || get32(head + AT_KIND) != (uint32_t)kind)
        return damaged(e, "they are of another kind");
    if (memcmp(head + AT_ID, k->id, SEALED_KEY_ID) == 0)
        return 0;
    int r = err_set(e, ERR_DATA_LOSS, "encrypted data belong to another key");
    err_detail(e, "SEALED_KEY", NULL, "a file is in the place of another one");
    return r;
}

int
sealed_open(struct sealed_reader *r, const struct sealed_key *k, const struct sealed_what *what,
            struct err *e)
{
    r->at = r->n = 0;
    r->last = false;
    long n = r->get(r->cookie, r->head, SEALED_HEAD, e);
    if (n < 0)
        return (int)n;
    if (n != SEALED_HEAD)
        return damaged(e, "they are too short");
    int rc = check_head(r->head, k, what->kind, e);
    if (rc < 0)
        return rc;
    if (crypto_secretstream_xchacha20poly1305_init_pull(&r->stream, r->head + AT_STREAM,
                                                        k->contents) != 0)
        return damaged(e, "their head is wrong");
    r->head_n = add_subject(r->head, what);
    return 0;
}

static int
pull(struct sealed_reader *r, struct err *e)
{
    unsigned long long n = 0;
    unsigned char tag = 0;
    if (r->last)
        return damaged(e, "they end too early");
    long got = r->get(r->cookie, r->in, sizeof r->in, e);
    if (got < 0)
        return (int)got;
    if (got < SEALED_MORE || crypto_secretstream_xchacha20poly1305_pull(
                                 &r->stream, r->chunk, &n, &tag, r->in, (unsigned long long)got,
                                 r->head, r->head_n) != 0)
        return damaged(e, "bytes were changed, or are missing");
    r->last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
    if (!r->last && n != SEALED_CHUNK)
        return damaged(e, "a chunk is too short");
    r->n = (size_t)n;
    r->at = 0;
    return 0;
}

int
sealed_read(struct sealed_reader *r, void *to, size_t n, struct err *e)
{
    uint8_t *out = to;
    while (n > 0) {
        int rc = r->at == r->n ? pull(r, e) : 0;
        if (rc < 0)
            return rc;
        const size_t part = n < r->n - r->at ? n : r->n - r->at;
        memcpy(out, r->chunk + r->at, part);
        r->at += part;
        out += part;
        n -= part;
    }
    return 0;
}

int
sealed_close(struct sealed_reader *r, struct err *e)
{
    uint8_t more;
    int rc = r->at == r->n && !r->last ? pull(r, e) : 0; // contents that fill their chunks
    if (rc == 0 && r->at != r->n)
        rc = damaged(e, "they go on after their end");
    if (rc < 0)
        return rc;
    sodium_memzero(&r->stream, sizeof r->stream);
    long n = r->get(r->cookie, &more, 1, e);
    return n < 0 ? (int)n : n > 0 ? damaged(e, "they go on after their end") : 0;
}

// ---- in memory

struct span {
    uint8_t *to;
    const uint8_t *from;
    size_t at, n;
};

static int
put_bytes(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct span *s = cookie;
    (void)e;
    assert(n <= s->n - s->at);
    memcpy(s->to + s->at, bytes, n);
    s->at += n;
    return 0;
}

static long
get_bytes(void *cookie, void *bytes, size_t room, struct err *e)
{
    struct span *s = cookie;
    const size_t n = room < s->n - s->at ? room : s->n - s->at;
    (void)e;
    if (n > 0)
        memcpy(bytes, s->from + s->at, n);
    s->at += n;
    return (long)n;
}

// 0 or a negative errno; the bytes are in *s.
static int
write_span(struct span *s, const struct sealed_key *k, const struct sealed_what *what,
           const void *bytes, size_t n, struct err *e)
{
    struct sealed_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "encrypt");
    w->put = put_bytes;
    w->cookie = s;
    int r = sealed_begin(w, k, what, e);
    if (r == 0)
        r = sealed_add(w, bytes, n, e);
    if (r == 0)
        r = sealed_end(w, e);
    sodium_memzero(w, sizeof *w);
    free(w);
    return r;
}

static int
read_span(struct span *s, const struct sealed_key *k, const struct sealed_what *what, uint8_t *to,
          size_t n, struct err *e)
{
    struct sealed_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_sys(e, ENOMEM, "decrypt");
    r->get = get_bytes;
    r->cookie = s;
    int rc = sealed_open(r, k, what, e);
    if (rc == 0)
        rc = sealed_read(r, to, n, e);
    if (rc == 0)
        rc = sealed_close(r, e);
    sodium_memzero(r, sizeof *r);
    free(r);
    return rc;
}

int
sealed_bytes(const struct sealed_key *k, const struct sealed_what *what, const void *bytes,
             size_t n, uint8_t **out, size_t *out_n, struct err *e)
{
    struct span s = {.n = SEALED_HEAD + n + (n / SEALED_CHUNK + 1) * SEALED_MORE};
    s.to = malloc(s.n);
    if (s.to == NULL)
        return err_sys(e, ENOMEM, "encrypt");
    int r = write_span(&s, k, what, bytes, n, e);
    if (r < 0) {
        free(s.to);
        return r;
    }
    *out = s.to;
    *out_n = s.at;
    return 0;
}

int
sealed_unbytes(const struct sealed_key *k, const struct sealed_what *what, const void *bytes,
               size_t n, uint8_t **out, size_t *out_n, struct err *e)
{
    struct span s = {.from = bytes, .n = n};
    const size_t rest = n < SEALED_HEAD ? 0 : n - SEALED_HEAD;
    const size_t chunks = (rest + SEALED_CHUNK + SEALED_MORE - 1) / (SEALED_CHUNK + SEALED_MORE);
    if (chunks == 0 || rest < chunks * SEALED_MORE)
        return damaged(e, "they are too short");
    *out_n = rest - chunks * SEALED_MORE;
    uint8_t *to = malloc(*out_n + 1);
    if (to == NULL)
        return err_sys(e, ENOMEM, "decrypt");
    int rc = read_span(&s, k, what, to, *out_n, e);
    if (rc == 0)
        *out = to;
    else
        free(to);
    return rc;
}
