// SPDX-License-Identifier: Apache-2.0
// See zst.h.
#include "zst.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "proto/plural.h"

enum { PIECE = 64 * 1024 };

struct zst_writer {
    const struct tar_sink *to;
    ZSTD_CCtx *z;
    uint8_t piece[PIECE];
};

struct zst_reader {
    const struct tar_source *from;
    ZSTD_DCtx *z;
    uint64_t ratio_max;
    uint64_t in_n, out_n;
    bool inside;   // of a frame
    bool may_hold; // the decoder may have more bytes without new input
    uint8_t magic[4];
    size_t magic_n; // of the next frame
    ZSTD_inBuffer in;
    uint8_t piece[PIECE];
};

// ---- writing

struct zst_writer *
zst_writer_new(const struct tar_sink *to, struct err *e)
{
    struct zst_writer *w = calloc(1, sizeof *w);
    if (w != NULL)
        w->z = ZSTD_createCCtx();
    if (w == NULL || w->z == NULL) {
        (void)err_sys(e, ENOMEM, "compress an archive");
        zst_writer_free(w);
        return NULL;
    }
    w->to = to;
    (void)ZSTD_CCtx_setParameter(w->z, ZSTD_c_checksumFlag, 1);
    return w;
}

void
zst_writer_free(struct zst_writer *w)
{
    if (w == NULL)
        return;
    (void)ZSTD_freeCCtx(w->z);
    free(w);
}

// One step of the encoder. *left: bytes that it still holds, at least.
static int
encode(struct zst_writer *w, ZSTD_inBuffer *in, ZSTD_EndDirective how, size_t *left, struct err *e)
{
    ZSTD_outBuffer out = {.dst = w->piece, .size = sizeof w->piece};
    *left = ZSTD_compressStream2(w->z, &out, in, how);
    if (ZSTD_isError(*left) != 0)
        return err_set(e, ERR_INTERNAL, "compress an archive: %s", ZSTD_getErrorName(*left));
    return out.pos == 0 ? 0 : w->to->write(w->to->cookie, w->piece, out.pos, e);
}

int
zst_write(void *writer, const void *bytes, size_t n, struct err *e)
{
    ZSTD_inBuffer in = {.src = bytes, .size = n};
    size_t left = 0;
    int r = 0;
    while (r == 0 && in.pos < in.size)
        r = encode(writer, &in, ZSTD_e_continue, &left, e);
    return r;
}

int
zst_end(struct zst_writer *w, struct err *e)
{
    ZSTD_inBuffer none = {.src = "", .size = 0};
    size_t left = 0;
    int r = 0;
    do
        r = encode(w, &none, ZSTD_e_end, &left, e);
    while (r == 0 && left > 0);
    return r;
}

// ---- reading

struct zst_reader *
zst_reader_new(const struct tar_source *from, uint64_t ratio_max, struct err *e)
{
    struct zst_reader *r = calloc(1, sizeof *r);
    if (r != NULL)
        r->z = ZSTD_createDCtx();
    if (r == NULL || r->z == NULL) {
        (void)err_sys(e, ENOMEM, "decompress an archive");
        zst_reader_free(r);
        return NULL;
    }
    r->from = from;
    r->ratio_max = ratio_max == 0 ? ZST_RATIO_DEFAULT : ratio_max;
    r->in.src = r->piece;
    (void)ZSTD_DCtx_setParameter(r->z, ZSTD_d_windowLogMax, ZST_WINDOW_LOG_MAX);
    return r;
}

void
zst_reader_free(struct zst_reader *r)
{
    if (r == NULL)
        return;
    (void)ZSTD_freeDCtx(r->z);
    free(r);
}

static int
too_large(struct err *e, const char *hint)
{
    err_detail(e, "ARCHIVE_TOO_LARGE", "archive", hint);
    return err_errno(e);
}

static int
refuse(size_t code, struct err *e)
{
    if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                      "decompress an archive: it has a window of more than %d bytes",
                      1 << ZST_WINDOW_LOG_MAX);
        return too_large(e, "compress it without --long, and with a level of at most 19");
    }
    int r = err_set(e, ERR_INVALID_ARGUMENT, "decompress an archive: %s", ZSTD_getErrorName(code));
    err_detail(e, "ARCHIVE_REFUSED", "archive", NULL);
    return r;
}

static int
check_ratio(const struct zst_reader *r, struct err *e)
{
    // Divided, because a product could overflow.
    if (r->out_n <= ZST_RATIO_FREE || (r->out_n - ZST_RATIO_FREE) / r->ratio_max <= r->in_n)
        return 0;
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                  "the archive becomes more than %llu times as large when it is decompressed",
                  (unsigned long long)r->ratio_max);
    return too_large(e,
                     "raise ratio_max (--ratio) if you trust it, or send it without compression");
}

// More compressed bytes. Returns their number, 0 at the end of a complete archive.
static ssize_t
fill(struct zst_reader *r, struct err *e)
{
    ssize_t n = r->from->read(r->from->cookie, r->piece, sizeof r->piece, e);
    if (n < 0)
        return n;
    if (n == 0 && (r->inside || r->magic_n > 0 || r->in_n == 0)) {
        int rc = err_set(e, ERR_DATA_LOSS, "the compressed archive ends early, after %llu %s",
                         (unsigned long long)r->in_n, plural(r->in_n, "byte", "bytes"));
        err_detail(e, "ARCHIVE_CUT", "archive", NULL);
        return rc;
    }
    r->in_n += (uint64_t)n;
    r->in.size = (size_t)n;
    r->in.pos = 0;
    return n;
}

// A frame of today's format, or one that is skipped (RFC 8878, 3.1). The library also has decoders of formats that nobody
// writes any more; hostile bytes do not reach them.
static bool
is_known(const uint8_t magic[4])
{
    static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t skipped[] = {0x2a, 0x4d, 0x18};
    return memcmp(magic, frame, sizeof frame) == 0 ||
           ((magic[0] & 0xf0) == 0x50 && memcmp(magic + 1, skipped, sizeof skipped) == 0);
}

// Hands the first bytes of a frame to the decoder when they are complete and known.
static int
begin_frame(struct zst_reader *r, ZSTD_outBuffer *out, size_t *left, struct err *e)
{
    while (r->magic_n < sizeof r->magic && r->in.pos < r->in.size)
        r->magic[r->magic_n++] = r->piece[r->in.pos++];
    if (r->magic_n < sizeof r->magic)
        return 0;
    if (!is_known(r->magic)) {
        int rc = err_set(e, ERR_INVALID_ARGUMENT, "decompress an archive: this is no Zstandard");
        err_detail(e, "ARCHIVE_REFUSED", "archive", NULL);
        return rc;
    }
    ZSTD_inBuffer in = {.src = r->magic, .size = sizeof r->magic};
    *left = ZSTD_decompressStream(r->z, out, &in);
    r->magic_n = 0;
    r->inside = true;
    return 0;
}

// One step of the decoder.
static int
decode(struct zst_reader *r, ZSTD_outBuffer *out, struct err *e)
{
    size_t left = 0;
    if (!r->inside) {
        int rc = begin_frame(r, out, &left, e);
        if (rc < 0 || !r->inside)
            return rc;
    } else {
        left = ZSTD_decompressStream(r->z, out, &r->in);
        r->inside = left != 0;
        r->may_hold = left != 0 && out->pos == out->size;
    }
    return ZSTD_isError(left) != 0 ? refuse(left, e) : 0;
}

ssize_t
zst_read(void *reader, void *bytes, size_t n, struct err *e)
{
    struct zst_reader *r = reader;
    ZSTD_outBuffer out = {.dst = bytes, .size = n};
    while (out.pos == 0) {
        if (r->in.pos == r->in.size && !r->may_hold) {
            ssize_t got = fill(r, e);
            if (got <= 0)
                return got;
        }
        int rc = decode(r, &out, e);
        if (rc < 0)
            return rc;
    }
    r->out_n += out.pos;
    int rc = check_ratio(r, e);
    return rc < 0 ? rc : (ssize_t)out.pos;
}
