// SPDX-License-Identifier: Apache-2.0
// The container of all sandboxes' cgroups: finds its parent, decides which hierarchy has which controller, and removes
// what a crash left in it. See cgroup.h.
//
//   /proc/self/mountinfo   mount points of v2 and of each v1 controller, and nsdelegate
//   /proc/self/cgroup      our own cgroup; with trusted.delegate=1 (systemd: Delegate=yes) we may divide it:
//                            OWN/supervisor   the broker and the spawner move there, once, at start
//                            OWN/sandboxes    the container
//   without the mark       /stockade at the root of v2; nothing that exists is moved
//
// The container is locked with flock(2) as long as the spawner runs.
#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/auto.h"
#include "cgroup_leaf.h"
#include "io.h"

enum { LOCK_MS = 1000, LOCK_TRIES = 20 };

#define RELAY_SUFFIX "-relay"

struct mounts {
    char v2[SPAWN_PATH_MAX];
    char v1[CG_N][SPAWN_PATH_MAX];
    bool nsdelegate;
};

static const struct {
    const char *v1;
    const char *v2;
} controller_names[CG_N] = {
    [CG_MEMORY] = {"memory", "memory"},
    [CG_CPU] = {"cpu", "cpu"},
    [CG_PIDS] = {"pids", "pids"},
    [CG_IO] = {"blkio", "io"},
};

// Whether a list of words, separated by any of `dividers`, contains this word.
static bool
has_word(const char *list, const char *word, const char *dividers)
{
    size_t length = strlen(word);
    while (*list) {
        list += strspn(list, dividers);
        size_t n = strcspn(list, dividers);
        if (n == length && strncmp(list, word, n) == 0)
            return true;
        list += n;
    }
    return false;
}

// One line of mountinfo (proc(5)): "... root mountpoint options ... - type source superoptions".
static void
read_mount(char *line, struct mounts *m)
{
    char *type = strstr(line, " - cgroup");
    if (!type)
        return;
    *type = '\0';
    type += 3;
    char root[8];
    char point[SPAWN_PATH_MAX];
    if (sscanf(line, "%*s %*s %*s %7s %255s", root, point) != 2 || strcmp(root, "/") != 0)
        return;
    char *options = strrchr(type, ' ');
    if (!options)
        return;
    options[strcspn(options, "\n")] = '\0';
    if (strncmp(type, "cgroup2 ", 8) == 0) {
        if (m->v2[0])
            return;
        (void)snprintf(m->v2, sizeof m->v2, "%s", point);
        m->nsdelegate = has_word(options + 1, "nsdelegate", ",");
        return;
    }
    for (int c = 0; c < CG_N; c++) {
        if (has_word(options + 1, controller_names[c].v1, ","))
            (void)snprintf(m->v1[c], sizeof m->v1[c], "%s", point);
    }
}

static int
read_mounts(struct mounts *m, struct err *e)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return err_sys(e, errno, "open /proc/self/mountinfo");
    char line[4096];
    while (fgets(line, sizeof line, f))
        read_mount(line, m);
    (void)fclose(f);
    if (m->v2[0])
        return 0;
    (void)err_set(e, ERR_FAILED_PRECONDITION, "no cgroup v2 hierarchy is mounted");
    err_detail(e, "CGROUP_V2_MISSING", NULL, "mount -t cgroup2 cgroup2 /sys/fs/cgroup");
    return err_errno(e);
}

// Our own v2 cgroup ("/" or "/a/b") from the line "0::/a/b".
static int
own_cgroup(char path[SPAWN_PATH_MAX], struct err *e)
{
    char text[4096];
    long n = io_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof text);
    if (n < 0)
        return err_sys(e, (int)-n, "read /proc/self/cgroup");
    const char *at = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!at)
        return err_set(e, ERR_FAILED_PRECONDITION, "this process is in no cgroup v2");
    at = strchr(at, '/');
    size_t length = at ? strcspn(at, "\n") : 0;
    if (length == 0 || length + sizeof "/supervisor" > SPAWN_PATH_MAX)
        return err_set(e, ERR_FAILED_PRECONDITION, "the path of this process's cgroup is too long");
    memcpy(path, at, length);
    path[length] = '\0';
    return 0;
}

static bool
is_delegated(const char *dir)
{
    static const char *const marks[] = {"trusted.delegate", "user.delegate"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        char value[8] = "";
        if (getxattr(dir, marks[i], value, sizeof value - 1) == 1 && value[0] == '1')
            return true;
    }
    return false;
}

// The broker (our parent) and this process move from the delegated cgroup to a leaf, because otherwise it could not
// have controllers below it.
static int
move_to_supervisor(int own_fd, struct err *e)
{
    if (mkdirat(own_fd, "supervisor", 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make the supervisor's cgroup");
    const pid_t pids[] = {getppid(), getpid()};
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) {
        int r = io_write_u64_at(own_fd, "supervisor/cgroup.procs", (uint64_t)pids[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int
open_dir(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open %s", path) : fd;
}

// Decides on the path of the container, and opens its parent. cg->path: relative to the mount of v2.
static int
find_container(const char *configured, const struct mounts *m, struct cgroups *cg, int *parent_fd,
               struct err *e)
{
    char own[SPAWN_PATH_MAX] = "";
    char parent[2 * SPAWN_PATH_MAX];
    int r = own_cgroup(own, e);
    if (r < 0)
        return r;
    (void)snprintf(parent, sizeof parent, "%s%s", m->v2, own);
    cg->delegated = !configured[0] && strcmp(own, "/") != 0 && is_delegated(parent);
    const char *name = "stockade";
    if (cg->delegated) {
        name = "sandboxes";
        if (snprintf(cg->path, sizeof cg->path, "%s/%s", own, name) >= (int)sizeof cg->path)
            return err_set(e, ERR_FAILED_PRECONDITION, "the path of the cgroup is too long");
    } else {
        (void)snprintf(parent, sizeof parent, "%s", m->v2);
        if (configured[0])
            name = configured + 1;
        (void)snprintf(cg->path, sizeof cg->path, "/%s", name);
    }
    int auto_close dir = open_dir(parent, e);
    if (dir < 0)
        return dir;
    if (cg->delegated && move_to_supervisor(dir, e) < 0)
        return err_wrap(e, "divide the delegated cgroup %s", own);
    *parent_fd = take_fd(&dir);
    return 0;
}

// Only one spawner may use a container: two would kill each other's sandboxes.
static int
lock_container(struct cgroups *cg, struct err *e)
{
    int fd = openat(cg->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open cgroup %s", cg->path);
    cg->lock_fd = io_keep_fd(fd);
    struct stat st;
    int r = flock(cg->lock_fd, LOCK_EX | LOCK_NB);
    // The new children of a spawner that was just killed may still share its descriptors.
    for (int i = 0; r < 0 && errno == EWOULDBLOCK && i < LOCK_MS / 10; i++) {
        (void)poll(NULL, 0, 10);
        r = flock(cg->lock_fd, LOCK_EX | LOCK_NB);
    }
    if (r < 0) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "cgroup %s belongs to a running stockaded",
                      cg->path);
        err_detail(e, "CGROUP_IN_USE", cg->path, "stop the other one, or set another cgroup");
        return err_errno(e);
    }
    // Another spawner may have removed it between our open and our lock.
    if (fstat(cg->lock_fd, &st) < 0 || faccessat(cg->lock_fd, "cgroup.procs", F_OK, 0) < 0)
        return err_sys(e, EAGAIN, "cgroup %s was removed", cg->path);
    return 0;
}

// Makes the container in its parent and locks it. A spawner that cleans up after its broker removes the container
// last, so a new spawner may find it removed after getting the lock, and makes it again.
static int
take_container(int parent_fd, struct cgroups *cg, struct err *e)
{
    const char *name = strrchr(cg->path, '/') + 1;
    for (int tries = 0;; tries++) {
        if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make cgroup %s", cg->path);
        cg->fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (cg->fd < 0 && errno != ENOENT)
            return err_sys(e, errno, "open cgroup %s", cg->path);
        int r = cg->fd < 0 ? -EAGAIN : lock_container(cg, e);
        if (r != -EAGAIN)
            return r;
        if (tries == LOCK_TRIES)
            return err_set(e, ERR_UNAVAILABLE, "cgroup %s is removed again and again", cg->path);
        io_close(&cg->lock_fd);
        io_close(&cg->fd);
    }
}

// Makes the relay's cgroup, beside the container, so that the programs of one do not judge the other.
static int
make_relays(int parent_fd, struct cgroups *cg, struct err *e)
{
    char name[SPAWN_PATH_MAX];
    (void)snprintf(name, sizeof name, "%s" RELAY_SUFFIX, strrchr(cg->path, '/') + 1);
    if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make cgroup %s" RELAY_SUFFIX, cg->path);
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "open cgroup %s" RELAY_SUFFIX, cg->path);
    cg->relay_fd = io_keep_fd(fd);
    return 0;
}

// Enables a controller below a directory; false if the hierarchy lacks it or it cannot be enabled.
static bool
enable(int dir_fd, const char *controller)
{
    char text[32];
    struct err ignored;
    (void)snprintf(text, sizeof text, "+%s", controller);
    return io_write_at(dir_fd, "cgroup.subtree_control", text, &ignored) == 0;
}

// Like mkdir -p of cg->path below a v1 controller's mount; returns the last directory.
static int
open_v1(const char *mount, const char *path, struct err *e)
{
    int auto_close dir = open_dir(mount, e);
    char rest[SPAWN_PATH_MAX];
    (void)snprintf(rest, sizeof rest, "%s", path);
    char *save = NULL;
    for (char *name = strtok_r(rest, "/", &save); name && dir >= 0;
         name = strtok_r(NULL, "/", &save)) {
        if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make %s%s", mount, path);
        int next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (next < 0)
            return err_sys(e, errno, "open %s%s", mount, path);
        (void)close(dir);
        dir = next;
    }
    return take_fd(&dir);
}

// Whether disks were read or written since the host was started: sectors, words 6 and 10 of a line (proc(5)).
static bool
disks_were_used(void)
{
    FILE *f = fopen("/proc/diskstats", "re");
    char line[256];
    bool used = false;
    while (f && !used && fgets(line, sizeof line, f)) {
        const char *word = line;
        for (int i = 0; i < 10 && !used; i++) {
            word += strspn(word, " ");
            used = (i == 5 || i == 9) && *word > '0' && *word <= '9';
            word += strcspn(word, " ");
        }
    }
    if (f)
        (void)fclose(f);
    return used;
}

// Since Linux 6.8, blkio of v1 counts nothing until throttling is used: then disks were used, but the root shows
// none.
static bool
counts_nothing(const char *blkio)
{
    char path[SPAWN_PATH_MAX + 64];
    char text[4096];
    (void)snprintf(path, sizeof path, "%s/blkio.throttle.io_service_bytes_recursive", blkio);
    return io_read_at(AT_FDCWD, path, text, sizeof text) > 0 && strcmp(text, "Total 0\n") == 0 &&
           disks_were_used();
}

// Chooses the hierarchy of each controller: v2 if it can be enabled, otherwise v1 if it is mounted.
static int
choose_bodies(const struct mounts *m, int parent_fd, struct cgroups *cg, struct err *e)
{
    for (int c = 0; c < CG_N; c++) {
        const char *name = controller_names[c].v2;
        if (enable(parent_fd, name) && enable(cg->fd, name)) {
            cg->body[c] = CG_V2;
            size_t n = strlen(cg->subtree);
            (void)snprintf(cg->subtree + n, sizeof cg->subtree - n, "%s+%s", n ? " " : "", name);
        } else if (m->v1[c][0] && !(c == CG_IO && counts_nothing(m->v1[c]))) {
            int fd = open_v1(m->v1[c], cg->path, e);
            if (fd < 0)
                return fd;
            cg->v1_fd[c] = io_keep_fd(fd);
            cg->body[c] = CG_V1;
            cg->hybrid = true;
        }
    }
    return 0;
}

static long
number_in(const char *path)
{
    char text[32];
    return io_read_at(AT_FDCWD, path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : 0;
}

// All sandboxes together take three quarters of the processes that the host can have: as many as a few hundred may have
// each. Without this limit not even root of the host can start a program.
static int
leave_processes(const struct cgroups *cg, struct err *e)
{
    long ids = number_in("/proc/sys/kernel/pid_max");
    long threads = number_in("/proc/sys/kernel/threads-max");
    long most = threads > 0 && threads < ids ? threads : ids;
    if (cg->body[CG_PIDS] == CG_ABSENT || most <= 0)
        return 0;
    int fd = cg->body[CG_PIDS] == CG_V2 ? cg->fd : cg->v1_fd[CG_PIDS];
    return io_write_u64_at(fd, "pids.max", (uint64_t)most / 4 * 3, e);
}

// Whether a name is that of a sandbox's cgroup: the hex form of an id.
static bool
is_sandbox_name(const char *name)
{
    return strlen(name) == CGROUP_NAME_BYTES - 1 &&
           strspn(name, "0123456789abcdef") == CGROUP_NAME_BYTES - 1;
}

// Kills everything below the container and waits until no process is left.
static int
kill_container(const struct cgroups *cg, struct err *e)
{
    int r = cgroup_kill(cg->fd, e);
    if (r == -ENOENT)
        return err_set(e, ERR_FAILED_PRECONDITION, "no cgroup.kill: Linux 5.14 or later is needed");
    if (r < 0)
        return r;
    for (int i = 0; i < CGROUP_EMPTY_MS; i++) {
        int populated = cgroup_event(cg->fd, "populated");
        if (populated <= 0)
            return populated < 0 ? err_sys(e, -populated, "read cgroup.events") : 0;
        (void)poll(NULL, 0, 1);
    }
    return err_set(e, ERR_DEADLINE_EXCEEDED, "cgroup %s does not become empty", cg->path);
}

// Removes one folder of the container: a sandbox's with everything that belongs to it, or the rest of it below a v1
// controller.
static int
remove_folder(const struct cgroups *cg, int dir_fd, const char *name, struct err *e)
{
    int auto_close sandbox =
        dir_fd != cg->fd ? -1
                         : openat(cg->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    for (int i = 0;; i++) {
        int r = 0;
        if (dir_fd == cg->fd)
            r = cgroup_remove(cg, sandbox, name, e);
        else if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = err_sys(e, errno, "remove cgroup %s", name);
        if (r != -EBUSY || i == CGROUP_EMPTY_MS / 10)
            return r;
        (void)poll(NULL, 0, 1); // the last exit is not complete yet
    }
}

// Removes the sandboxes' cgroups that one directory of the container lists (v2, or v1 leaves without a v2 cgroup).
static int
remove_listed(const struct cgroups *cg, int dir_fd, uint32_t *removed, struct err *e)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int sys = errno;
        io_close(&fd);
        return err_sys(e, sys, "list cgroup %s", cg->path);
    }
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(d)) != NULL) {
        bool sandbox = is_sandbox_name(entry->d_name);
        if (entry->d_type != DT_DIR || (!sandbox && !cgroup_leaf_is_name(entry->d_name)))
            continue;
        r = remove_folder(cg, dir_fd, entry->d_name, e);
        *removed += sandbox;
    }
    (void)closedir(d);
    return r;
}

static int
clear_container(const struct cgroups *cg, uint32_t *removed, struct err *e)
{
    int r = kill_container(cg, e);
    if (r == 0)
        r = remove_listed(cg, cg->fd, removed, e);
    for (int c = 0; c < CG_N && r == 0; c++) {
        if (cg->body[c] == CG_V1)
            r = remove_listed(cg, cg->v1_fd[c], removed, e);
    }
    return r;
}

static void
close_all(struct cgroups *cg)
{
    for (int c = 0; c < CG_N; c++)
        io_close(&cg->v1_fd[c]);
    io_close(&cg->fd);
    io_close(&cg->lock_fd);
    io_close(&cg->relay_fd);
}

int
cgroup_open(const char *configured, struct cgroups *out, uint32_t *leftovers, struct err *e)
{
    struct cgroups cg = {.fd = -1, .lock_fd = -1, .relay_fd = -1, .v1_fd = {-1, -1, -1, -1}};
    struct mounts m = {.nsdelegate = false};
    int auto_close parent = -1;
    int r = read_mounts(&m, e);
    if (r == 0)
        r = find_container(configured, &m, &cg, &parent, e);
    if (r == 0)
        r = take_container(parent, &cg, e);
    if (r == 0)
        r = make_relays(parent, &cg, e);
    if (r == 0) {
        cg.nsdelegate = m.nsdelegate;
        r = choose_bodies(&m, parent, &cg, e);
        cg.guest_apart = !cg.hybrid || cg.nsdelegate;
    }
    // Permits SANDBOX and job-N, but no deeper level, because the guest makes folders here.
    if (r == 0)
        r = io_write_at(cg.fd, "cgroup.max.depth", "2", e);
    if (r == 0)
        r = leave_processes(&cg, e);
    uint32_t removed = 0;
    if (r == 0)
        r = clear_container(&cg, &removed, e);
    if (r < 0) {
        close_all(&cg);
        return r;
    }
    *leftovers = removed;
    *out = cg;
    return 0;
}

// Removes a container by its own descriptor: its name in "..".
static int
remove_container(int dir_fd, const char *path, struct err *e)
{
    int auto_close parent = openat(dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return err_sys(e, errno, "open the parent of cgroup %s", path);
    const char *name = strrchr(path, '/') + 1;
    if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove cgroup %s", path);
    return 0;
}

int
cgroup_close(struct cgroups *cg, struct err *e)
{
    uint32_t removed = 0;
    int r = clear_container(cg, &removed, e);
    // All processes below were our children, so reap them.
    while (r == 0 && waitpid(-1, NULL, 0) > 0)
        ;
    for (int c = 0; c < CG_N && r == 0; c++) {
        if (cg->body[c] == CG_V1)
            r = remove_container(cg->v1_fd[c], cg->path, e);
    }
    if (r == 0) {
        char relays[sizeof cg->path + sizeof RELAY_SUFFIX];
        (void)snprintf(relays, sizeof relays, "%s" RELAY_SUFFIX, cg->path);
        r = remove_container(cg->relay_fd, relays, e); // the relay was our child, too
    }
    // Uses the mount that it was opened by, because nothing above it is visible in the current namespace.
    if (r == 0)
        r = remove_container(cg->lock_fd, cg->path, e);
    close_all(cg);
    return r;
}
