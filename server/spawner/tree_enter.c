// SPDX-License-Identifier: Apache-2.0
// Between clone3 and execve: assembles a sandbox's root and moves into it. Nothing here allocates, locks or logs.
//
//   /      overlay: upper = one sized tmpfs, lower = the root's skeleton (id-mapped), and a clean /dev
//   /usr   id-mapped overlay of the host's, so that locks and inotify watches on its files are the sandbox's only
//          (a bind mount shares them with the host). It has an upper folder to return the usual errors: unlink returns
//          ENOENT for a missing file and EACCES for one of root; a read-only mount would return EROFS for everything
//   ...    the root's further folders: read-only overlays of the host's, id-mapped. Where the root is writable, each has an
//          upper folder, as /usr has; where jobs are root inside, and the root is not writable, /usr has none
//   /dev   a folder of /, as a read-only mount, the only one that allows devices; /dev/pts a new instance; /dev/shm
//          a folder of the tmpfs
//   /proc  of the new pid namespace, read-only, with covers from the tmpfs (tree_proc.c)
//   /sys   a folder of /: links to the few files at /sys/fs/cgroup, which are on the tmpfs (tree_view.c)
//
// So sandboxes share no inode with each other or with the host, not even that of /dev/null, on which all would see a
// lock or an inotify watch.
//
// What is new is mounted with mount(2) at a folder of the stage, and moved: fsopen(2) needs a call for each option, and a mount
// namespace for what it has made, which is a twentieth of a birth's processor time more.
//
// Overlay accepts lower layers only from mounts of the caller's own namespace, so everything is attached before use,
// at mount points that the spawner has prepared. They are removed with the stage: nothing is unmounted one by one.
// Names inside the new root are opened without following links, because its upper layer may come from a job in the
// future.
//
// The new root replaces the stage on top of the namespace's root, and the process moves into it. pivot_root would do
// the same, but it also checks every thread of the host for whether to move it, which takes half a millisecond beside
// a thousand sandboxes. Below the new root the base remains, an empty read-only tmpfs. No path leads to it: ".." of
// the root's mount does not, because it is mounted on a root. And nobody inside can unmount a mount that the user
// namespace above owns.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "tree_internal.h"
#include "tree_mount.h"

enum { TTY_GID = 5 };

struct owned_folder {
    const char *path;
    mode_t mode;
    uint32_t owner; // uid inside
};

// The tmpfs: "u0" and "k0" are the root's upper and work folder, "u1" and "k1" those of /usr, "u2" and so on those of further
// folders; "e" contains what covers other things. Parents come first. The owner of / is the sandbox's root.
static const struct owned_folder folders[] = {
    {"e", 0555, 0}, {"e/dir", 0555, 0}, {"k0", 0700, 0}, {"shm", 01777, 0}, {"u0", 0755, 0},
};

// In the upper folder: those that jobs write to exist there alone (spawn_is_job_folder).
static const struct owned_folder upper_folders[] = {
    {"home", 0755, 0}, {"home/agent", 0755, SANDBOX_UID_JOB},
    {"run", 0755, 0},  {"tmp", 01777, 0},
    {"var", 0755, 0},  {"var/tmp", 01777, 0},
};

static int
make_folders(int dir, const struct owned_folder *f, size_t n, uint32_t uid, struct err *e)
{
    for (; n > 0; n--, f++) {
        uid_t owner = uid + f->owner;
        if (mkdirat(dir, f->path, f->mode) < 0 || fchownat(dir, f->path, owner, owner, 0) < 0)
            return err_sys(e, errno, "create %s", f->path);
    }
    return 0;
}

// A mount point below a folder that jobs write to, where the skeleton has none.
static int
make_mount_point(int upper, uid_t owner, const char *at, struct err *e)
{
    char path[SPAWN_PATH_MAX];
    for (size_t n = 1; at[n - 1] != '\0'; n++) {
        if (at[n] != '/' && at[n] != '\0')
            continue;
        (void)snprintf(path, sizeof path, "%.*s", (int)(n - 1), at + 1);
        if (mkdirat(upper, path, 0755) == 0 ? fchownat(upper, path, owner, owner, 0) < 0
                                            : errno != EEXIST)
            return err_sys(e, errno, "create %s", at);
    }
    return 0;
}

int
tree_upper_folders(const struct tree *t, uint32_t root, uint32_t uid, int dir, const char *name,
                   struct err *e)
{
    const struct tree_root *r = &t->roots[root];
    int auto_close upper = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (upper < 0)
        return err_sys(e, errno, "open %s", name);
    int rc =
        make_folders(upper, upper_folders, sizeof upper_folders / sizeof upper_folders[0], uid, e);
    for (uint32_t i = 2; rc == 0 && i < r->layers_n; i++)
        if (spawn_is_job_folder(r->at[i]))
            rc = make_mount_point(upper, uid, r->at[i], e);
    return rc;
}

// The sandbox's own empty file and folder replace the spawner's /e, read-only, and so are their clones.
static int
cover_covers(int disk, struct err *e)
{
    int auto_close file = openat(disk, "e/file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file < 0)
        return err_sys(e, errno, "create e/file");
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          MOUNT_ATTR_NOEXEC};
    if (mount("/w/e", "/e", NULL, MS_BIND, NULL) < 0 ||
        mount_setattr(AT_FDCWD, "/e", AT_SYMLINK_NOFOLLOW, &attr, sizeof attr) < 0)
        return err_sys(e, errno, "cover the covers");
    return 0;
}

// The limits of a disk as options of its file system; the files that show the sandbox its limits need additional
// room.
static void
disk_size(const struct tree *t, uint64_t bytes, uint32_t inodes, char size[24], char count[16])
{
    (void)snprintf(size, 24, "%" PRIu64, bytes + t->view_bytes);
    (void)snprintf(count, 16, "%u", inodes + TREE_VIEW_INODES);
}

// The file system that holds all that the sandbox writes, at /w.
static int
make_disk(const struct tree *t, const struct tree_sandbox *s, struct err *e)
{
    char size[24];
    char inodes[16];
    disk_size(t, s->disk_bytes, s->inodes, size, inodes);
    const struct mount_option options[] = {
        {"size", size}, {"nr_inodes", inodes}, {"mode", "0755"}, {"source", "stockade"}};
    const bool scratch = s->scratch_fd >= 0;
    int auto_close disk =
        scratch ? fcntl(s->scratch_fd, F_DUPFD_CLOEXEC, 3)
                : mount_new_at("tmpfs", options, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, "/w", e);
    if (disk < 0)
        return scratch ? err_sys(e, errno, "copy a descriptor") : disk;
    int rc = scratch ? mount_attach(disk, AT_FDCWD, "/w", e) : 0;
    if (rc == 0)
        rc = make_folders(disk, folders, sizeof folders / sizeof folders[0], s->uid, e);
    if (rc == 0)
        rc = tree_upper_folders(t, s->root, s->uid, disk, "u0", e);
    if (rc == 0)
        rc = tree_view_make(t, s, disk, e);
    if (rc == 0)
        rc = cover_covers(disk, e);
    return rc < 0 ? rc : take_fd(&disk);
}

// Attaches an id-mapped clone of `source` at `mount_point`, where overlay can find it.
static int
map_lower(const char *source, const char *mount_point, int userns_fd, struct err *e)
{
    int auto_close fd = mount_clone(AT_FDCWD, source, 0, e);
    if (fd < 0)
        return fd;
    int rc =
        mount_idmap_and(fd, userns_fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, e);
    if (rc == 0)
        rc = mount_attach(fd, AT_FDCWD, mount_point, e);
    return rc < 0 ? err_wrap(e, "%s", source) : 0;
}

void
tree_layer_source(uint32_t layer, char out[TREE_NAME_MAX])
{
    (void)snprintf(out, TREE_NAME_MAX, "/l%u", layer);
}

void
tree_layer_mapped(uint32_t n, char out[TREE_NAME_MAX])
{
    (void)snprintf(out, TREE_NAME_MAX, "/m%u", n);
}

// The path of the layer for overlay: the id-mapped clone if that is possible.
static int
attach_layer(const struct tree *t, uint32_t layer, uint32_t n, int userns_fd,
             char mount_point[TREE_NAME_MAX], struct err *e)
{
    char source[TREE_NAME_MAX];
    tree_layer_source(layer, mount_point);
    if (!t->layers[layer].idmapped)
        return 0;
    memcpy(source, mount_point, sizeof source);
    tree_layer_mapped(n, mount_point);
    return map_lower(source, mount_point, userns_fd, e);
}

static int
make_root(const struct tree *t, const struct tree_root *r, int userns_fd, struct err *e)
{
    char mount_point[TREE_NAME_MAX];
    char lower[TREE_NAME_MAX + 4];
    int rc = attach_layer(t, r->layer[0], 0, userns_fd, mount_point, e);
    if (rc < 0)
        return rc;
    (void)snprintf(lower, sizeof lower, "%s:/d", mount_point);
    const struct mount_option options[] = {
        {"lowerdir", lower},
        {"upperdir", "/w/u0"},
        {"workdir", "/w/k0"},
        {"index", "off"},
        // so that readdir and stat return the same inode numbers
        {"metacopy", "off"},
        {"xino", "on"},
        {"redirect_dir", "nofollow"},
        {"source", "stockade"},
    };
    return mount_new_at("overlay", options, 8, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, "n", e);
}

// A read-only overlay needs two layers: the second is empty.
int
tree_layer_open(const struct tree *t, uint32_t layer, uint32_t n, bool upper, int userns_fd,
                struct err *e)
{
    char mount_point[TREE_NAME_MAX];
    char both[TREE_NAME_MAX + 8];
    char over[TREE_NAME_MAX], work[TREE_NAME_MAX];
    int rc = attach_layer(t, layer, n, userns_fd, mount_point, e);
    if (rc < 0)
        return rc;
    (void)snprintf(both, sizeof both, "%s:/e/dir", mount_point);
    (void)snprintf(over, sizeof over, "/w/u%u", n);
    (void)snprintf(work, sizeof work, "/w/k%u", n);
    const struct mount_option common[] = {
        {"index", "off"},       {"metacopy", "off"},
        {"xino", "on"},         {"redirect_dir", "nofollow"},
        {"source", "stockade"}, {"lowerdir", upper ? mount_point : both},
        {"upperdir", over},     {"workdir", work},
    };
    const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    return upper ? mount_new_at("overlay", common, 8, attributes, TREE_MAKING, e)
                 : mount_new("overlay", common, 6, attributes | MOUNT_ATTR_RDONLY, e);
}

// An upper folder that looks like the layer's own, and a work folder for it.
static int
make_upper(const struct tree *t, uint32_t layer, uint32_t n, const struct tree_sandbox *s,
           struct err *e)
{
    struct stat st;
    char name[TREE_NAME_MAX];
    tree_layer_source(layer, name);
    if (stat(name, &st) < 0)
        return err_sys(e, errno, "look at %s", name);
    const bool mapped = t->layers[layer].idmapped;
    const uid_t owner = s->uid + (mapped && st.st_uid < SANDBOX_UID_OVERFLOW ? st.st_uid : 0);
    const gid_t group = s->uid + (mapped && st.st_gid < SANDBOX_UID_OVERFLOW ? st.st_gid : 0);
    (void)snprintf(name, sizeof name, "/w/k%u", n);
    if (mkdir(name, 0700) < 0 || lchown(name, s->uid, s->uid) < 0)
        return err_sys(e, errno, "create %s", name);
    (void)snprintf(name, sizeof name, "/w/u%u", n);
    if (mkdir(name, st.st_mode & 01777) < 0 || lchown(name, owner, group) < 0)
        return err_sys(e, errno, "create %s", name);
    return 0;
}

// /usr has an upper folder for its errors, too, if nobody inside may write to it.
static bool
has_upper(const struct tree_root *r, uint32_t n)
{
    return r->writable || (n == 1 && !r->user_root);
}

static int
make_layers(const struct tree *t, const struct tree_root *r, const struct tree_sandbox *s, int root,
            struct err *e)
{
    for (uint32_t i = 1; i < r->layers_n; i++) {
        const bool upper = has_upper(r, i);
        int made = upper ? make_upper(t, r->layer[i], i, s, e) : 0;
        if (made < 0)
            return made;
        int auto_close fd = tree_layer_open(t, r->layer[i], i, upper, s->userns_fd, e);
        int rc = fd < 0 ? fd : mount_attach(fd, root, r->at[i] + 1, e);
        if (rc < 0)
            return err_wrap(e, "folder %s", r->at[i]);
    }
    return 0;
}

// Not an overlay of its own, because each additional file system takes memory, and time that grows with their number.
int
tree_dev_open(int root, struct err *e)
{
    int auto_close dev = mount_clone(root, "dev", 0, e);
    if (dev >= 0 &&
        mount_change(dev, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NODEV, e) < 0)
        return err_errno(e);
    return dev < 0 ? dev : take_fd(&dev);
}

static int
make_dev(const struct tree *t, const struct tree_sandbox *s, int root, int disk, struct err *e)
{
    int auto_close dev = tree_dev_open(root, e);
    int rc = dev < 0 ? dev : mount_attach(dev, root, "dev", e);
    if (rc < 0)
        return rc;
    char uid[16];
    char gid[16];
    char max[16];
    (void)snprintf(uid, sizeof uid, "%u",
                   s->uid + (t->roots[s->root].user_root ? 0 : SANDBOX_UID_JOB));
    (void)snprintf(gid, sizeof gid, "%u", s->uid + TTY_GID);
    (void)snprintf(max, sizeof max, "%u", t->ptys);
    const struct mount_option options[] = {
        {"uid", uid}, {"gid", gid}, {"mode", "0620"}, {"ptmxmode", "0666"}, {"max", max}};
    int auto_close pts =
        mount_new_at("devpts", options, 5, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, TREE_MAKING, e);
    rc = pts < 0 ? pts : mount_attach(pts, dev, "pts", e);
    if (rc < 0)
        return rc;
    int auto_close shm =
        mount_clone(disk, "shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    return shm < 0 ? shm : mount_attach(shm, dev, "shm", e);
}

// "/" is the stage, "." the base below it. The mount of the guest's cgroup descriptor is attached in the base, where
// no path leads. A detached mount would be removed separately at the end, for which the kernel waits until all
// processors have noticed.
// The disk is there, too: an overlay of other layers can be made only of what is mounted in this namespace (tree_swap.c).
static int
replace_stage(int root, int disk, int hidden, struct err *e)
{
    int rc = mount_attach(disk, AT_FDCWD, "d", e);
    if (rc < 0)
        return err_wrap(e, "move the disk to its place");
    if (umount2("/", MNT_DETACH) < 0)
        return err_sys(e, errno, "detach the stage");
    rc = mount_attach(root, AT_FDCWD, ".", e);
    if (rc < 0)
        return err_wrap(e, "move the root to its place");
    if (hidden >= 0 && (rc = mount_attach(hidden, AT_FDCWD, "n", e)) < 0)
        return rc;
    if (fchdir(root) < 0 || chroot(".") < 0)
        return err_sys(e, errno, "enter the root");
    return 0;
}

int
tree_enter(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e)
{
    const struct tree_root *r = &t->roots[s->root];
    mode_t umask_before = umask(0);
    int auto_close base = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0)
        return err_sys(e, errno, "open the base");
    int auto_close disk = make_disk(t, s, e);
    if (disk < 0)
        return err_wrap(e, "build the disk");
    int auto_close root = make_root(t, r, s->userns_fd, e);
    if (root < 0)
        return err_wrap(e, "build the root");
    int rc = make_layers(t, r, s, root, e);
    if (rc == 0 && (rc = make_dev(t, s, root, disk, e)) < 0)
        return err_wrap(e, "build /dev");
    if (rc == 0 && (rc = tree_proc_make(t, base, root, e)) < 0)
        return err_wrap(e, "build /proc");
    if (rc == 0 && (rc = tree_view_attach(disk, root, e)) < 0)
        return err_wrap(e, "build /sys");
    if (rc == 0)
        rc = replace_stage(root, disk, s->hidden_fd, e);
    if (rc < 0)
        return rc;
    (void)umask(umask_before);
    *disk_fd = take_fd(&disk);
    return 0;
}

enum { SCRATCH_BYTES = 256 * 1024, SCRATCH_INODES = 64 };

// Where each folder takes a block, also those of the sandbox itself.
uint64_t
tree_scratch_bytes(const struct tree *t, uint64_t disk_bytes)
{
    return disk_bytes + t->view_bytes + SCRATCH_BYTES;
}

uint32_t
tree_scratch_inodes(uint32_t inodes)
{
    return inodes + TREE_VIEW_INODES + SCRATCH_INODES;
}

int
tree_resize(const struct tree *t, int disk_fd, uint64_t disk_bytes, uint32_t inodes, struct err *e)
{
    char size[24];
    char count[16];
    struct statfs st;
    if (fstatfs(disk_fd, &st) < 0)
        return err_sys(e, errno, "look at the disk's file system");
    if (st.f_type != TMPFS_MAGIC) // a scratch disk, which keeps its size
        return 0;
    disk_size(t, disk_bytes, inodes, size, count);
    int auto_close fs = fspick(disk_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (fs < 0)
        return err_sys(e, errno, "open the disk's file system");
    if (fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", count, 0) < 0)
        return err_sys(e, errno, "set the disk's size");
    if (fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) == 0)
        return 0;
    if (errno == EINVAL) { // tmpfs: "Too small a size for current use"
        (void)err_set(e, ERR_FAILED_PRECONDITION, "the disk holds more than the new limit");
        err_detail(e, "DISK_IN_USE", "disk_bytes", "remove files, then lower the limit");
        return -EBUSY;
    }
    return err_sys(e, errno, "change the disk's size");
}
