// SPDX-License-Identifier: Apache-2.0
// DISK_IMAGE: the image of an ext4 file system on a loop device (loop(4)).
//
//   make    create -> allocate all bytes -> format -> mount once, which shows that it works -> remove lost+found
//   open    open -> lock -> a free loop device, which takes the lock -> mount, detached
//   scratch create without a name -> allocate all bytes -> format -> a free loop device -> mount, detached -> remove lost+found
//
// The kernel frees the loop device with its last user, that is, with the last mount, whichever process is killed before.
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "format.h"
#include "proto/auto.h"
#include "proto/loop_disk.h"
#include "server/spawner/tree_mount.h"

enum {
    LOOP_TRIES = 64,
    LOCK_TRIES = 1000, // of 5 ms each
    LOCK_PAUSE_NS = 5 * 1000 * 1000,
    LOST_FOUND_INODE = 11,
};

#define LEFT_BYTES_LEAST (UINT64_C(16) << 20)
#define LEFT_BYTES_MAX   (UINT64_C(1) << 30)

static int
open_control(struct err *e)
{
    int fd = open(LOOP_CONTROL, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? err_sys(e, errno, "open %s", LOOP_CONTROL) : fd;
}

static int
probe(int folder, struct err *e)
{
    (void)folder;
    int auto_close control = open_control(e);
    return control < 0 ? control : format_probe(e);
}

// Binds a file to a free device. Others of the host may be faster, so it tries again.
static int
bind_loop(int file, char device[32], struct err *e)
{
    const struct loop_config config = {
        .fd = (uint32_t)file,
        .block_size = FORMAT_BLOCK,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO},
    };
    int auto_close control = open_control(e);
    if (control < 0)
        return control;
    for (int i = 0; i < LOOP_TRIES; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return err_sys(e, errno, "find a free loop device");
        (void)snprintf(device, 32, "/dev/loop%d", n);
        int auto_close fd = open(device, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            return err_sys(e, errno, "open %s", device);
        if (ioctl(fd, LOOP_CONFIGURE, &config) == 0)
            return take_fd(&fd);
        if (errno != EBUSY)
            return err_sys(e, errno, "bind %s", device);
    }
    return err_set(e, ERR_UNAVAILABLE, "other programs take each free loop device first");
}

// Its last user may be about to end: the kernel writes what is left, which takes a moment.
static int
lock(int file, const char *name, struct err *e)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return err_sys(e, errno, "lock disk %s", name);
        (void)nanosleep(&pause, NULL);
    }
    return err_set(e, ERR_UNAVAILABLE, "disk %s is still in use", name);
}

// lazy tables: an unwritten block of an image reads as zeros, so nothing has to write them.
static int
mount_image(int file, bool scratch, struct err *e)
{
    char device[32];
    int auto_close loop = bind_loop(file, device, e);
    if (loop < 0)
        return loop;
    const struct mount_option options[] = {
        {"source", device},
        {"errors", "remount-ro"},
        {"noinit_itable", NULL},
        {"nodiscard", NULL},
        // fsync(2) of a job need not reach the device: nobody reads it after a crash
        {"nobarrier", NULL},
    };
    return mount_new("ext4", options, scratch ? 5 : 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

static int
open_disk(int folder, const char *name, struct err *e)
{
    struct stat st;
    int auto_close file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0 || fstat(file, &st) < 0)
        return err_sys(e, errno, "open disk %s", name);
    if (!S_ISREG(st.st_mode) || st.st_uid != 0)
        return err_set(e, ERR_DATA_LOSS, "disk %s is no image of root's", name);
    int r = lock(file, name, e);
    return r < 0 ? r : mount_image(file, false, e);
}

// mkfs makes it; nobody needs it, and users do not expect it.
static int
remove_lost_found(int mounted, struct err *e)
{
    struct stat st;
    if (fstatat(mounted, "lost+found", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_ino == LOST_FOUND_INODE && unlinkat(mounted, "lost+found", AT_REMOVEDIR) < 0)
        return err_sys(e, errno, "remove lost+found");
    return 0;
}

// What is left to others who write there, such as the broker's database and its audit log, without which nothing may change.
static bool
leaves_room(int file, uint64_t bytes)
{
    struct statvfs fs;
    if (fstatvfs(file, &fs) < 0)
        return true;
    const uint64_t unit = fs.f_frsize;
    uint64_t left = fs.f_blocks * unit / 100;
    left = left < LEFT_BYTES_LEAST ? LEFT_BYTES_LEAST
           : left > LEFT_BYTES_MAX ? LEFT_BYTES_MAX
                                   : left;
    return fs.f_bavail * unit >= bytes + left;
}

static int
allocate(int file, uint64_t bytes, struct err *e)
{
    errno = ENOSPC;
    if (leaves_room(file, bytes) && fallocate(file, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
        return err_sys(e, errno, "allocate %llu bytes", (unsigned long long)bytes);
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the state directory's file system has no room for %llu bytes",
                    (unsigned long long)bytes);
    err_detail(e, "HOST_DISK_FULL", "state_dir",
               "remove sandboxes or volumes, or make more room there");
    return r;
}

static int
fill(int file, const struct disk_order *o, struct err *e)
{
    int r = lock(file, "that is new", e);
    if (r == 0)
        r = allocate(file, format_size(o), e);
    if (r == 0)
        r = format_run(file, o, e);
    int auto_close mounted = r < 0 ? -1 : mount_image(file, false, e);
    if (r == 0)
        r = mounted < 0 ? mounted : remove_lost_found(mounted, e);
    if (r == 0 && fsync(file) < 0)
        r = err_sys(e, errno, "keep the image");
    return r;
}

static int
make(int folder, const char *name, const struct disk_order *o, struct err *e)
{
    int auto_close file =
        openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return errno == EEXIST ? err_set(e, ERR_ALREADY_EXISTS, "disk %s exists", name)
                               : err_sys(e, errno, "create disk %s", name);
    int r = fill(file, o, e);
    if (r == 0 && fsync(folder) < 0)
        r = err_sys(e, errno, "keep disk %s", name);
    if (r < 0)
        (void)unlinkat(folder, name, 0);
    return r;
}

int
image_scratch(int folder, const struct disk_order *o, struct err *e)
{
    int auto_close file = openat(folder, ".", O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return err_sys(e, errno, "create an image without a name");
    int r = allocate(file, format_size(o), e);
    if (r == 0)
        r = format_run(file, o, e);
    int auto_close mounted = r < 0 ? -1 : mount_image(file, true, e);
    if (r == 0)
        r = mounted < 0 ? mounted : remove_lost_found(mounted, e);
    return r < 0 ? r : take_fd(&mounted);
}

int
image_trim(int fd, struct err *e)
{
    struct fstrim_range all = {.len = UINT64_MAX};
    int auto_close folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0 && ioctl(folder, FITRIM, &all) == 0)
        return 0;
    return err_sys(e, errno, "give the space that a snapshot does not need back to the host");
}

// Its blocks are freed with the last mount.
static int
remove_disk(int folder, const char *name, struct err *e)
{
    return unlinkat(folder, name, 0) < 0 && errno != ENOENT
               ? err_sys(e, errno, "remove disk %s", name)
               : 0;
}

const struct backend backend_image = {DISK_IMAGE, probe, make, open_disk, remove_disk};
