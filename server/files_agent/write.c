// SPDX-License-Identifier: Apache-2.0
// Write: the new contents go into a file without a name (O_TMPFILE), which gets one when they are complete, so that nothing is
// left over if this program is killed. To replace a file it first gets a name beside it, for rename(2). Where the file system
// has no files without a name (overlay before Linux 6.10), it has that name from the beginning.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/auto.h"
#include "methods.h"
#include "path.h"

struct draft {
    struct location at;
    char path[FILES_PATH_MAX];
    char name[48]; // of the file until it is complete
    bool there;    // it has that name
    int fd;
    uint32_t mode;
    bool only_if_absent;
    const char *only_if_version; // "": any
};

// Whether the conditions hold; finds the mode of the file that will be replaced.
static int
check(struct draft *d, struct err *e)
{
    struct stat st;
    char version[20];
    if (fstatat(d->at.folder, d->at.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return file_err(e, errno, "write", d->path);
        if (d->only_if_version[0] == '\0')
            return 0;
        int r = err_set(e, ERR_ABORTED, "write %.300s: the file does not exist any more", d->path);
        err_detail(e, "CHANGED", "only_if_version", "read it again");
        return r;
    }
    if (d->only_if_absent)
        return file_err(e, EEXIST, "write", d->path);
    if (S_ISDIR(st.st_mode))
        return file_err(e, EISDIR, "write", d->path);
    describe_version(&st, version);
    if (d->only_if_version[0] != '\0' && strcmp(version, d->only_if_version) != 0) {
        int r = err_set(e, ERR_ABORTED, "write %.300s: the file has changed", d->path);
        err_detail(e, "CHANGED", "only_if_version", "read it again");
        return r;
    }
    if (d->mode == 0 && S_ISREG(st.st_mode))
        d->mode = st.st_mode & 0777;
    return 0;
}

static int
create(struct draft *d, struct err *e)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return err_sys(e, EIO, "choose a name");
    (void)snprintf(d->name, sizeof d->name, ".stockade-write-%016llx", (unsigned long long)number);
    d->fd = openat(d->at.folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (d->fd >= 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return file_err(e, errno, "write", d->path);
    d->fd =
        openat(d->at.folder, d->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->fd < 0)
        return file_err(e, errno, "write", d->path);
    d->there = true;
    return 0;
}

static int
write_all(const struct draft *d, const uint8_t *bytes, size_t n, struct err *e)
{
    while (n > 0) {
        ssize_t w = write(d->fd, bytes, n);
        if (w < 0 && errno != EINTR)
            return file_err(e, errno, "write", d->path);
        bytes += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
    return 0;
}

static int
receive_all(struct op *op, const struct draft *d, struct err *e)
{
    for (;;) {
        ssize_t n = op_receive(op, e);
        if (n <= 0)
            return (int)n;
        int r = write_all(d, op->packet.data, (size_t)n, e);
        if (r < 0)
            return r;
    }
}

// Gives the file a name. 0 or a negative errno.
static int
name_it(const struct draft *d, const char *name)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", d->fd);
    return linkat(AT_FDCWD, path, d->at.folder, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int
put(struct draft *d, struct err *e)
{
    int r = check(d, e); // as late as possible
    if (r < 0)
        return r;
    if (fchmod(d->fd, d->mode != 0 ? d->mode : 0644) < 0)
        return file_err(e, errno, "write", d->path);
    if (!d->there) {
        int named = name_it(d, d->at.name);
        if (named == 0)
            return 0;
        if (named == -EEXIST && !d->only_if_absent)
            named = name_it(d, d->name);
        if (named < 0)
            return file_err(e, -named, "write", d->path);
        d->there = true;
    }
    int sys = path_rename(d->at.folder, d->name, d->at.folder, d->at.name, d->only_if_absent);
    if (sys < 0)
        return file_err(e, -sys, "write", d->path);
    d->there = false;
    return 0;
}

static int
write_it(struct op *op, struct draft *d, struct described *file, struct err *e)
{
    int r = check(d, e);
    if (r == 0)
        r = create(d, e);
    if (r == 0)
        r = receive_all(op, d, e);
    if (r == 0)
        r = put(d, e);
    return r < 0 ? r : describe_at(d->at.folder, d->at.name, d->path, file, e);
}

int
files_write(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceOpenWriteRequest *m =
        (const Stockade__V1__FileServiceOpenWriteRequest *)request;
    Stockade__V1__FileServiceOpenWriteResponse answer =
        STOCKADE__V1__FILE_SERVICE_OPEN_WRITE_RESPONSE__INIT;
    const Stockade__V1__WriteOptions none = STOCKADE__V1__WRITE_OPTIONS__INIT;
    const Stockade__V1__WriteOptions *how = m->options != NULL ? m->options : &none;
    struct draft d = {.fd = -1,
                      .mode = how->mode & 0777,
                      .only_if_absent = how->only_if_absent,
                      .only_if_version = how->only_if_version};
    struct described file;
    struct path p;
    int r = path_read_and_locate(&m->path, how->parents, &p, &d.at, e);
    if (r < 0)
        return r;
    (void)snprintf(d.path, sizeof d.path, "%s", p.text);
    r = write_it(op, &d, &file, e);
    if (d.there)
        (void)unlinkat(d.at.folder, d.name, 0);
    if (d.fd >= 0)
        (void)close(d.fd);
    path_leave(&d.at);
    answer.file = &file.m;
    return r < 0 ? r : op_message(op, &answer.base, e);
}
