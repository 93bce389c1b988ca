// SPDX-License-Identifier: Apache-2.0
// See audit_scan.h.
#include "audit_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)AUDIT_SCAN_BYTES >= 2 * (int)AUDIT_FRAME_MAX, "room for a frame");

int
audit_scan_open(struct audit_scan *s, int fd, uint64_t offset, struct err *e)
{
    *s = (struct audit_scan){.fd = fd, .offset = offset, .buffer = malloc(AUDIT_SCAN_BYTES)};
    return s->buffer != NULL ? 0 : err_sys(e, ENOMEM, "read the audit log");
}

void
audit_scan_close(struct audit_scan *s)
{
    free(s->buffer);
    s->buffer = NULL;
}

// Reads more behind what is there. 1: something came; 0: the end.
static int
fill(struct audit_scan *s, struct err *e)
{
    memmove(s->buffer, s->buffer + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    const ssize_t n =
        pread(s->fd, s->buffer + s->end, AUDIT_SCAN_BYTES - s->end, (off_t)(s->offset + s->end));
    if (n < 0)
        return err_sys(e, errno, "read the audit log");
    s->end += (size_t)n;
    return n > 0;
}

static uint64_t
behind(const struct audit_scan *s)
{
    struct stat st;
    if (fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > s->offset)
        return (uint64_t)st.st_size - s->offset;
    return s->end - s->begin;
}

int
audit_scan_next(struct audit_scan *s, struct audit_frame *f, struct err *e)
{
    for (;;) {
        const int got = audit_frame_read(s->buffer + s->begin, s->end - s->begin, f);
        if (got > 0) {
            s->begin += f->bytes;
            s->offset += f->bytes;
            return 1;
        }
        const int more = got == 0 ? fill(s, e) : 0;
        if (more > 0)
            continue;
        s->left = behind(s);
        return more;
    }
}
