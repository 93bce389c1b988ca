// SPDX-License-Identifier: Apache-2.0
// See work.h: unseal_layer(). It reads the stream of digest.c and makes the files that it describes. The stream was written by a keeper
// and is authenticated; a name in it is nevertheless a single name, numbers are in range, and nothing is made outside of `layer_fd`.
// A foreign one, of an archive, is hostile: foreign.c checks each entry, whether it is made or not.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/auto.h"
#include "foreign.h"
#include "work.h"

enum { PIECE = 1 << 20, END = 0xffff };

static const int FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

struct state {
    crypto_generichash_state hash; // first, for its alignment
    struct foreigners foreign;
    struct sealed_reader *from;
    const struct unseal *u;
    struct digest *out;
    uint64_t part_begins; // the number of its first entry
    int links;            // the folder for hard links; -1: nothing is made
    char value[XATTR_SIZE_MAX];
    char piece[PIECE];
};

struct entry {
    mode_t mode;
    uint32_t uid, gid;
    struct timespec mtime;
    char name[NAME_MAX + 1];
};

static int
wrong(struct err *e, const char *what)
{
    int r = err_set(e, ERR_DATA_LOSS, "not a layer: %s", what);
    err_detail(e, "SEALED_DAMAGED", NULL, "check the disk of the state directory");
    return r;
}

static int
failed(const struct state *s, const char *what, struct err *e)
{
    return work_disk_full(s->u->full_subject, s->u->full_hint, what, e);
}

static bool
makes(const struct state *s)
{
    return s->links >= 0;
}

static int
take(struct state *s, void *to, size_t n, struct err *e)
{
    struct unseal_tee *tee = s->u->tee;
    int rc = sealed_read(s->from, to, n, e);
    if (rc < 0)
        return rc;
    s->out->stream += n;
    (void)crypto_generichash_update(&s->hash, to, n);
    if (tee == NULL)
        return 0;
    (void)crypto_generichash_update(&tee->hash, to, n);
    return sealed_add(tee->to, to, n, e);
}

static int
take_number(struct state *s, uint64_t *out, struct err *e)
{
    uint8_t bytes[8] = {0};
    int rc = take(s, bytes, sizeof bytes, e);
    *out = 0;
    for (int i = 0; rc == 0 && i < 8; i++)
        *out |= (uint64_t)bytes[i] << 8 * i;
    return rc;
}

// One that is at most `most`.
static int
take_bounded(struct state *s, uint64_t most, uint64_t *out, struct err *e)
{
    int rc = take_number(s, out, e);
    return rc == 0 && *out > most ? wrong(e, "a number is out of range") : rc;
}

// Into `to`, of `room` bytes, with a NUL behind it.
static int
take_text(struct state *s, char *to, size_t room, uint64_t n, struct err *e)
{
    if (n >= room)
        return wrong(e, "a text is too long");
    int rc = take(s, to, (size_t)n, e);
    to[n] = '\0';
    return rc == 0 && strlen(to) != n ? wrong(e, "a NUL in a text") : rc;
}

// ---- what all kinds have

static bool
is_single(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

// The rest of a head, after its mode.
static int
take_head(struct state *s, uint64_t mode, struct entry *out, struct err *e)
{
    uint64_t uid = 0, gid = 0, sec = 0, nsec = 0, n = 0;
    s->out->entries++;
    s->out->bytes += KEEP_ENTRY_BYTES;
    int rc = take_bounded(s, UINT32_MAX, &uid, e);
    if (rc == 0)
        rc = take_bounded(s, UINT32_MAX, &gid, e);
    if (rc == 0)
        rc = take_number(s, &sec, e);
    if (rc == 0)
        rc = take_bounded(s, 999999999, &nsec, e);
    if (rc == 0)
        rc = take_bounded(s, NAME_MAX, &n, e);
    if (rc == 0)
        rc = take_text(s, out->name, sizeof out->name, n, e);
    if (rc < 0)
        return rc;
    rc = foreign_head(&s->foreign, mode, uid, gid, e);
    if (rc < 0)
        return rc;
    out->mode = (mode_t)mode;
    out->uid = work_shift_id((uint32_t)uid, 0, s->u->uid);
    out->gid = work_shift_id((uint32_t)gid, 0, s->u->uid);
    out->mtime = (struct timespec){.tv_sec = (time_t)sec, .tv_nsec = (long)nsec};
    return 0;
}

static int
put_xattr(struct state *s, int to, const char *name, size_t n, struct err *e)
{
    int rc = xattrs_shift_acl(name, s->value, n, KEEP_ID_BASE, s->u->uid, e);
    return rc == 0 && fsetxattr(to, name, s->value, n, 0) < 0
               ? failed(s, "write an extended attribute", e)
               : rc;
}

static int
take_xattrs(struct state *s, int to, bool folder, struct err *e)
{
    char name[XATTR_NAME_MAX + 1];
    for (;;) {
        uint64_t n = 0, length = END;
        int rc = take_number(s, &length, e);
        if (rc < 0 || length == END)
            return rc;
        if (length == 0 || length > XATTR_NAME_MAX)
            return wrong(e, "the name of an attribute is too long");
        rc = take_text(s, name, sizeof name, length, e);
        if (rc == 0)
            rc = take_bounded(s, sizeof s->value, &n, e);
        if (rc == 0)
            rc = take(s, s->value, (size_t)n, e);
        if (rc == 0 && !xattrs_is_kept(name))
            rc = wrong(e, "an attribute that is not kept");
        if (rc == 0)
            rc = foreign_attribute(&s->foreign, name, s->value, (size_t)n, folder, e);
        if (rc == 0 && makes(s))
            rc = put_xattr(s, to, name, (size_t)n, e);
        if (rc < 0)
            return rc;
        s->out->bytes += n;
    }
}

// The mode after the owner, because a change of owner clears set-id bits.
static int
finish_open(const struct state *s, int to, const struct entry *of, struct err *e)
{
    const struct timespec times[2] = {of->mtime, of->mtime};
    return !makes(s) || (fchown(to, of->uid, of->gid) == 0 && fchmod(to, of->mode & 07777) == 0 &&
                         futimens(to, times) == 0)
               ? 0
               : failed(s, "set the owner, mode and time of a file", e);
}

static int
finish_named(const struct state *s, int folder, const struct entry *of, struct err *e)
{
    const struct timespec times[2] = {of->mtime, of->mtime};
    const bool link = S_ISLNK(of->mode);
    return fchownat(folder, of->name, of->uid, of->gid, AT_SYMLINK_NOFOLLOW) == 0 &&
                   (link || fchmodat(folder, of->name, of->mode & 07777, 0) == 0) &&
                   utimensat(folder, of->name, times, AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : failed(s, "set the owner, mode and time of a file", e);
}

// ---- files

static int
write_run(struct state *s, int to, size_t n, uint64_t at, struct err *e)
{
    for (size_t done = 0; makes(s) && done < n;) {
        ssize_t w = pwrite(to, s->piece + done, n - done, (off_t)(at + done));
        if (w <= 0) {
            errno = w == 0 ? ENOSPC : errno;
            return failed(s, "write a file", e);
        }
        done += (size_t)w;
    }
    return n > 0 ? work_goes_on(e) : 0;
}

// Blocks that follow each other are written together.
static int
take_blocks(struct state *s, int to, uint64_t size, struct err *e)
{
    const uint64_t blocks = size / KEEP_BLOCK + (size % KEEP_BLOCK != 0);
    uint64_t next = 0, begin = 0, number;
    size_t run = 0;
    for (;;) {
        int rc = take_number(s, &number, e);
        if (rc == 0 && number != UINT64_MAX && (number < next || number >= blocks))
            rc = wrong(e, "a block is in the wrong place");
        if (rc == 0 && (number != next || run + KEEP_BLOCK > PIECE)) {
            rc = write_run(s, to, run, begin, e);
            run = 0;
        }
        if (rc == 0)
            rc = foreign_size(&s->foreign, s->out->bytes, e);
        if (rc < 0 || number == UINT64_MAX)
            return rc;
        if (run == 0)
            begin = number * KEEP_BLOCK;
        const uint64_t left = size - number * KEEP_BLOCK;
        const size_t n = left < KEEP_BLOCK ? (size_t)left : KEEP_BLOCK;
        rc = take(s, s->piece + run, n, e);
        if (rc < 0)
            return rc;
        run += n;
        s->out->bytes += n;
        next = number + 1;
    }
}

static int
take_contents(struct state *s, int folder, const char *name, const struct entry *of, struct err *e)
{
    uint64_t size = 0;
    int auto_close to =
        makes(s) ? openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                 : -1;
    if (makes(s) && to < 0)
        return failed(s, "create a file", e);
    int rc = take_xattrs(s, to, false, e);
    if (rc == 0)
        rc = take_bounded(s, INT64_MAX, &size, e);
    if (rc == 0 && makes(s) && ftruncate(to, (off_t)size) < 0)
        rc = failed(s, "set the size of a file", e);
    if (rc == 0)
        rc = take_blocks(s, to, size, e);
    return rc == 0 ? finish_open(s, to, of, e) : rc;
}

// Of a file with several names, the first one makes it, under its number, in the folder for links.
static int
take_file(struct state *s, int folder, const struct entry *of, struct err *e)
{
    char number[24];
    uint64_t first = 0;
    int rc = take_bounded(s, s->out->entries, &first, e);
    if (rc < 0)
        return rc;
    if (first == 0)
        return take_contents(s, folder, of->name, of, e);
    if (first < s->part_begins)
        return wrong(e, "a hard link to another part");
    rc = foreign_link(&s->foreign, first, s->out->entries, e);
    if (rc < 0)
        return rc;
    (void)snprintf(number, sizeof number, "%" PRIu64, first);
    if (first == s->out->entries)
        rc = take_contents(s, s->links, number, of, e);
    if (rc < 0 || !makes(s) || linkat(s->links, number, folder, of->name, 0) == 0)
        return rc;
    return errno == ENOENT ? wrong(e, "a hard link to what is no file")
                           : failed(s, "make a hard link", e);
}

// ---- other kinds

static int
take_link(struct state *s, int folder, const struct entry *of, struct err *e)
{
    char target[PATH_MAX];
    uint64_t n = 0;
    int rc = take_bounded(s, sizeof target - 1, &n, e);
    if (rc == 0)
        rc = take_text(s, target, sizeof target, n, e);
    if (rc == 0 && n == 0)
        rc = wrong(e, "a symbolic link without a target");
    if (rc < 0 || !makes(s))
        return rc;
    return symlinkat(target, folder, of->name) < 0 ? failed(s, "create a symbolic link", e)
                                                   : finish_named(s, folder, of, e);
}

// A whiteout of overlayfs is a character device 0:0.
static int
take_special(struct state *s, int folder, const struct entry *of, struct err *e)
{
    uint64_t device = 0;
    int rc = take_bounded(s, 0, &device, e);
    if (rc == 0 && !S_ISCHR(of->mode) && !S_ISFIFO(of->mode) && !S_ISSOCK(of->mode))
        rc = wrong(e, "a file of another kind");
    if (rc == 0)
        rc = foreign_special(&s->foreign, of->mode, e);
    if (rc < 0 || !makes(s))
        return rc;
    return mknodat(folder, of->name, of->mode & S_IFMT, makedev(0, 0)) < 0
               ? failed(s, "create a special file", e)
               : finish_named(s, folder, of, e);
}

// ---- folders

static int take_inside(struct state *s, int folder, unsigned depth, struct err *e);

static int
take_folder(struct state *s, int folder, const struct entry *of, unsigned depth, struct err *e)
{
    if (depth == KEEP_DEPTH_MAX)
        return wrong(e, "folders are too deep");
    if (makes(s) && mkdirat(folder, of->name, 0700) < 0)
        return failed(s, "create a folder", e);
    int auto_close to = makes(s) ? openat(folder, of->name, FOLDER | O_CLOEXEC) : -1;
    if (makes(s) && to < 0)
        return err_sys(e, errno, "open a folder");
    int rc = take_inside(s, to, depth + 1, e);
    return rc == 0 ? finish_open(s, to, of, e) : rc;
}

static int
take_one(struct state *s, int folder, uint64_t mode, unsigned depth, char **last, struct err *e)
{
    struct entry of = {.mode = 0};
    int rc =
        mode > (S_IFMT | 07777) ? wrong(e, "a mode is out of range") : take_head(s, mode, &of, e);
    if (rc == 0 && !is_single(of.name))
        rc = wrong(e, "a name is no single name");
    if (rc == 0)
        rc = foreign_name(&s->foreign, last, of.name, e);
    if (rc == 0)
        rc = foreign_size(&s->foreign, s->out->bytes, e);
    if (rc == 0)
        rc = work_goes_on(e);
    if (rc < 0)
        return rc;
    if (S_ISDIR(of.mode))
        return take_folder(s, folder, &of, depth, e);
    if (S_ISREG(of.mode))
        return take_file(s, folder, &of, e);
    return S_ISLNK(of.mode) ? take_link(s, folder, &of, e) : take_special(s, folder, &of, e);
}

static int
take_inside(struct state *s, int folder, unsigned depth, struct err *e)
{
    uint64_t mode = 0;
    char *auto_free last = NULL; // name, of a foreign one
    int rc = take_xattrs(s, folder, true, e);
    while (rc == 0 && (rc = take_number(s, &mode, e)) == 0 && mode != END)
        rc = take_one(s, folder, mode, depth, &last, e);
    return rc;
}

// ---- a layer

static int
take_part(struct state *s, unsigned number, struct err *e)
{
    static const char begin[] = "stockade layer 1\n";
    char text[sizeof begin];
    struct entry of = {.mode = 0};
    uint64_t mode = 0;
    s->part_begins = s->out->entries + 1;
    int rc = take(s, text, sizeof begin - 1, e);
    if (rc == 0 && memcmp(text, begin, sizeof begin - 1) != 0)
        rc = wrong(e, "a part begins with other bytes");
    if (rc == 0)
        rc = take_bounded(s, S_IFMT | 07777, &mode, e);
    if (rc == 0)
        rc = take_head(s, mode, &of, e);
    if (rc == 0 && (!S_ISDIR(of.mode) || of.name[0] != '\0'))
        rc = wrong(e, "a part is no folder");
    if (rc < 0)
        return rc;
    (void)snprintf(of.name, sizeof of.name, "%s", work_parts[number]);
    return take_folder(s, s->u->layer_fd, &of, 0, e);
}

static int
take_parts(struct state *s, struct err *e)
{
    uint64_t last = 0, number = 0;
    int rc = 0;
    while ((rc = take_number(s, &number, e)) == 0 && number != 0) {
        if (number <= last || number >= KEEP_PARTS_MAX)
            return wrong(e, "a part is in the wrong place");
        rc = foreign_part(&s->foreign, number, e);
        if (rc < 0)
            return rc;
        last = number;
        rc = take_part(s, (unsigned)number - 1, e);
        if (rc < 0)
            return rc;
    }
    if (rc == 0 && last == 0)
        rc = wrong(e, "it has no parts");
    if (rc == 0)
        rc = sealed_close(s->from, e);
    return rc == 0 && s->u->tee != NULL ? sealed_end(s->u->tee->to, e) : rc;
}

static int
begin_tee(struct unseal_tee *t, struct err *e)
{
    const struct sealed_what what = {.kind = SEALED_LAYER};
    (void)crypto_generichash_init(&t->hash, t->key->names, SEALED_KEY, SPAWN_DIGEST_BYTES);
    return sealed_begin(t->to, t->key, &what, e);
}

static void
end_tee(struct unseal_tee *t, const struct digest *read)
{
    t->out = *read;
    (void)crypto_generichash_final(&t->hash, t->out.digest, SPAWN_DIGEST_BYTES);
    sodium_memzero(&t->hash, sizeof t->hash);
}

int
unseal_layer(struct sealed_reader *from, const struct unseal *u, struct digest *out, struct err *e)
{
    static struct state s; // 1 MiB
    const struct sealed_what what = {.kind = SEALED_LAYER};
    int auto_close links = -1;
    *out = (struct digest){0};
    s.from = from;
    s.u = u;
    s.out = out;
    if (u->layer_fd >= 0) {
        if (mkdirat(u->layer_fd, "links", 0700) < 0 ||
            (links = openat(u->layer_fd, "links", FOLDER | O_CLOEXEC)) < 0)
            return failed(&s, "create a folder", e);
    }
    s.links = links;
    s.foreign = (struct foreigners){.rules = u->foreign};
    (void)crypto_generichash_init(&s.hash, u->key->names, SEALED_KEY, SPAWN_DIGEST_BYTES);
    int rc = sealed_open(from, u->key, &what, e);
    if (rc == 0 && u->tee != NULL)
        rc = begin_tee(u->tee, e);
    if (rc == 0)
        rc = take_parts(&s, e);
    foreign_end(&s.foreign);
    (void)crypto_generichash_final(&s.hash, out->digest, SPAWN_DIGEST_BYTES);
    if (u->tee != NULL && rc == 0)
        end_tee(u->tee, out);
    sodium_memzero(&s.hash, sizeof s.hash);
    sodium_memzero(s.piece, sizeof s.piece);
    return rc == 0 && links >= 0 ? remove_tree(u->layer_fd, "links", e) : rc;
}
