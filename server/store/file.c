// SPDX-License-Identifier: Apache-2.0
// See private.h: a record as a file. One of a fixed head, then its layers and `about`, then a BLAKE2b-256 sum of all that. Version 2,
// of a record in which something is encrypted, has the numbers of the data keys of `about` and of each layer before `about`. The broker
// wrote it, but a disk may be damaged, or the broker older than the file.
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/rpc/tenants.h"
#include "private.h"

enum {
    PLAIN = 1,
    VERSION = 2,
    SUM_BYTES = 32,
    TENANT_BYTES = 32,
    // what encryption adds to the longest `about`
    ABOUT_MORE = SEALED_HEAD + (STORE_ABOUT_ANY_MAX / SEALED_CHUNK + 1) * SEALED_MORE,
};

static const char MAGIC[16] = "stockade record";

struct head {
    char magic[16];
    uint32_t version, kind;
    int64_t created_ms;
    uint64_t order;
    char id[56], sandbox[56];
    char tenant[TENANT_BYTES];
    char name[72];
    char template[64];
    uint32_t layers_n, about_n;
};
_Static_assert(sizeof(struct head) == 16 + 8 + 8 + 8 + 112 + 32 + 72 + 64 + 8, "no padding");
_Static_assert(sizeof(struct file_layer) == SPAWN_DIGEST_BYTES + 16, "no padding");

static void
sum_of(const uint8_t *bytes, size_t n, uint8_t out[SUM_BYTES])
{
    (void)crypto_generichash(out, SUM_BYTES, bytes, n, NULL, 0);
}

static bool
is_plain(const struct stored *r)
{
    bool plain = sealed_id_is_none(r->key_id);
    for (uint32_t i = 0; i < r->layers_n; i++)
        plain = plain && sealed_id_is_none(r->layer[i]->key_id);
    return plain;
}

static struct sealed_what
about_of(const struct stored *r)
{
    return (struct sealed_what){SEALED_ABOUT, r->id, strlen(r->id)};
}

static void
fill_head(struct head *h, const struct stored *r)
{
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    (void)snprintf(h->id, sizeof h->id, "%s", r->id);
    (void)snprintf(h->sandbox, sizeof h->sandbox, "%s", r->sandbox);
    (void)snprintf(h->tenant, sizeof h->tenant, "%s", r->tenant->name);
    (void)snprintf(h->name, sizeof h->name, "%s", r->name);
    (void)snprintf(h->template, sizeof h->template, "%s", r->template);
}

static uint8_t *
put_layers(const struct stored *r, bool plain, uint8_t *at)
{
    for (uint32_t i = 0; i < r->layers_n; i++, at += sizeof(struct file_layer)) {
        struct file_layer l = {.bytes = r->layer[i]->bytes, .entries = r->layer[i]->entries};
        memcpy(l.digest, r->layer[i]->digest, sizeof l.digest);
        memcpy(at, &l, sizeof l);
    }
    if (plain)
        return at;
    memcpy(at, r->key_id, SEALED_KEY_ID);
    at += SEALED_KEY_ID;
    for (uint32_t i = 0; i < r->layers_n; i++, at += SEALED_KEY_ID)
        memcpy(at, r->layer[i]->key_id, SEALED_KEY_ID);
    return at;
}

static size_t
layers_bytes(uint32_t n, bool plain)
{
    return n * sizeof(struct file_layer) + (plain ? 0 : (n + 1) * (size_t)SEALED_KEY_ID);
}

uint8_t *
file_pack(const struct stored *r, const struct sealed_key *key, size_t *n, struct err *e)
{
    const bool plain = is_plain(r);
    const struct sealed_what what = about_of(r);
    uint8_t *auto_free sealed = NULL;
    const uint8_t *about = r->about;
    size_t about_n = r->about_n;
    if (key != NULL && sealed_bytes(key, &what, r->about, r->about_n, &sealed, &about_n, e) < 0)
        return NULL;
    about = key != NULL ? sealed : about;
    struct head h = {.version = plain ? PLAIN : VERSION,
                     .kind = r->kind,
                     .created_ms = r->created_ms,
                     .order = r->order,
                     .layers_n = r->layers_n,
                     .about_n = (uint32_t)about_n};
    fill_head(&h, r);
    *n = sizeof h + layers_bytes(r->layers_n, plain) + about_n + SUM_BYTES;
    uint8_t *bytes = calloc(1, *n);
    if (bytes == NULL) {
        (void)err_sys(e, ENOMEM, "write a record");
        return NULL;
    }
    memcpy(bytes, &h, sizeof h);
    uint8_t *at = put_layers(r, plain, bytes + sizeof h);
    if (about_n > 0)
        memcpy(at, about, about_n);
    sum_of(bytes, *n - SUM_BYTES, bytes + *n - SUM_BYTES);
    return bytes;
}

int
file_unseal(struct stored *r, const struct sealed_key *key, struct err *e)
{
    const struct sealed_what what = about_of(r);
    uint8_t *about = NULL;
    size_t n = 0;
    int rc = sealed_unbytes(key, &what, r->about, r->about_n, &about, &n, e);
    if (rc < 0)
        return rc;
    free(r->about);
    r->about = about;
    r->about_n = n;
    return 0;
}

// ---- reading

static int
damaged(struct err *e, const char *what)
{
    return err_set(e, ERR_DATA_LOSS, "not a valid record: %s", what);
}

static bool
ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static int
check_head(const struct head *h, size_t n, struct err *e)
{
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0)
        return damaged(e, "it begins with other bytes");
    if (h->version > VERSION)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the record is of version %u, and this broker knows up to %d: start a newer one",
            h->version, VERSION);
    if (h->version == 0 || h->kind >= STORE_KINDS_N || h->layers_n > STORE_LAYERS_MAX ||
        h->about_n > STORE_ABOUT_ANY_MAX + ABOUT_MORE ||
        n != sizeof *h + layers_bytes(h->layers_n, h->version == PLAIN) + h->about_n + SUM_BYTES)
        return damaged(e, "a number is out of range");
    if (!ends(h->id, ID_TEXT_MAX + 1) || !ends(h->sandbox, ID_TEXT_MAX + 1) ||
        !ends(h->tenant, sizeof h->tenant) || !ends(h->name, STORE_NAME) ||
        !ends(h->template, sizeof h->template) || h->id[0] == '\0' || h->tenant[0] == '\0')
        return damaged(e, "a text is too long, or missing");
    return 0;
}

int
file_unpack(const uint8_t *bytes, size_t n, struct file_content *out, struct err *e)
{
    struct head h;
    uint8_t sum[SUM_BYTES];
    if (n < sizeof h + SUM_BYTES)
        return damaged(e, "it is too short");
    memcpy(&h, bytes, sizeof h);
    int rc = check_head(&h, n, e);
    if (rc < 0)
        return rc;
    sum_of(bytes, n - SUM_BYTES, sum);
    if (memcmp(sum, bytes + n - SUM_BYTES, SUM_BYTES) != 0)
        return damaged(e, "its sum is wrong");
    *out = (struct file_content){.r = {.kind = h.kind,
                                       .created_ms = h.created_ms,
                                       .order = h.order,
                                       .layers_n = h.layers_n,
                                       .about_n = h.about_n}};
    memcpy(out->r.id, h.id, sizeof out->r.id);
    memcpy(out->r.sandbox, h.sandbox, sizeof out->r.sandbox);
    memcpy(out->r.name, h.name, sizeof out->r.name);
    memcpy(out->r.template, h.template, sizeof out->r.template);
    memcpy(out->tenant, h.tenant, sizeof out->tenant);
    const uint8_t *at = bytes + sizeof h;
    memcpy(out->layer, at, h.layers_n * sizeof out->layer[0]);
    at += h.layers_n * sizeof out->layer[0];
    if (h.version != PLAIN) {
        memcpy(out->r.key_id, at, SEALED_KEY_ID);
        memcpy(out->key_id, at + SEALED_KEY_ID, (size_t)h.layers_n * SEALED_KEY_ID);
        at += (h.layers_n + 1) * (size_t)SEALED_KEY_ID;
    }
    out->r.about = malloc(h.about_n + 1);
    if (out->r.about == NULL)
        return err_sys(e, ENOMEM, "read a record");
    memcpy(out->r.about, at, h.about_n);
    return 0;
}

// ---- files

void
file_path(const char *state_dir, const char *id, char out[STORE_PATH_MAX])
{
    (void)snprintf(out, STORE_PATH_MAX, "%s/" STORE_FOLDER "/%s.record", state_dir, id);
}

int
file_read(const char *path, uint8_t **bytes, size_t *n, struct err *e)
{
    struct stat st;
    const off_t most = (off_t)sizeof(struct file_content) + STORE_ABOUT_ANY_MAX + ABOUT_MORE;
    int auto_close fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > most)
        return damaged(e, "it is no file, or too long");
    *bytes = malloc((size_t)st.st_size + 1);
    if (*bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    ssize_t got = pread(fd, *bytes, (size_t)st.st_size, 0);
    if (got == st.st_size) {
        *n = (size_t)got;
        return 0;
    }
    int rc = err_sys(e, got < 0 ? errno : EIO, "read %s", path);
    free(*bytes);
    *bytes = NULL;
    return rc;
}

static int
sync_folder(const char *path, struct err *e)
{
    char folder[STORE_PATH_MAX];
    const char *slash = strrchr(path, '/');
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    int auto_close fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? err_sys(e, errno, "write %s to the disk", folder) : 0;
}

static int
write_synced(const char *path, const uint8_t *bytes, size_t n, struct err *e)
{
    int auto_close fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t done = 0;
    ssize_t more = fd < 0 ? -1 : 0;
    while (more >= 0 && done < n && (more = write(fd, bytes + done, n - done)) > 0)
        done += (size_t)more;
    if (done == n && fsync(fd) == 0)
        return 0;
    int rc = err_sys(e, errno != 0 ? errno : ENOSPC, "write %s", path);
    if (e->sys == ENOSPC || e->sys == EDQUOT) {
        e->code = ERR_RESOURCE_EXHAUSTED;
        err_detail(e, "DISK_FULL", "state_dir",
                   "free some space on the disk of the state directory, or delete kept snapshots");
    }
    return rc;
}

int
file_write(const char *path, const uint8_t *bytes, size_t n, struct err *e)
{
    char fresh[STORE_PATH_MAX + 8];
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    int rc = write_synced(fresh, bytes, n, e);
    if (rc == 0 && rename(fresh, path) < 0)
        rc = err_sys(e, errno, "rename %s", fresh);
    if (rc < 0)
        (void)unlink(fresh);
    return rc < 0 ? rc : sync_folder(path, e);
}

int
file_remove(const char *path, struct err *e)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove %s", path);
    return sync_folder(path, e);
}
