// SPDX-License-Identifier: Apache-2.0
// A place in the log, by the sequence of a record, and reading on from there. Any thread; one cursor belongs to one thread at a time.
//
// Files go (audit.keep), and the end of one may move to the next (sync.c): the file and the offset are only where to look first.
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/audit_scan.h"
#include "proto/auto.h"

// Reads the sequence of a file's first record; 0: it has none, or has gone.
static uint64_t
first_of(int dir, uint32_t number, struct arena *arena)
{
    char name[AUDIT_NAME];
    struct audit_scan scan = {.fd = -1};
    struct audit_frame f = {.bytes = 0};
    const Stockade__V1__AuditRecord *m = NULL;
    struct err none;
    uint64_t first = 0;
    audit_name(number, name);
    int auto_close fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    arena_reset(arena);
    if (fd >= 0 && audit_scan_open(&scan, fd, 0, &none) == 0 &&
        audit_scan_next(&scan, &f, &none) > 0 &&
        audit_record_read(f.record, f.n, arena, &m, &none) == 0)
        first = m->sequence;
    audit_scan_close(&scan);
    return first;
}

// The newest file that begins at or before the next record, else the oldest one. 1: there is one.
static int
locate(struct audit_cursor *c, struct err *e)
{
    uint32_t *auto_free files = NULL;
    const int n = audit_list(c->dir, "the audit log", &files, e);
    if (n <= 0)
        return n;
    int at = n - 1;
    for (; at > 0; at--) {
        const uint64_t first = first_of(c->dir, files[at], c->arena);
        if (first != 0 && first <= c->after + 1)
            break;
    }
    c->number = files[at];
    c->offset = 0;
    return 1;
}

// The file behind this one. 1: there is one.
static int
next_file(struct audit_cursor *c, struct err *e)
{
    uint32_t *auto_free files = NULL;
    const int n = audit_list(c->dir, "the audit log", &files, e);
    for (int i = 0; i < n; i++) {
        if (files[i] <= c->number)
            continue;
        c->number = files[i];
        c->offset = 0;
        return 1;
    }
    return n < 0 ? n : 0;
}

struct piece {
    struct audit_cursor *c;
    uint64_t limit, left; // sequence; bytes
    audit_cursor_fn *record;
    void *cookie;
};

enum { FILE_ENDS = -1000 };

// A record that was changed is skipped: readers get what can be read, and `verify` names the rest.
static int
read_one(struct piece *p, struct audit_scan *scan, struct err *e)
{
    struct audit_cursor *c = p->c;
    struct audit_frame f = {.bytes = 0};
    const Stockade__V1__AuditRecord *m = NULL;
    struct err none;
    int r = audit_scan_next(scan, &f, e);
    if (r <= 0)
        return r == 0 ? FILE_ENDS : r;
    arena_reset(c->arena);
    if (audit_record_read(f.record, f.n, c->arena, &m, &none) == 0) {
        if (m->sequence > p->limit)
            return AUDIT_CURSOR_END;
        r = m->sequence > c->after ? p->record(p->cookie, &f, m, e) : 0;
        if (r == AUDIT_CURSOR_FULL) // this record comes again
            return AUDIT_CURSOR_STOP;
        c->after = m->sequence > c->after ? m->sequence : c->after;
    } else {
        r = 0;
    }
    c->offset = scan->offset;
    p->left -= f.bytes < p->left ? f.bytes : p->left;
    return r != 0 ? r : p->left == 0 ? AUDIT_CURSOR_MORE : 0;
}

static int
read_file(struct piece *p, struct err *e)
{
    char name[AUDIT_NAME];
    struct audit_scan scan = {.fd = -1};
    audit_name(p->c->number, name);
    int auto_close fd = openat(p->c->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return FILE_ENDS;
    if (fd < 0)
        return err_sys(e, errno, "open %s", name);
    int r = audit_scan_open(&scan, fd, p->c->offset, e);
    while (r == 0)
        r = read_one(p, &scan, e);
    audit_scan_close(&scan);
    return r;
}

int
audit_cursor_read(struct audit_cursor *c, uint64_t limit, uint64_t bytes, audit_cursor_fn *record,
                  void *cookie, struct err *e)
{
    struct piece p = {c, limit, bytes, record, cookie};
    if (c->after >= limit)
        return AUDIT_CURSOR_END;
    int r = c->number == 0 ? locate(c, e) : 1;
    while (r == 1) {
        r = read_file(&p, e);
        if (r != FILE_ENDS)
            return r;
        r = next_file(c, e);
    }
    return r < 0 ? r : AUDIT_CURSOR_END;
}
