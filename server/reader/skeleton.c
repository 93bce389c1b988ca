// SPDX-License-Identifier: Apache-2.0
// See skeleton.h. Files belong to the host's root, which the id-mapped mount turns into the sandbox's own root. Folders
// that jobs write to are not here (spawn_is_job_folder).
#include "skeleton.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "accounts.h"
#include "etc.h"

enum { DEPTH_MAX = 64 };

struct folder {
    const char *path;
    mode_t mode;
};

static const struct folder folders[] = {
    {"boot", 0755},
    {"dev", 0755},
    {"etc", 0755},
    {"etc/profile.d", 0755},
    {"home", 0755},
    {"media", 0755},
    {"mnt", 0755},
    {"opt", 0755},
    {"proc", 0555},
    {"root", 0700},
    {"run", 0755},
    {"srv", 0755},
    {"sys", 0555},
    {"usr", 0755},
    {"var", 0755},
    {"var/cache", 0755},
    {"var/lib", 0755},
    {"var/log", 0755},
    {"sys/devices", 0755},
    {"sys/devices/system", 0755},
    {"sys/devices/system/cpu", 0755},
    {"sys/fs", 0755},
    {"sys/fs/cgroup", 0755},
};

struct text_file {
    const char *path;
    const char *text; // %1$s: the hostname
};

static const struct text_file files[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   "guest:x:999:999:stockade guest:/:/usr/sbin/nologin\n"
                   "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\ntty:x:5:\nguest:x:999:\nagent:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hostname", "%1$s\n"},
    {"etc/hosts", "127.0.0.1 localhost\n127.0.1.1 %1$s\n"
                  "::1 localhost ip6-localhost ip6-loopback\n"},
    // The relay, if the policy allows anything (bpf/net.h). Otherwise nothing listens there, so queries fail
    // immediately.
    {"etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                          "networks: files\nprotocols: files\nservices: files\nethers: files\n"
                          "rpc: files\n"},
    {"etc/fstab", ""},
    // Jobs install packages in their home, so they cannot break packages of the host (PEP 668).
    {"etc/pip.conf", "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n"},
    {"etc/gitconfig", "[user]\n\tname = agent\n\temail = agent@%1$s\n"},
};

struct link_row {
    const char *path;
    const char *target;
};

#define CPUS_OF_SANDBOX "../../../fs/cgroup/cpuset.cpus.effective"

static const struct link_row links[] = {
    {"sys/devices/system/cpu/online", CPUS_OF_SANDBOX},
    {"sys/devices/system/cpu/possible", CPUS_OF_SANDBOX},
    {"sys/devices/system/cpu/present", CPUS_OF_SANDBOX},
    {"etc/mtab", "../proc/self/mounts"},
    {"var/run", "../run"},
    {"var/lock", "../run"},
};

static const char *const tops[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
_Static_assert(sizeof tops / sizeof tops[0] == SKELETON_TOP_MAX, "one place for each");

static int
remove_below(int dir, int depth)
{
    DIR *d = fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 3));
    if (d == NULL)
        return -errno;
    int rc = 0;
    for (struct dirent *entry = readdir(d); rc == 0 && entry != NULL; entry = readdir(d)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dir, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            rc = -errno;
            break;
        }
        int auto_close sub =
            openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat a;
        struct stat b;
        if (sub < 0 || fstat(sub, &a) < 0 || fstat(dir, &b) < 0)
            rc = -errno;
        else if (a.st_dev != b.st_dev)
            rc = -EXDEV;
        else if (depth >= DEPTH_MAX)
            rc = -ELOOP;
        else
            rc = remove_below(sub, depth + 1);
        if (rc == 0 && unlinkat(dir, entry->d_name, AT_REMOVEDIR) < 0)
            rc = -errno;
    }
    (void)closedir(d);
    return rc;
}

int
skeleton_remove(int dir, const char *name, struct err *e)
{
    int auto_close sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0 && errno == ENOENT)
        return 0;
    if (sub < 0)
        return err_sys(e, errno, "open the old %s", name);
    int rc = remove_below(sub, 0);
    if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
        rc = -errno;
    return rc < 0 ? err_sys(e, -rc, "remove the old %s", name) : 0;
}

static int
put_folder(int root, const char *path, mode_t mode, struct err *e)
{
    if (mkdirat(root, path, 0700) < 0)
        return err_sys(e, errno, "create %s", path);
    int auto_close fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchown(fd, 0, 0) < 0 || fchmod(fd, mode) < 0)
        return err_sys(e, errno, "create %s", path);
    return 0;
}

static int
put_file(int root, const struct text_file *f, const char *hostname, struct err *e)
{
    int fd = openat(root, f->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "we");
    if (out == NULL)
        return err_sys(e, errno, "create %s", f->path);
    for (const char *p = f->text; *p != '\0'; p++)
        if (strncmp(p, "%1$s", 4) == 0) {
            (void)fputs(hostname, out);
            p += 3;
        } else {
            (void)fputc(*p, out);
        }
    errno = 0;
    bool good = fflush(out) == 0 && !ferror(out) && fchmod(fd, 0644) == 0;
    int sys =
        // errors appear at the flush, because all the text fits into stdio's buffer
        errno != 0 ? errno : EIO;
    good = fclose(out) == 0 && good;
    return good ? 0 : err_sys(e, sys, "write %s", f->path);
}

// The host's /bin, /lib and so on: a link is copied; a folder becomes a mount point.
static int
put_tops(int root, struct skeleton_top *top, struct err *e)
{
    top->n = 0;
    for (int i = 0; i < SKELETON_TOP_MAX; i++) {
        char host[16];
        char target[256];
        (void)snprintf(host, sizeof host, "/%s", tops[i]);
        ssize_t n = readlink(host, target, sizeof target - 1);
        if (n > 0) {
            target[n] = '\0';
            if (symlinkat(target, root, tops[i]) < 0)
                return err_sys(e, errno, "create link %s", tops[i]);
            continue;
        }
        struct stat st;
        if (lstat(host, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        int rc = put_folder(root, tops[i], 0755, e);
        if (rc < 0)
            return rc;
        top->name[top->n++] = tops[i];
    }
    return 0;
}

// Makes mount points for the template's own folders. Below /usr (or another mount) they exist already.
static int
put_path(int root, const char *path, struct err *e)
{
    char part[SPAWN_PATH_MAX];
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)(i - 1), path + 1);
        struct stat st;
        if (fstatat(root, part, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            int rc = put_folder(root, part, 0755, e);
            if (rc < 0)
                return rc;
        } else if (!S_ISDIR(st.st_mode)) {
            return err_field(e, "paths", "%s passes through a link; name its target", path);
        }
        if (path[i] == '\0' || strcmp(part, "usr") == 0)
            return 0;
    }
}

static int
fill(int root, const struct skeleton_template *t, struct skeleton_top *top, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof folders / sizeof folders[0]; i++)
        rc = put_folder(root, folders[i].path, folders[i].mode, e);
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof files[0]; i++)
        rc = put_file(root, &files[i], t->hostname, e);
    if (rc == 0 && t->user_root)
        rc = accounts_put(root, e);
    for (size_t i = 0; rc == 0 && i < sizeof links / sizeof links[0]; i++)
        if (symlinkat(links[i].target, root, links[i].path) < 0)
            rc = err_sys(e, errno, "create link %s", links[i].path);
    if (rc == 0)
        rc = put_tops(root, top, e);
    for (size_t i = 0; rc == 0 && i < SKELETON_PATHS_MAX && t->paths[i][0] != '\0'; i++)
        if (!spawn_is_job_folder(t->paths[i]))
            rc = put_path(root, t->paths[i], e);
    if (rc < 0)
        return rc;
    int auto_close from = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int auto_close to = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 || to < 0)
        return err_sys(e, errno, "open /etc");
    return etc_copy(from, to, t->user_root, e);
}

int
skeleton_make(int templates, const char *name, const struct skeleton_template *t,
              struct skeleton_top *top, struct err *e)
{
    int rc = put_folder(templates, name, 0755, e);
    if (rc < 0)
        return err_wrap(e, "skeleton");
    int auto_close root = openat(templates, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "skeleton: open %s", name);
    rc = fill(root, t, top, e);
    return rc < 0 ? rc : take_fd(&root);
}
