// SPDX-License-Identifier: Apache-2.0
// See index.h. A record is a struct with a sum over all of it. The folder belongs to the broker, so a false record deceives only
// the broker; what it names are its own disks.
#include "index.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/base/log.h"
#include "server/spawner/ops.h"

enum { NAME = 40, PATH_ROOM = SPAWN_PATH_MAX + 64, VERSION = 1 };

struct record {
    char magic[8];
    uint32_t version;
    uint32_t inodes;
    uint64_t bytes;
    uint64_t order;
    int64_t created_ms;
    uint8_t id[16];
    char name[VOLUME_NAME + 7];
    char tenant[32];
    uint64_t sum;
};
static const char MAGIC[8] = "stkvolum";
_Static_assert(sizeof(struct record) == 168, "a record has no holes");

static uint64_t
sum_of(const struct record *r)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    const uint8_t *bytes = (const uint8_t *)r;
    for (size_t i = 0; i < offsetof(struct record, sum); i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3); // FNV-1a
    return sum;
}

static void
name_of(const uint8_t id[16], char out[NAME])
{
    for (int i = 0; i < 16; i++)
        (void)snprintf(out + (size_t)i * 2, 3, "%02x", id[i]);
}

// False: it is not one.
static bool
id_of(const char *name, uint8_t out[16])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(name) != 32)
        return false;
    memset(out, 0, 16);
    for (size_t i = 0; i < 32; i++) {
        const char *digit = strchr(digits, name[i]);
        if (digit == NULL)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (digit - digits));
    }
    return true;
}

static int
open_folder(const char *state_dir, const char *name)
{
    char path[PATH_ROOM];
    (void)snprintf(path, sizeof path, "%s/%s", state_dir, name);
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int
write_file(int folder, const char *name, const struct record *r, struct err *e)
{
    int auto_close fd =
        openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "create the record");
    ssize_t n = write(fd, r, sizeof *r);
    if (n != (ssize_t)sizeof *r)
        return err_sys(e, n < 0 ? errno : ENOSPC, "write the record");
    return fsync(fd) < 0 ? err_sys(e, errno, "keep the record") : 0;
}

int
index_write(const char *state_dir, const struct volume *v, struct err *e)
{
    char name[NAME], fresh[NAME];
    struct record r = {
        .version = VERSION,
        .inodes = v->inodes,
        .bytes = v->bytes,
        .order = v->order,
        .created_ms = v->created_ms,
    };
    memcpy(r.magic, MAGIC, sizeof r.magic);
    memcpy(r.id, v->id, sizeof r.id);
    memcpy(r.name, v->name, sizeof v->name);
    memcpy(r.tenant, v->tenant, sizeof r.tenant);
    r.sum = sum_of(&r);
    name_of(v->id, name);
    (void)snprintf(fresh, sizeof fresh, "%.32s.new", name);
    int auto_close folder = open_folder(state_dir, INDEX_FOLDER);
    int rc = folder < 0 ? err_sys(e, errno, "open the index of volumes")
                        : write_file(folder, fresh, &r, e);
    if (rc == 0 && (renameat(folder, fresh, folder, name) < 0 || fsync(folder) < 0))
        rc = err_sys(e, errno, "keep the record");
    if (rc < 0 && folder >= 0)
        (void)unlinkat(folder, fresh, 0);
    return rc < 0 ? err_wrap(e, "write the index of volumes") : 0;
}

int
index_remove(const char *state_dir, const struct volume *v, struct err *e)
{
    char name[NAME];
    name_of(v->id, name);
    int auto_close folder = open_folder(state_dir, INDEX_FOLDER);
    if (folder < 0)
        return err_sys(e, errno, "open the index of volumes");
    if ((unlinkat(folder, name, 0) < 0 && errno != ENOENT) || fsync(folder) < 0)
        return err_sys(e, errno, "remove the record from the index of volumes");
    return 0;
}

static bool
ends(const char *text, size_t n)
{
    return memchr(text, '\0', n) != NULL && text[0] != '\0';
}

static int
read_one(int folder, const char *name, const uint8_t id[16], struct volume *v, struct err *e)
{
    struct record r;
    int auto_close fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open %s", name);
    const ssize_t n = read(fd, &r, sizeof r);
    const bool is_one = n >= (ssize_t)offsetof(struct record, inodes) &&
                        memcmp(r.magic, MAGIC, sizeof r.magic) == 0;
    if (is_one && r.version > VERSION) // it may have another size
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s is of version %u, and this broker knows up to %d: start a newer one",
                       name, r.version, VERSION);
    if (!is_one || n != (ssize_t)sizeof r || r.version != VERSION || r.sum != sum_of(&r) ||
        memcmp(r.id, id, sizeof r.id) != 0 || !ends(r.name, VOLUME_NAME) ||
        !ends(r.tenant, sizeof r.tenant))
        return err_set(e, ERR_DATA_LOSS, "%s is damaged", name);
    *v = (struct volume){
        .order = r.order, .bytes = r.bytes, .inodes = r.inodes, .created_ms = r.created_ms};
    memcpy(v->id, r.id, sizeof v->id);
    memcpy(v->name, r.name, sizeof v->name);
    memcpy(v->tenant, r.tenant, sizeof v->tenant);
    return 0;
}

// Also removes what an interrupted write left.
void
index_read(const char *state_dir, void (*found)(void *cookie, const struct volume *v), void *cookie)
{
    int folder = open_folder(state_dir, INDEX_FOLDER);
    DIR *d = folder < 0 ? NULL : fdopendir(folder);
    for (const struct dirent *it = d != NULL ? readdir(d) : NULL; it != NULL; it = readdir(d)) {
        struct volume v;
        struct err e;
        uint8_t id[16];
        if (it->d_name[0] == '.')
            continue;
        if (!id_of(it->d_name, id))
            (void)unlinkat(folder, it->d_name, 0);
        else if (read_one(folder, it->d_name, id, &v, &e) == 0)
            found(cookie, &v);
        else
            log_err(LOG_ERROR, "volume-index", &e);
    }
    if (d != NULL)
        (void)closedir(d);
}

void
index_strays(const char *state_dir, void (*found)(void *cookie, const uint8_t id[16]), void *cookie)
{
    static const char kind[] = "volume-";
    int auto_close folder = open_folder(state_dir, INDEX_FOLDER);
    int disks = open_folder(state_dir, "disks");
    DIR *d = disks < 0 ? NULL : fdopendir(disks);
    for (const struct dirent *it = d != NULL ? readdir(d) : NULL; it != NULL; it = readdir(d)) {
        uint8_t id[16];
        if (folder < 0 || strncmp(it->d_name, kind, sizeof kind - 1) != 0 ||
            !id_of(it->d_name + sizeof kind - 1, id))
            continue;
        if (faccessat(folder, it->d_name + sizeof kind - 1, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
            errno == ENOENT)
            found(cookie, id);
    }
    if (d != NULL)
        (void)closedir(d);
}
