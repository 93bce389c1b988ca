// SPDX-License-Identifier: Apache-2.0
// fdatasync(2), and what follows when it fails.
//
// After a failure Linux marks the pages clean that it could not write, so the same call again returns 0 although the disk lacks
// them (fsync(2), NOTES). What was appended since the last success is kept in memory, and goes to another file:
//
//   audit-4.log | synced | suspect |          1. audit-next.tmp: the suspect frames, fdatasync
//                        ^ cut here              (as audit-fresh.tmp, then renamed), fsync of the folder
//                                             2. cut audit-4.log, fsync
//   audit-5.log | the same frames | ...       3. audit-next.tmp becomes audit-5.log, fsync of the folder
//
// If any of this fails the file stays suspect, nothing is reported as stored, and all of it is done again, with a new file. After 2
// audit-next.tmp may have the only copy, so a newer one takes its place by rename(2).
// A kill between 2 and 3 leaves a temporary file that continues the chain: the next start does step 3. One between 1 and 2 leaves
// one that does not: it is removed.
#include "private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/audit_scan.h"
#include "proto/auto.h"

static const char next_name[] = "audit-next.tmp", fresh_name[] = "audit-fresh.tmp";

int
audit_sync_prepare(struct audit *a, struct err *e)
{
    if (a->settings.sync == AUDIT_SYNC_NONE)
        return 0;
    a->unsynced.bytes = malloc(AUDIT_UNSYNCED_BYTES);
    return a->unsynced.bytes != NULL ? 0 : err_sys(e, ENOMEM, "open the audit log");
}

int
audit_sync_room(struct audit *a, size_t n, struct err *e)
{
    const bool fits = a->unsynced.bytes == NULL || a->unsynced.n + n <= AUDIT_UNSYNCED_BYTES;
    return fits && !a->file.suspect ? 0 : audit_sync(a, e);
}

void
audit_sync_add(struct audit *a, const uint8_t *bytes, size_t n)
{
    if (a->unsynced.bytes == NULL)
        return;
    assert(a->unsynced.n + n <= AUDIT_UNSYNCED_BYTES);
    memcpy(a->unsynced.bytes + a->unsynced.n, bytes, n);
    a->unsynced.n += n;
}

// ---- another file

static int
fail(const struct audit *a, const char *what, struct err *e)
{
    return err_sys(e, errno != 0 ? errno : EIO, "%s the audit log in %s", what, a->folder);
}

// The new file, complete and on the disk; under its temporary name. One that is there stays until then.
static int
copy(const struct audit *a, int *out, struct err *e)
{
    (void)unlinkat(a->dir, fresh_name, 0);
    int auto_close fd =
        openat(a->dir, fresh_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(a, "begin another file of", e);
    for (size_t done = 0; done < a->unsynced.n;) {
        const ssize_t n = pwrite(fd, a->unsynced.bytes + done, a->unsynced.n - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(a, "write another file of", e);
        done += (size_t)n;
    }
    if (a->system->sync(fd) < 0 || renameat(a->dir, fresh_name, a->dir, next_name) < 0 ||
        fsync(a->dir) < 0)
        return fail(a, "sync another file of", e);
    *out = take_fd(&fd);
    return 0;
}

static int
move(struct audit *a, int error, struct err *e)
{
    char name[AUDIT_NAME];
    int auto_close fd = -1;
    int r = copy(a, &fd, e);
    if (r < 0)
        return r;
    audit_name(a->file.number + 1, name);
    if (ftruncate(a->file.fd, (off_t)a->file.synced) < 0 || fsync(a->file.fd) < 0)
        return fail(a, "cut a file of", e);
    if (renameat2(a->dir, next_name, a->dir, name, RENAME_NOREPLACE) < 0 || fsync(a->dir) < 0)
        return fail(a, "name another file of", e);
    audit_name(a->file.number, a->moved.file);
    a->moved.offset = a->file.synced;
    a->moved.bytes = a->unsynced.n;
    a->moved.error = error;
    (void)close(a->file.fd);
    a->file = (struct audit_file){take_fd(&fd), a->file.number + 1, a->unsynced.n,
                                  .synced = a->unsynced.n};
    return 0;
}

int
audit_sync(struct audit *a, struct err *e)
{
    const bool was = a->file.suspect;
    if (a->unsynced.n == 0)
        return 0;
    errno = 0;
    a->file.suspect = was || a->system->sync(a->file.fd) < 0;
    int r = a->file.suspect ? move(a, was ? EIO : errno, e) : 0;
    if (r < 0)
        return r;
    a->file.synced = a->file.bytes;
    a->unsynced.n = 0;
    a->unsynced_since_ns = 0;
    return 0;
}

// ---- the start

// 1: the first record of the file continues the chain.
static int
continues(const struct audit *a, int fd, struct err *e)
{
    struct audit_scan scan = {.fd = -1};
    struct audit_frame f = {.bytes = 0};
    const Stockade__V1__AuditRecord *m = NULL;
    struct err none;
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    if (arena == NULL)
        return err_sys(e, ENOMEM, "read the audit log");
    int r = audit_scan_open(&scan, fd, 0, e);
    if (r == 0)
        r = audit_scan_next(&scan, &f, e);
    if (r > 0)
        r = f.intact && audit_record_read(f.record, f.n, arena, &m, &none) == 0 &&
            m->sequence == a->chain.sequence + 1 &&
            memcmp(m->previous.data, a->chain.head, AUDIT_HASH) == 0;
    audit_scan_close(&scan);
    return r;
}

int
audit_sync_recover(struct audit *a, uint32_t number, struct err *e)
{
    char name[AUDIT_NAME];
    (void)unlinkat(a->dir, fresh_name, 0); // what it has is in another file
    int auto_close fd = openat(a->dir, next_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail(a, "open the unfinished file of", e);
    int r = continues(a, fd, e);
    if (r < 0)
        return r;
    audit_name(number, name);
    const bool done = r > 0 ? renameat2(a->dir, next_name, a->dir, name, RENAME_NOREPLACE) == 0
                            : unlinkat(a->dir, next_name, 0) == 0;
    return done ? r : fail(a, "finish a file of", e);
}
