// SPDX-License-Identifier: Apache-2.0
// See tar.h: tar_feed(), a tar archive of regular files in pieces of any size.
//
//   header -> data ... -> padding -> header ... -> two blocks of zeros -> zeros
#include "tar.h"

#include <string.h>

#include "proto/zero.h"

enum { FILES_MAX = 4096 };

static int
refuse(struct err *e, const char *what)
{
    int r = err_set(e, ERR_INVALID_ARGUMENT, "the archive is refused: %s", what);
    err_detail(e, "ARCHIVE_REFUSED", "archive", NULL);
    return r;
}

static int
take_header(struct tar_feed *f, const struct tar_feed_events *events, void *cookie, struct err *e)
{
    struct tar_header h;
    f->block_n = 0;
    if (is_all_zero(f->block, sizeof f->block)) {
        f->zeros++;
        return 0;
    }
    if (f->zeros > 0)
        return refuse(e, "something follows its end");
    int rc = tar_header_read(f->block, &h, e);
    if (rc < 0)
        return rc;
    if (h.kind != TAR_FILE || h.size > INT64_MAX)
        return refuse(e, "it has an entry that is no regular file");
    if (++f->files > FILES_MAX)
        return refuse(e, "it has too many files");
    f->left = h.size;
    f->padding = (TAR_BLOCK - h.size % TAR_BLOCK) % TAR_BLOCK;
    f->inside = true;
    return events->begin(cookie, h.name, h.size, e);
}

// What belongs to the file, its padding, and its end. Returns how many bytes; negative: *e.
static long
take_file(struct tar_feed *f, const uint8_t *bytes, size_t n, const struct tar_feed_events *events,
          void *cookie, struct err *e)
{
    int rc = 0;
    size_t used = n < f->left ? n : (size_t)f->left;
    if (used > 0) {
        f->left -= used;
        rc = events->data(cookie, bytes, used, e);
    } else if (f->left == 0 && f->padding > 0) {
        used = n < f->padding ? n : (size_t)f->padding;
        f->padding -= used;
        if (!is_all_zero(bytes, used))
            rc = refuse(e, "a file does not end with zeros");
    }
    if (rc == 0 && f->left == 0 && f->padding == 0) {
        f->inside = false;
        rc = events->end(cookie, e);
    }
    return rc < 0 ? rc : (long)used;
}

int
tar_feed(struct tar_feed *f, const uint8_t *bytes, size_t n, const struct tar_feed_events *events,
         void *cookie, struct err *e)
{
    while (n > 0) {
        size_t used = 0;
        int rc = 0;
        if (f->inside) {
            long took = take_file(f, bytes, n, events, cookie, e);
            rc = took < 0 ? (int)took : 0;
            used = took < 0 ? 0 : (size_t)took;
        } else {
            used = sizeof f->block - f->block_n < n ? sizeof f->block - f->block_n : n;
            memcpy(f->block + f->block_n, bytes, used);
            f->block_n += used;
            if (f->block_n == sizeof f->block)
                rc = take_header(f, events, cookie, e);
        }
        if (rc < 0)
            return rc;
        bytes += used;
        n -= used;
    }
    return 0;
}

int
tar_feed_end(const struct tar_feed *f, struct err *e)
{
    if (!f->inside && f->block_n == 0 && f->zeros >= 2)
        return 0;
    int r = err_set(e, ERR_DATA_LOSS, "the archive ends early");
    err_detail(e, "ARCHIVE_CUT", "archive", "get it again");
    return r;
}
