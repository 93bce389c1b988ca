// SPDX-License-Identifier: Apache-2.0
// stockade-keeper: one operation with the layers in the state directory, as root, and exits (keep.h).
//
//   stockade-keeper STATE_DIR UID     UID: the first host id of the source's files; descriptors as in keep.h
//   stockade-keeper copy UID          a layer in memory
//
//   open the folder -> confine -> order -> PUT: copy and digest, or seal; sync, rename | CHECK | REMOVE | SWEEP | EXPORT | IMPORT -> answer
//   the new layer -> confine -> sources -> order -> COPY -> answer
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "work.h"

enum { NICE = 10, DIGESTS_MAX = 1 << 20 };

struct task {
    int folder; // of layers
    uint32_t uid;
    struct keep_order order;
    int list_fd; // SWEEP: digests; EXPORT, IMPORT: the file; -1: none
    bool copies; // COPY and nothing else
    struct copy_sources from;
    uint32_t from_uid;
    struct keep_answer answer;
};

static const int FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

static void
name_of(const uint8_t digest[SPAWN_DIGEST_BYTES], char out[KEEP_HEX + 1])
{
    (void)sodium_bin2hex(out, KEEP_HEX + 1, digest, SPAWN_DIGEST_BYTES);
}

// ---- PUT, IMPORT

// The name is the last thing that the layer gets. Without it, the next sweep removes it.
static int
publish(struct task *t, const char *fresh, int layer_fd, struct err *e)
{
    char name[KEEP_HEX + 1];
    name_of(t->answer.digest, name);
    if (syncfs(layer_fd) < 0)
        return err_sys(e, errno, "write the layer to the disk");
    if (renameat(t->folder, fresh, t->folder, name) < 0) {
        if (errno != EEXIST && errno != ENOTEMPTY)
            return err_sys(e, errno, "name the layer");
        t->answer.known = 1;
    }
    return fsync(t->folder) < 0 ? err_sys(e, errno, "write the layer's name to the disk") : 0;
}

static bool
is_sealed(const struct task *t)
{
    return !sealed_id_is_none(t->order.key.id);
}

static int
fill_plain(struct task *t, int layer_fd, struct digest *d, struct err *e)
{
    const struct copy_sources from = {1, {{KEEP_SOURCE_LAYER, KEEP_SOURCE_FD, -1}}};
    const struct copy_bounds bounds = {
        t->uid, KEEP_ID_BASE, t->order.bytes_max, "state_dir",
        "free some space on the disk of the state directory, or delete kept snapshots"};
    int rc = copy_layer(&from, layer_fd, &bounds, e);
    return rc == 0 ? digest_layer(layer_fd, d, e) : rc;
}

static int
fill_foreign(struct task *t, int layer_fd, struct digest *d, struct err *e)
{
    struct digest stream;
    const struct foreign rules = {t->order.bytes_max, t->order.parts_max, t->order.set_id != 0};
    const struct unseal u = {.key = &t->order.file_key,
                             .layer_fd = layer_fd,
                             .uid = KEEP_ID_BASE,
                             .full_subject = "state_dir",
                             .full_hint = "free some space on the disk of the state directory",
                             .foreign = &rules};
    if (t->list_fd < 0 || lseek(t->list_fd, (off_t)t->order.at, SEEK_SET) < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "no file with a layer");
    int rc = carry_in(t->list_fd, t->order.file_bytes, &u, is_sealed(t) ? &t->order.key : NULL,
                      &stream, d, e);
    if (rc == 0 && memcmp(stream.digest, t->order.digest, sizeof stream.digest) != 0)
        rc = err_set(e, ERR_DATA_LOSS, "its digest is another one");
    if (rc < 0 && e->code == ERR_DATA_LOSS) {
        e->code = ERR_INVALID_ARGUMENT;
        (void)err_wrap(e, "a layer of the archive is damaged");
        err_detail(e, "ARCHIVE_REFUSED", NULL, "push the template again");
        rc = err_errno(e);
    }
    return rc < 0 || is_sealed(t) ? rc : digest_layer(layer_fd, d, e);
}

static int
fill(struct task *t, const char *fresh, struct err *e)
{
    struct digest d = {0};
    const struct seal seal = {&t->order.key, t->uid, t->order.bytes_max};
    int auto_close layer_fd = openat(t->folder, fresh, FOLDER | O_CLOEXEC);
    if (layer_fd < 0)
        return err_sys(e, errno, "open the new layer");
    int rc = t->order.op == KEEP_IMPORT ? fill_foreign(t, layer_fd, &d, e)
             : is_sealed(t)             ? seal_into(layer_fd, KEEP_SOURCE_FD, &seal, &d, e)
                                        : fill_plain(t, layer_fd, &d, e);
    if (rc < 0)
        return rc;
    memcpy(t->answer.digest, d.digest, sizeof d.digest);
    t->answer.bytes = d.bytes;
    t->answer.entries = d.entries;
    return publish(t, fresh, layer_fd, e);
}

static int
put(struct task *t, struct err *e)
{
    char fresh[32];
    struct err ignored;
    (void)snprintf(fresh, sizeof fresh, "new-%d", (int)getpid());
    int rc = remove_tree(t->folder, fresh, e); // of a process that had the same number
    // 0755: it has no owner in a mount that maps ids, so that root's capabilities do not count there (user_namespaces(7))
    if (rc == 0 && mkdirat(t->folder, fresh, 0755) < 0)
        rc = err_sys(e, errno, "create the new layer");
    if (rc == 0)
        rc = fill(t, fresh, e);
    (void)remove_tree(t->folder, fresh, &ignored); // the next sweep does it otherwise
    return rc;
}

// ---- COPY

// From the spawner, before the order of the broker.
static int
get_sources(struct task *t, struct err *e)
{
    struct copy_sources *from = &t->from;
    for (uint32_t left = 1; left > 0;) {
        struct keep_source packet;
        int fds[2];
        struct fdpass m = {&packet, sizeof packet, fds, 2};
        if (from->n == KEEP_SOURCES_MAX || fdpass_receive(KEEP_BROKER_FD, &m, 0) <= 0 ||
            m.n != sizeof packet || packet.kind > KEEP_SOURCE_SEALED ||
            m.fds_n != (packet.kind == KEEP_SOURCE_DISK ? 2U : 1U) ||
            (packet.kind == KEEP_SOURCE_SEALED && (from->n > 0 || packet.left > 0)) ||
            (from->n > 0 && packet.uid != t->from_uid))
            return err_set(e, ERR_INVALID_ARGUMENT, "a source is invalid");
        from->of[from->n++] = (struct copy_source){(enum keep_source_kind)packet.kind, fds[0],
                                                   m.fds_n == 2 ? fds[1] : -1};
        t->from_uid = packet.uid;
        left = packet.left;
    }
    return 0;
}

static int
compare(struct task *t, const struct digest *d, struct err *e)
{
    char name[KEEP_HEX + 1];
    memcpy(t->answer.digest, d->digest, sizeof d->digest);
    t->answer.bytes = d->bytes;
    t->answer.entries = d->entries;
    if (memcmp(d->digest, t->order.digest, sizeof d->digest) == 0)
        return 0;
    name_of(t->order.digest, name);
    int rc = err_set(e, ERR_DATA_LOSS,
                     "layer %.16s is damaged: its files are not those that were written", name);
    err_detail(e, "LAYER_DAMAGED", name, "check the disk of the state directory");
    return rc;
}

// One that was cut or changed, or whose key is another one, is as damaged as one with other files.
static int
unseal(struct task *t, int file, int layer_fd, struct err *e)
{
    char name[KEEP_HEX + 1];
    struct digest d;
    const struct unseal u = {
        .key = &t->order.key,
        .layer_fd = layer_fd,
        .uid = t->uid,
        .full_subject = "disk_bytes",
        .full_hint = "encrypted files are decrypted into the sandbox's memory: raise the limit"};
    int rc = unseal_from(file, &u, &d, e);
    if (rc == 0)
        return compare(t, &d, e);
    name_of(t->order.digest, name);
    if (e->code == ERR_DATA_LOSS)
        err_detail(e, "LAYER_DAMAGED", name, "check the disk of the state directory");
    return err_wrap(e, "layer %.16s%s", name, e->code == ERR_DATA_LOSS ? " is damaged" : "");
}

static int
copy(struct task *t, struct err *e)
{
    const struct copy_bounds bounds = {t->from_uid, t->uid, t->order.bytes_max, "disk_bytes",
                                       "remove files, or raise the limit"};
    struct statfs fs;
    const bool sealed = t->from.of[0].kind == KEEP_SOURCE_SEALED;
    if (sealed != is_sealed(t))
        return err_set(e, ERR_INVALID_ARGUMENT, "the key belongs to no source, or is missing");
    int rc = sealed ? unseal(t, t->from.of[0].fd, KEEP_SOURCE_FD, e)
                    : copy_layer(&t->from, KEEP_SOURCE_FD, &bounds, e);
    if (rc < 0)
        return rc;
    if (fstatfs(KEEP_SOURCE_FD, &fs) < 0)
        return err_sys(e, errno, "look at the copy");
    t->answer.bytes = (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    t->answer.entries = fs.f_files - fs.f_ffree;
    return 0;
}

// ---- CHECK, EXPORT, REMOVE, SWEEP

// The layer of the order. *file: if it is sealed; otherwise -1. Both are owned by the caller.
static int
open_layer(const struct task *t, int *layer_fd, int *file, struct err *e)
{
    char name[KEEP_HEX + 1];
    name_of(t->order.digest, name);
    *file = -1;
    *layer_fd = openat(t->folder, name, FOLDER | O_CLOEXEC);
    if (*layer_fd >= 0 && is_sealed(t))
        *file = openat(*layer_fd, KEEP_SEALED, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*layer_fd >= 0 && (*file >= 0 || !is_sealed(t)))
        return 0;
    return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "layer %.16s is not there", name)
                           : err_sys(e, errno, "open layer %.16s", name);
}

static int
export_it(struct task *t, struct err *e)
{
    struct digest layer, stream;
    int auto_close layer_fd = -1;
    int auto_close file = -1;
    int rc = t->list_fd < 0 ? err_set(e, ERR_INVALID_ARGUMENT, "no file for the layer")
                            : open_layer(t, &layer_fd, &file, e);
    if (rc < 0)
        return rc;
    const struct carry c = {is_sealed(t) ? -1 : layer_fd, file, &t->order.key, &t->order.file_key,
                            t->order.bytes_max};
    rc = carry_out(&c, t->list_fd, &layer, &stream, e);
    if (rc == 0 && is_sealed(t))
        rc = compare(t, &layer, e);
    if (rc < 0)
        return rc;
    memcpy(t->answer.digest, stream.digest, sizeof stream.digest);
    t->answer.bytes = stream.bytes;
    t->answer.entries = stream.entries;
    t->answer.stream = stream.stream;
    return 0;
}

static int
check(struct task *t, struct err *e)
{
    struct digest d;
    char name[KEEP_HEX + 1];
    int auto_close layer_fd = -1;
    int auto_close file = -1;
    int found = open_layer(t, &layer_fd, &file, e);
    if (found < 0)
        return found;
    if (file >= 0)
        return unseal(t, file, -1, e);
    name_of(t->order.digest, name);
    int rc = digest_layer(layer_fd, &d, e);
    return rc < 0 ? err_wrap(e, "layer %.16s", name) : compare(t, &d, e);
}

static int
drop(const struct task *t, const char *name, struct err *e)
{
    char away[KEEP_HEX + 8];
    (void)snprintf(away, sizeof away, "old-%.*s", KEEP_HEX, name);
    int rc = remove_tree(t->folder, away, e);
    if (rc < 0)
        return rc;
    if (renameat(t->folder, name, t->folder, away) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "remove a layer");
    return fsync(t->folder) < 0 ? err_sys(e, errno, "remove a layer")
                                : remove_tree(t->folder, away, e);
}

static int
drop_one(struct task *t, struct err *e)
{
    char name[KEEP_HEX + 1];
    name_of(t->order.digest, name);
    return drop(t, name, e);
}

static bool
is_listed(const uint8_t *list, size_t n, const char *name)
{
    uint8_t digest[SPAWN_DIGEST_BYTES];
    size_t bytes = 0;
    if (sodium_hex2bin(digest, sizeof digest, name, strlen(name), NULL, &bytes, NULL) < 0 ||
        bytes != sizeof digest)
        return false;
    for (size_t i = 0; i < n; i++)
        if (memcmp(list + i * sizeof digest, digest, sizeof digest) == 0)
            return true;
    return false;
}

static int
read_list(const struct task *t, uint8_t **out, size_t *n, struct err *e)
{
    struct stat st;
    if (t->list_fd < 0 || fstat(t->list_fd, &st) < 0 || st.st_size % SPAWN_DIGEST_BYTES != 0 ||
        st.st_size / SPAWN_DIGEST_BYTES > DIGESTS_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "no list of layers");
    *out = malloc((size_t)st.st_size + 1);
    if (*out == NULL)
        return err_sys(e, ENOMEM, "read the list of layers");
    if (pread(t->list_fd, *out, (size_t)st.st_size, 0) != st.st_size)
        return err_set(e, ERR_INVALID_ARGUMENT, "the list of layers cannot be read");
    *n = (size_t)st.st_size / SPAWN_DIGEST_BYTES;
    return 0;
}

static int
sweep(struct task *t, struct err *e)
{
    uint8_t *auto_free list = NULL;
    size_t n = 0;
    struct names auto_names all = {0};
    int rc = read_list(t, &list, &n, e);
    if (rc == 0)
        rc = names_read(t->folder, &all, e);
    for (size_t i = 0; i < all.n && rc == 0; i++) {
        if (is_listed(list, n, all.name[i]))
            continue;
        t->answer.removed++;
        rc = remove_tree(t->folder, all.name[i], e);
    }
    return rc;
}

// ---- the process

static const struct {
    int (*work)(struct task *, struct err *);
    const char *what;
} tasks[] = {
    [KEEP_PUT] = {put, "keep a layer"},
    [KEEP_CHECK] = {check, "check a layer"},
    [KEEP_REMOVE] = {drop_one, "remove a layer"},
    [KEEP_SWEEP] = {sweep, "remove layers that nothing needs"},
    [KEEP_COPY] = {copy, "copy files"},
    [KEEP_EXPORT] = {export_it, "write a layer to an archive"},
    [KEEP_IMPORT] = {put, "read a layer of an archive"},
};

static int
open_folder(const char *state_dir, struct err *e)
{
    struct stat st;
    int auto_close state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return err_sys(e, errno, "open %s", state_dir);
    if (mkdirat(state, KEEP_FOLDER, 0700) == 0)
        (void)fsync(state);
    int auto_close fd = openat(state, KEEP_FOLDER, FOLDER | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s/" KEEP_FOLDER, state_dir);
    if (st.st_uid != 0 || (st.st_mode & 0777) != 0700)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s/" KEEP_FOLDER " must belong to root with mode 0700", state_dir);
    return take_fd(&fd);
}

static int
get_order(struct task *t, struct err *e)
{
    struct fdpass m = {&t->order, sizeof t->order, &t->list_fd, 1};
    int r = fdpass_receive(KEEP_BROKER_FD, &m, 0);
    if (r <= 0 || m.n != sizeof t->order || t->order.op >= sizeof tasks / sizeof tasks[0] ||
        tasks[t->order.op].work == NULL || (t->order.op == KEEP_COPY) != t->copies)
        return err_set(e, ERR_INVALID_ARGUMENT, "the order is invalid");
    if (m.fds_n == 0)
        t->list_fd = -1;
    return 0;
}

static int
serve(struct task *t, const char *state_dir, struct err *e)
{
    t->copies = strcmp(state_dir, KEEP_FOR_COPY) == 0;
    int rc = t->copies ? KEEP_SOURCE_FD : open_folder(state_dir, e);
    if (rc < 0)
        return rc;
    t->folder = rc;
    rc = confine(t->folder, e);
    if (rc == 0 && t->copies)
        rc = get_sources(t, e);
    if (rc == 0)
        rc = get_order(t, e);
    if (rc < 0)
        return rc;
    rc = tasks[t->order.op].work(t, e);
    return rc < 0 ? err_wrap(e, "%s", tasks[t->order.op].what) : 0;
}

int
main(int argc, char **argv)
{
    static struct task t = {.folder = -1, .list_fd = -1};
    struct err e;
    if (argc != 3 || sodium_init() < 0)
        return 64;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)sodium_mlock(&t, sizeof t); // a key will be in it
    (void)umask(0);
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    t.uid = (uint32_t)strtoul(argv[2], NULL, 10);
    t.answer.ok = serve(&t, argv[1], &e) == 0;
    if (t.answer.ok == 0)
        t.answer.err = e;
    sealed_key_wipe(&t.order.key);
    sealed_key_wipe(&t.order.file_key);
    // not exit(3): LeakSanitizer would trace it, which the filter forbids
    _exit(send(KEEP_BROKER_FD, &t.answer, sizeof t.answer, MSG_NOSIGNAL) < 0 ? 70 : 0);
}
