// SPDX-License-Identifier: Apache-2.0
// Checks 1 to 18: access to files that are not the job's own.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static bool
opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

static int
host_path(void)
{
    const char *canary = parameter("ESCAPE_CANARY");
    char path[8192];
    const char *prefixes[] = {"",
                              "/proc/self/root",
                              "/proc/1/root",
                              "/proc/self/cwd",
                              "/proc/1/cwd",
                              "/proc/thread-self/root",
                              "/dev/fd/../../../.."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        for (int up = 0; up < 64; up += 21) {
            size_t n = (size_t)snprintf(path, sizeof path, "%s", prefixes[i]);
            for (int k = 0; k < up; k++)
                n += (size_t)snprintf(path + n, sizeof path - n, "/..");
            (void)snprintf(path + n, sizeof path - n, "%s", canary);
            if (opens(path, O_RDONLY))
                return escaped("opened %s", path);
        }
    }
    DIR *proc = opendir("/proc");
    for (struct dirent *d; proc != NULL && (d = readdir(proc)) != NULL;) {
        if (d->d_name[0] < '0' || d->d_name[0] > '9')
            continue;
        (void)snprintf(path, sizeof path, "/proc/%s/root%s", d->d_name, canary);
        if (opens(path, O_RDONLY))
            return escaped("opened %s", path);
    }
    return held("the canary %s cannot be opened by any path", canary);
}

static int
append_to_host_files(void)
{
    const char *paths[] = {"/etc/passwd", "/etc/hosts", "/usr/lib/os-release", "/usr/bin/env"};
    int appended = 0;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        int fd = open(paths[i], O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd >= 0) {
            appended += write(fd, "escaped\n", 8) == 8;
            (void)close(fd);
        }
    }
    return held("appended to %d private copies; the host compares its own", appended);
}

static dev_t wanted_dev;
static ino_t wanted_ino;
static char found[256];

static int
visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)type;
    (void)ftw;
    if ((st->st_dev == wanted_dev && st->st_ino == wanted_ino) ||
        strstr(path, parameter("ESCAPE_NONCE")))
        (void)snprintf(found, sizeof found, "%s", path);
    return found[0] != '\0';
}

static int
walk_for_host_inode(void)
{
    wanted_dev = (dev_t)parameter_number("ESCAPE_CANARY_DEV");
    wanted_ino = (ino_t)parameter_number("ESCAPE_CANARY_INO");
    const char *roots[] = {"/bin", "/dev", "/etc",  "/home",      "/media",
                           "/mnt", "/opt", "/root", "/run",       "/srv",
                           "/sys", "/tmp", "/var",  "/usr/local", "/usr/share/doc"};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0] && found[0] == '\0'; i++)
        (void)nftw(roots[i], visit, 32, FTW_PHYS);
    return found[0] != '\0' ? escaped("found it as %s", found)
                            : held("no path leads to the host's inode");
}

static int
create_everywhere(void)
{
    const char *folders[] = {"/usr", "/usr/bin", "/etc", "/",    "/var",
                             "/opt", "/root",    "/dev", "/proc"};
    char path[512];
    int made = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folders[i], parameter("ESCAPE_NONCE"));
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0) {
            made++;
            (void)close(fd);
        }
    }
    return held("made %d files, in the private layer; the host looks for them", made);
}

static int
remount(void)
{
    const char *points[] = {"/", "/usr", "/dev", "/proc", "/proc/sys", "/tmp", "/etc"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (mount(NULL, points[i], NULL, MS_REMOUNT | MS_BIND, NULL) == 0 ||
            mount(NULL, points[i], NULL, MS_REMOUNT, NULL) == 0)
            return escaped("remounted %s", points[i]);
        struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
        if (syscall(SYS_mount_setattr, AT_FDCWD, points[i], 0, &attr, sizeof attr) == 0)
            return escaped("mount_setattr on %s", points[i]);
    }
    return held("no mount can be changed (%s)", strerror(errno));
}

static int
unmount(void)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (mounts == NULL)
        return held("no mountinfo");
    char line[4096], point[1024];
    int tried = 0;
    while (fgets(line, sizeof line, mounts) != NULL) {
        if (sscanf(line, "%*d %*d %*s %*s %1023s", point) != 1)
            continue;
        tried++;
        if (umount2(point, MNT_DETACH) == 0 || umount2(point, 0) == 0)
            return escaped("unmounted %s", point);
    }
    (void)fclose(mounts);
    return tried > 3 ? held("%d mounts stay (%s)", tried, strerror(errno))
                     : escaped("only %d mounts seen", tried);
}

static int
chroot_walk(void)
{
    (void)mkdir("/tmp/jail", 0755);
    int out = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (chroot("/tmp/jail") != 0)
        return held("chroot: %s", strerror(errno));
    (void)!fchdir(out);
    for (int i = 0; i < 64; i++)
        (void)!chdir("..");
    return opens(parameter("ESCAPE_CANARY") + 1, O_RDONLY) ? escaped("walked out of chroot")
                                                           : held("chroot worked, and led nowhere");
}

static int
make_devices(void)
{
    const struct {
        const char *path;
        unsigned major, minor;
    } devices[] = {{"/tmp/disk", 8, 0},  {"/tmp/vda", 254, 0}, {"/tmp/mem", 1, 1},
                   {"/tmp/kmsg", 1, 11}, {"/tmp/port", 1, 4},  {"/dev/shm/fuse", 10, 229}};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (mknod(devices[i].path, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)) ==
                0 &&
            opens(devices[i].path, O_RDONLY))
            return escaped("made and opened %s", devices[i].path);
    return held("mknod: %s", strerror(errno));
}

static int
look_at_dev(void)
{
    static const char *const known[] = {".",       "..",     "null",   "zero",  "full", "random",
                                        "urandom", "tty",    "ptmx",   "pts",   "shm",  "fd",
                                        "stdin",   "stdout", "stderr", "mqueue"};
    DIR *dev = opendir("/dev");
    if (dev == NULL)
        return escaped("no /dev: the check sees nothing");
    for (struct dirent *d; (d = readdir(dev)) != NULL;) {
        bool ok = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            ok = ok || strcmp(d->d_name, known[i]) == 0;
        if (!ok)
            return escaped("/dev/%s is there", d->d_name);
    }
    (void)closedir(dev);
    return opens("/dev/null", O_RDWR) ? held("the minimal set only")
                                      : escaped("/dev/null does not open");
}

static int
open_by_handle(void)
{
    struct {
        struct file_handle h;
        unsigned char bytes[8];
    } handle = {.h = {.handle_bytes = 8, .handle_type = 1}, .bytes = {2}};
    int at = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = open_by_handle_at(at, &handle.h, O_RDONLY);
    return fd >= 0 ? escaped("opened inode 2") : held("open_by_handle_at: %s", strerror(errno));
}

static int
open_kernel_switches(void)
{
    const char *paths[] = {"/proc/sys/kernel/core_pattern",  "/proc/sysrq-trigger",
                           "/proc/sys/kernel/modprobe",      "/proc/sys/fs/binfmt_misc/register",
                           "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/hostname",
                           "/proc/sys/kernel/ns_last_pid",   "/proc/irq/default_smp_affinity"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (opens(paths[i], O_WRONLY))
            return escaped("%s opens for writing", paths[i]);
    return held("none opens for writing");
}

static int
write_sys(void)
{
    const char *paths[] = {"/sys/fs/cgroup/cgroup.procs",
                           "/sys/fs/cgroup/memory.max",
                           "/sys/fs/cgroup/release_agent",
                           "/sys/fs/cgroup/memory/release_agent",
                           "/sys/fs/cgroup/unified/cgroup.procs",
                           "/sys/kernel/mm/transparent_hugepage/enabled",
                           "/sys/power/state",
                           "/sys/kernel/uevent_helper"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (opens(paths[i], O_WRONLY))
            return escaped("%s opens for writing", paths[i]);
    return held("no sysfs or cgroupfs to write to");
}

static int
read_masked(void)
{
    const char *paths[] = {"/proc/kcore",
                           "/proc/keys",
                           "/proc/latency_stats",
                           "/proc/timer_list",
                           "/proc/timer_stats",
                           "/proc/sched_debug",
                           "/proc/kallsyms",
                           "/proc/kpagecount",
                           "/proc/kpageflags",
                           "/proc/kpagecgroup",
                           "/proc/slabinfo",
                           "/proc/vmallocinfo",
                           "/proc/interrupts",
                           "/proc/kmsg",
                           "/proc/acpi/wakeup",
                           "/proc/asound/cards",
                           "/proc/scsi/scsi",
                           "/sys/firmware/dmi/tables/DMI",
                           "/sys/devices/virtual/powercap/intel-rapl/enabled"};
    char byte;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (read(fd, &byte, 1) == 1)
            return escaped("%s can be read", paths[i]);
        (void)close(fd);
    }
    return held("every masked path is empty, absent or refused");
}

static int
write_the_runtime(void)
{
    char path[64];
    for (int pid = 1; pid < 64; pid++) {
        (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
        if (pid != getpid() && pid != getppid() && opens(path, O_WRONLY))
            return escaped("%s opens for writing", path);
    }
    return opens("/proc/1/exe", O_RDONLY) ? escaped("/proc/1/exe can be read")
                                          : held("no runtime binary in reach");
}

static void
print_euid(void)
{
    (void)execl("/tmp/setid", "/tmp/setid", "150", (char *)NULL);
}

static int
set_id(void)
{
    char command[512];
    (void)snprintf(command, sizeof command, "cp %s /tmp/setid && chmod 6755 /tmp/setid", self_path);
    int status = system(command); // NOLINT(cert-env33-c): the job's own shell
    struct statvfs fs;
    const char *points[] = {"/", "/usr", "/tmp", "/home/agent", "/dev/shm", "/dev"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        if (statvfs(points[i], &fs) == 0 && (fs.f_flag & ST_NOSUID) == 0)
            return escaped("%s is mounted without nosuid", points[i]);
    if (status != 0)
        return held("chmod of set-id bits refused");
    status = in_child(print_euid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? held("it ran as nobody else")
                                                         : escaped("status %x", (unsigned)status);
}

static int
euid_is_mine(void)
{
    return geteuid() == getuid() && geteuid() == (uid_t)parameter_number("ESCAPE_USER") &&
                   getegid() == getgid()
               ? HELD
               : ESCAPED;
}

static int
immutable(void)
{
    int fd = open("/tmp/immutable", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int flags = FS_IMMUTABLE_FL | FS_APPEND_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0)
        return escaped("the file is immutable");
    return held("FS_IOC_SETFLAGS: %s", strerror(errno));
}

static int
sparse_bomb(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    int fd = open("/tmp/sparse", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (ftruncate(fd, 1L << 40) == 0)
        return escaped("1 TiB file");
    int wrong = errno != EFBIG;
    if (pwrite(fd, "x", 1, (1L << 40) - 1) == 1)
        return escaped("wrote at 1 TiB");
    return wrong ? escaped("ftruncate: %s, not EFBIG", strerror(errno))
                 : held("ftruncate: %s", strerror(errno));
}

static int
hard_links(void)
{
    const char *targets[] = {"/etc/passwd", "/usr/bin/env", "/dev/null", "/proc/self/exe"};
    int made = 0;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/tmp/link%zu", i);
        made += link(targets[i], path) == 0;
    }
    return held("%d links in the private layer; the host compares link counts", made);
}

const struct check filesystem_checks[] = {
    {1, "a host path cannot be opened", "own root, all else detached, own mount namespace",
     host_path},
    {2, "a host file cannot be appended to", "overlay with a private upper, id-mapped lower",
     append_to_host_files},
    {3, "no path leads to a host inode", "private tree, overlay inodes", walk_for_host_inode},
    {4, "a new file appears in the private layer only", "overlay upper on the sandbox's tmpfs",
     create_everywhere},
    {5, "no mount can be remounted", "mounts owned by a namespace above the job's; seccomp",
     remount},
    {6, "no mask can be unmounted", "locked mounts; seccomp", unmount},
    {7, "chroot leads nowhere", "seccomp; no capability", chroot_walk},
    {8, "no device can be made", "seccomp on mknod, nodev, no capability", make_devices},
    {9, "/dev holds the minimal set", "a clean read-only device tree", look_at_dev},
    {10, "an inode cannot be opened by its number", "seccomp; CAP_DAC_READ_SEARCH", open_by_handle},
    {11, "kernel switches cannot be opened for writing", "read-only /proc/sys, host ids never 0",
     open_kernel_switches},
    {12, "there is no sysfs or cgroupfs to write", "none mounted", write_sys},
    {13, "masked paths are empty", "masks over /proc, no /sys", read_masked},
    {14, "the runtime cannot be overwritten",
     "guest runs from a sealed memfd, non-dumpable, hidepid", write_the_runtime},
    {15, "set-id bits give nothing", "no_new_privs, nosuid", set_id},
    {150, "set-id bits give nothing (second half)", "no_new_privs, nosuid", euid_is_mine},
    {16, "a file cannot be made immutable", "CAP_LINUX_IMMUTABLE", immutable},
    {17, "a 1 TiB sparse file is refused", "RLIMIT_FSIZE, sized tmpfs", sparse_bomb},
    {18, "hard links reach no host file", "overlay, protected_hardlinks", hard_links},
    {0, NULL, NULL, NULL},
};
