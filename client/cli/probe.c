// SPDX-License-Identifier: Apache-2.0
// Checks of the kernel (doctor): version, namespaces, overlay, id-mapped mounts, seccomp, BTF. They change nothing: the
// two that need a namespace make it in a child that exits at once.
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "doctor.h"

enum { LINE = 512, KERNEL_MAJOR = 6, KERNEL_MINOR = 1 };

static void
look_kernel(struct finding *f)
{
    struct utsname u;
    char *end = NULL;
    if (uname(&u) < 0)
        return;
    long major = strtol(u.release, &end, 10);
    long minor = end != NULL && *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    bool enough = major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR);
    finding_set(f, enough ? VERDICT_OK : VERDICT_BAD,
                enough ? "" : "upgrade to Linux 6.1 or later (Debian 12, Ubuntu 24.04, ...)",
                "Linux %s", u.release);
}

static void
look_namespaces(struct finding *f)
{
    static const char *const kinds[] = {"mnt", "pid",    "net",  "ipc",
                                        "uts", "cgroup", "time", "user"};
    char missing[LINE] = "", path[64];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        if (access(path, F_OK) == 0)
            continue;
        size_t at = strlen(missing);
        (void)snprintf(missing + at, sizeof missing - at, " %s", kinds[i]);
    }
    if (missing[0] != '\0')
        finding_set(f, VERDICT_BAD, "use a kernel that was built with them (CONFIG_*_NS)",
                    "the kernel lacks:%s", missing);
    else
        finding_set(f, VERDICT_OK, "", "mnt, pid, net, ipc, uts, cgroup, time, user");
}

// Runs a check in a child; returns its exit code, or -1. The child may change its own state.
static int
in_child(int (*probe)(void))
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(probe());
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static int
probe_userns(void)
{
    return unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
}

static void
look_userns(struct finding *f)
{
    char max[LINE] = "?";
    (void)probe_read_line("/proc/sys/user/max_user_namespaces", max, sizeof max);
    long n = strtol(max, NULL, 10);
    int rc = in_child(probe_userns);
    if (n > 0 && n < 1000)
        finding_set(f, VERDICT_WARN, "sudo sysctl -w user.max_user_namespaces=65536",
                    "at most %s, which limits the number of sandboxes", max);
    else if (rc == 0)
        finding_set(f, VERDICT_OK, "", "can be created, at most %s", max);
    else if (geteuid() != 0)
        finding_set(f, VERDICT_UNKNOWN, "run 'sudo stockade doctor' to check whether root can",
                    "this user cannot create one: %s", strerrordesc_np(rc > 0 ? rc : EIO));
    else
        finding_set(f, VERDICT_BAD, "sudo sysctl -w user.max_user_namespaces=65536",
                    "root cannot create one: %s", strerrordesc_np(rc > 0 ? rc : EIO));
}

static bool
has_word_in_file(const char *path, const char *word)
{
    char line[LINE];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        char *save = NULL;
        for (char *w = strtok_r(line, " \t\n", &save); w != NULL && !found;
             w = strtok_r(NULL, " \t\n", &save))
            found = strcmp(w, word) == 0;
    }
    (void)fclose(f);
    return found;
}

static void
look_overlay(struct finding *f)
{
    struct utsname u;
    char path[LINE];
    if (has_word_in_file("/proc/filesystems", "overlay")) {
        finding_set(f, VERDICT_OK, "", "there");
        return;
    }
    bool module =
        uname(&u) == 0 &&
        snprintf(path, sizeof path, "/lib/modules/%s/kernel/fs/overlayfs", u.release) > 0 &&
        access(path, F_OK) == 0;
    if (module)
        finding_set(f, VERDICT_OK, "", "a module, loaded when first used");
    else
        finding_set(f, VERDICT_BAD,
                    "sudo modprobe overlay; else use a kernel with CONFIG_OVERLAY_FS",
                    "the kernel has no overlay file system");
}

static void
look_seccomp(struct finding *f)
{
    char actions[LINE] = "";
    if (!probe_read_line("/proc/sys/kernel/seccomp/actions_avail", actions, sizeof actions))
        finding_set(f, VERDICT_BAD, "use a kernel with CONFIG_SECCOMP_FILTER",
                    "the kernel has no seccomp filters");
    else if (strstr(actions, "kill_process") == NULL)
        finding_set(f, VERDICT_BAD, "use a kernel of 4.14 or later", "no kill_process: %s",
                    actions);
    else
        finding_set(f, VERDICT_OK, "", "%s", actions);
}

static void
look_btf(struct finding *f)
{
    if (access("/sys/kernel/btf/vmlinux", R_OK) == 0)
        finding_set(f, VERDICT_OK, "", "/sys/kernel/btf/vmlinux");
    else
        finding_set(f, VERDICT_WARN,
                    "use a kernel with CONFIG_DEBUG_INFO_BTF, such as a distribution's kernel",
                    "no BTF: network policy and telemetry by eBPF cannot be loaded");
}

// ---- Id-mapped mounts

static bool
write_file(const char *path, const char *text)
{
    int auto_close fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

// A user namespace with a map, held by a child that ends when `hold` is closed. Returns its descriptor or -1.
static int
mapped_userns(void)
{
    int ready[2], hold[2];
    char path[64], byte = 0;
    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0) {
        (void)close(hold[1]);
        if (unshare(CLONE_NEWUSER) == 0 && write(ready[1], "r", 1) == 1)
            (void)!read(hold[0], &byte, 1);
        _exit(0);
    }
    (void)close(ready[1]);
    int fd = -1;
    if (read(ready[0], &byte, 1) == 1) {
        (void)snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
        bool mapped = write_file(path, "0 1879048192 65536");
        (void)snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
        mapped = mapped && write_file(path, "0 1879048192 65536");
        (void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
        if (mapped)
            fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    (void)close(hold[1]);
    (void)waitpid(pid, NULL, 0);
    return fd;
}

// Clones /usr as a detached mount and maps its ids. The mount is attached nowhere and ends with the child.
static int
probe_idmap(void)
{
    int ns = mapped_userns();
    if (ns < 0)
        return EPERM;
    long tree = syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return errno;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)ns};
    if (syscall(SYS_mount_setattr, (int)tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return errno;
    return 0;
}

static void
look_idmap(struct finding *f)
{
    if (geteuid() != 0) {
        finding_set(f, VERDICT_UNKNOWN, "run 'sudo stockade doctor'", "only root can check this");
        return;
    }
    int rc = in_child(probe_idmap);
    if (rc == 0)
        finding_set(f, VERDICT_OK, "", "the file system of /usr supports them");
    else
        finding_set(f, VERDICT_WARN, "put /usr on ext4, xfs or btrfs",
                    "/usr cannot be id-mapped (%s): in a sandbox its files belong to nobody",
                    strerrordesc_np(rc > 0 ? rc : EIO));
}

const struct check checks_kernel[] = {
    {"kernel", look_kernel},
    {"namespaces", look_namespaces},
    {"user namespaces", look_userns},
    {"overlayfs", look_overlay},
    {"id-mapped mounts", look_idmap},
    {"seccomp", look_seccomp},
    {"BTF", look_btf},
    {0},
};
