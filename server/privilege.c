// SPDX-License-Identifier: Apache-2.0
// See privilege.h.
#include "privilege.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/rpc/rpc.h"

#define ACCOUNT        "stockade"
#define RELAY_ACCOUNT  "stockade-relay"
#define READER_ACCOUNT "stockade-exporter"

int
privilege_check_root(struct err *e)
{
    if (geteuid() == 0)
        return 0;
    int r = err_set(
        e, ERR_FAILED_PRECONDITION,
        "stockaded must be started as root: it starts one small process that stays root and "
        "creates sandboxes, and then drops its own privileges");
    err_detail(e, "NOT_ROOT", NULL, "sudo stockaded, or systemctl start stockade");
    return r;
}

static int
find_group(const char *name, gid_t *out, struct err *e)
{
    errno = 0;
    const struct group *g = getgrnam(name);
    if (g == NULL)
        return err_set(e, ERR_FAILED_PRECONDITION, "socket.group: there is no group %s", name);
    *out = g->gr_gid;
    return 0;
}

// The account of the exporters. It must not be one that has other rights.
static int
find_reader(const char *name, const struct identity *who, uid_t *out, struct err *e)
{
    const struct passwd *account = getpwnam(name[0] != '\0' ? name : READER_ACCOUNT);
    if (account == NULL && name[0] != '\0')
        return err_set(e, ERR_FAILED_PRECONDITION, "metrics.reader: there is no account %s", name);
    if (account != NULL &&
        (account->pw_uid == 0 || account->pw_uid == who->uid || account->pw_uid == who->relay_uid))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "metrics.reader: %s must be neither root nor an account of the broker",
                       account->pw_name);
    *out = account != NULL ? account->pw_uid : 0;
    return 0;
}

int
privilege_identity(const struct config *c, struct identity *out, struct err *e)
{
    struct identity who = {.uid = c->id_base, .gid = c->id_base};
    const struct passwd *account = getpwnam(ACCOUNT);
    if (account != NULL) {
        who.uid = account->pw_uid;
        who.gid = account->pw_gid;
    }
    if (who.uid == 0 || who.gid == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "the account %s must not be root", ACCOUNT);
    account = getpwnam(RELAY_ACCOUNT);
    who.relay_uid = account != NULL ? account->pw_uid : c->id_base + 1;
    who.relay_gid = account != NULL ? account->pw_gid : c->id_base + 1;
    if (who.relay_uid == 0 || who.relay_gid == 0 || who.relay_uid == who.uid)
        return err_set(e, ERR_FAILED_PRECONDITION, "the account %s must be neither root nor %s",
                       RELAY_ACCOUNT, ACCOUNT);
    who.socket_gid = who.gid;
    const struct group *g = getgrnam(ACCOUNT);
    if (g != NULL)
        who.socket_gid = g->gr_gid;
    if (c->socket_group[0] != '\0') {
        int r = find_group(c->socket_group, &who.socket_gid, e);
        if (r < 0)
            return r;
    }
    int r = find_reader(c->metrics_reader, &who, &who.reader_uid, e);
    if (r < 0)
        return r;
    *out = who;
    return 0;
}

enum { MADE_MAX = 32 };

// A folder that must exist: its owner, whether the folders above it must be safe, too, and whether it is made.
struct folder {
    uid_t uid;
    gid_t gid;
    bool deep;
    bool make;
};

// Only root, or the broker's account for its own last component, may be able to replace a folder. *name is the path
// walked so far.
static int
check_dir(int fd, const char *name, bool last, const struct folder *f, struct err *e)
{
    struct stat st;
    int r = 0;
    uid_t uid = f->uid;
    char hint[96];
    if (!last && !f->deep)
        return 0;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "examine %s", name);
    if (st.st_uid != 0 && (!last || st.st_uid != uid)) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%s belongs to uid %u, and only root%s may own it",
                    name, st.st_uid, last && uid != 0 ? " or the broker's account" : "");
        (void)snprintf(hint, sizeof hint,
                       "chown -R %u:%u it, or remove it if an earlier install left it", f->uid,
                       f->gid);
        err_detail(e, "FOLDER_OWNER", name,
                   last ? hint : "choose a folder that only root can replace");
    } else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (last || (st.st_mode & S_ISVTX) == 0) &&
               ((st.st_mode & S_IWOTH) != 0 || st.st_gid != 0)) {
        r = err_set(e, ERR_FAILED_PRECONDITION,
                    "%s is writable by others than its owner (mode %04o)", name,
                    st.st_mode & 07777u);
        err_detail(e, "FOLDER_MODE", name,
                   (st.st_mode & S_ISVTX) != 0
                       ? "it is shared: choose a folder of its own, such as /run/NAME"
                       : "chmod go-w it");
    }
    return r;
}

// Opens one component below `at`; -ENOENT: it does not exist (*e is not written). Follows a symbolic link only if root
// made it, in a folder that only root can write to (/var/run).
static int
step_into(int at, const char *part, const char *name, int *out, struct err *e)
{
    struct stat st;
    struct stat above;
    int fd = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int sys = fd < 0 ? errno : 0;
    bool link = fd < 0 && (sys == ELOOP || sys == ENOTDIR) &&
                fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
    if (link && st.st_uid == 0 && fstat(at, &above) == 0 && above.st_uid == 0 &&
        (above.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
        fd = openat(at, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        sys = fd < 0 ? errno : 0;
        link = false;
    }
    *out = fd;
    if (sys == ENOENT && !link)
        return -ENOENT;
    if (link)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s is a symbolic link: use the folder that it points to", name);
    return sys != 0 ? err_sys(e, sys, "open %s", name) : 0;
}

// Made by this start, in this order.
static char made[MADE_MAX][PATH_MAX];
static size_t made_n;

static void
note_made(const char *path)
{
    if (made_n < MADE_MAX)
        (void)snprintf(made[made_n++], PATH_MAX, "%s", path);
}

void
privilege_undo(void)
{
    while (made_n > 0)
        (void)remove(made[--made_n]); // a file, or a folder if it is empty
}

static int
make_one(int at, const char *part, const char *name, const struct folder *last, int *out,
         struct err *e)
{
    if (mkdirat(at, part, 0755) < 0)
        return err_sys(e, errno, "make %s", name);
    note_made(name);
    *out = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*out < 0 || (last != NULL && fchown(*out, last->uid, last->gid) < 0) ||
        fchmod(*out, 0755) < 0)
        return err_sys(e, errno, "make %s", name);
    return 0;
}

// Checks a folder and those above it, and creates missing ones, as mkdir -p does, each relative to the one before, so that
// nothing is created through a folder that would be refused. Without f->make a missing one is fine.
static int
make_dir(const char *path, const struct folder *f, struct err *e)
{
    char name[PATH_MAX];
    int auto_close at = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || snprintf(name, sizeof name, "%s", path) >= (int)sizeof name)
        return err_sys(e, at < 0 ? errno : ENAMETOOLONG, "make %s", path);
    for (char *part = name; *part != '\0';) {
        part += strspn(part, "/");
        char *end = part + strcspn(part, "/");
        bool last = end[strspn(end, "/")] == '\0';
        char kept = *end;
        int next = -1;
        *end = '\0';
        if (*part == '\0')
            break;
        int r = step_into(at, part, name, &next, e);
        if (r == -ENOENT && next < 0 && !f->make)
            return 0;
        if (r == -ENOENT && next < 0)
            r = make_one(at, part, name, last ? f : NULL, &next, e);
        int auto_close below = next;
        if (r == 0)
            r = check_dir(below, name, last, f, e);
        if (r < 0)
            return r;
        (void)close(take_fd(&at));
        at = take_fd(&below);
        *end = kept;
        part = end;
    }
    return 0;
}

// Whether a folder has an entry that `skip` does not name; its name is copied to `found`.
static bool
has_entry(const char *path, const char *skip, char found[256])
{
    bool has = false;
    DIR *d = opendir(path);
    if (d == NULL)
        return false;
    for (const struct dirent *it = readdir(d); it != NULL && !has; it = readdir(d)) {
        has = strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0 &&
              strcmp(it->d_name, skip) != 0;
        (void)snprintf(found, 256, "%s", it->d_name);
    }
    (void)closedir(d);
    return has;
}

// An existing state folder is ours if it has the folder "profiles", which is made first; any other must be empty.
static int
check_state_dir(const char *path, struct err *e)
{
    char profiles[SPAWN_PATH_MAX + 16];
    char found[256];
    struct stat st;
    (void)snprintf(profiles, sizeof profiles, "%s/profiles", path);
    if ((lstat(profiles, &st) == 0 && S_ISDIR(st.st_mode)) || !has_entry(path, "lost+found", found))
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "%s is not a state folder of stockaded, and it is not empty: it contains %s",
                    path, found);
    err_detail(e, "FOLDER_FOREIGN", path, "choose a new or an empty folder");
    return r;
}

static int
prepare_state_dir(const struct config *c, const struct identity *who, bool make, struct err *e)
{
    const struct folder roots = {0, 0, true, make};
    const struct folder ours = {who->uid, who->gid, true, make};
    char path[SPAWN_PATH_MAX + 16];
    int r = make_dir(c->state_dir, &roots, e);
    if (r == 0)
        r = check_state_dir(c->state_dir, e);
    (void)snprintf(path, sizeof path, "%s/profiles", c->state_dir);
    if (r == 0)
        r = make_dir(path, &ours, e); // the broker's own: anomaly/files.h
    (void)snprintf(path, sizeof path, "%s/volumes", c->state_dir);
    if (r == 0)
        r = make_dir(path, &ours, e); // and this one: volume/index.h
    (void)snprintf(path, sizeof path, "%s/store", c->state_dir);
    if (r == 0)
        r = make_dir(path, &ours, e); // and store/store.h
    const bool elsewhere = c->audit.folder[0] != '\0';
    (void)snprintf(path, sizeof path, "%s%s", elsewhere ? c->audit.folder : c->state_dir,
                   elsewhere ? "" : "/audit");
    if (r == 0 && c->audit.enabled)
        r = make_dir(path, &ours, e); // and audit/audit.h
    (void)snprintf(path, sizeof path, "%s/state", c->state_dir);
    if (r == 0)
        r = make_dir(path, &ours, e); // and state/state.h, which closes it to others
    return r < 0 ? err_wrap(e, "state_dir") : 0;
}

static bool
has_lock(const struct config *c)
{
    char path[SPAWN_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/lock", c->state_dir);
    return access(path, F_OK) == 0;
}

// Held by its descriptor until the process ends.
static int
lock_state_dir(const struct config *c, struct err *e)
{
    char path[SPAWN_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/lock", c->state_dir);
    bool fresh = access(path, F_OK) < 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    if (fresh)
        note_made(path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    (void)close(fd);
    return err_set(e, ERR_FAILED_PRECONDITION, "another stockaded uses %s", c->state_dir);
}

static int
check_socket_file(const char *address, const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) < 0 || S_ISSOCK(st.st_mode))
        return 0;
    return err_set(e, ERR_ALREADY_EXISTS, "%s: the file exists and is not a socket", address);
}

// Makes the broker the owner of a socket's folder, so that it can create and remove the socket there without root.
// Only a folder with our own name, or an empty or new one, is passed on; /run or /tmp itself is refused.
static int
prepare_socket_dir(const char *address, const struct identity *who, bool make, struct err *e)
{
    static const char scheme[] = "ipc://";
    const struct folder ours = {who->uid, who->gid, false, make};
    char dir[CONFIG_ADDRESS_MAX];
    char found[256];
    struct stat st;
    if (strncmp(address, scheme, sizeof scheme - 1) != 0)
        return 0;
    (void)snprintf(dir, sizeof dir, "%s", address + sizeof scheme - 1);
    char *slash = strrchr(dir, '/');
    if (dir[0] != '/' || slash == dir || slash[1] == '\0')
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: must be ipc:///folder/file, in a folder of its own", address);
    *slash = '\0';
    int r = make_dir(dir, &ours, e);
    if (r < 0)
        return err_wrap(e, "%s", address);
    if (lstat(dir, &st) < 0)
        return !make && errno == ENOENT ? 0 : err_sys(e, errno, "%s", dir);
    if (st.st_uid == who->uid)
        return check_socket_file(address, address + sizeof scheme - 1, e);
    if (!make && !has_entry(dir, "", found))
        return 0;
    if (make && access(dir, F_OK) == 0 && rmdir(dir) == 0)
        return make_dir(dir, &ours, e);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "%s: the folder %s belongs to root and is not empty; the broker needs a folder of its own",
        address, dir);
}

static int
prepare_sockets(const struct config *c, const struct identity *who, bool make, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < c->listen_n && r == 0; i++)
        r = prepare_socket_dir(c->listen[i], who, make, e);
    return r == 0 ? prepare_socket_dir(c->telemetry.feed, who, make, e) : r;
}

// Whether the addresses are free, before anything is made for them. rpc_listen() checks it again.
static int
sockets_are_free(const struct config *c, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < c->listen_n && r == 0; i++)
        r = rpc_address_is_free(c->listen[i], e);
    if (r == 0 && c->telemetry.feed[0] != '\0' &&
        (r = rpc_address_is_free(c->telemetry.feed, e)) < 0)
        (void)err_wrap(e, "open the feed");
    return r;
}

// First everything is checked, so that a refused start leaves nothing behind. A state folder of an earlier start is
// locked first: of two brokers with the same configuration, the second one reports the folder.
int
privilege_prepare(const struct config *c, const struct identity *who, struct err *e)
{
    bool locked = false;
    int r = prepare_state_dir(c, who, false, e);
    if (r == 0 && has_lock(c)) {
        r = lock_state_dir(c, e);
        locked = r == 0;
    }
    if (r == 0)
        r = prepare_sockets(c, who, false, e);
    if (r == 0)
        r = sockets_are_free(c, e);
    if (r == 0)
        r = prepare_state_dir(c, who, true, e);
    if (r == 0 && !locked)
        r = lock_state_dir(c, e);
    return r == 0 ? prepare_sockets(c, who, true, e) : r;
}

int
privilege_check_state_dir(const struct config *c, const struct identity *who, struct err *e)
{
    return prepare_state_dir(c, who, false, e);
}

int
privilege_check_sockets(const struct config *c, const struct identity *who, struct err *e)
{
    return prepare_sockets(c, who, false, e);
}

static int
drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(e, errno, "clear ambient capabilities");
    for (unsigned long cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL && errno != EPERM)
            return err_sys(e, errno, "drop capability %lu", cap);
    return syscall(SYS_capset, &header, none) < 0 ? err_sys(e, errno, "drop capabilities") : 0;
}

static int
check_dropped(const struct identity *who, struct err *e)
{
    uid_t r = 0;
    uid_t eff = 0;
    uid_t s = 0;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2] = {{0}};
    if (getresuid(&r, &eff, &s) < 0 || syscall(SYS_capget, &header, now) < 0)
        return err_sys(e, errno, "check privileges");
    bool none = (now[0].effective | now[1].effective | now[0].permitted | now[1].permitted |
                 now[0].inheritable | now[1].inheritable) == 0;
    if (!none || r != who->uid || eff != who->uid || s != who->uid || setuid(0) == 0)
        return err_set(e, ERR_INTERNAL, "the process still has privileges");
    return 0;
}

int
privilege_drop(const struct identity *who, struct err *e)
{
    gid_t groups[] = {who->socket_gid};
    // First the bounding set, while CAP_SETPCAP is there; then the ids; then the sets that setresuid does not empty.
    for (unsigned long cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return err_sys(e, errno, "drop capability %lu", cap);
    if (setgroups(who->socket_gid != who->gid ? 1 : 0, groups) < 0)
        return err_sys(e, errno, "set groups");
    if (setresgid(who->gid, who->gid, who->gid) < 0 || setresuid(who->uid, who->uid, who->uid) < 0)
        return err_sys(e, errno, "become uid %u", who->uid);
    int r = drop_capabilities(e);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(e, errno, "drop privileges");
    return check_dropped(who, e);
}

// Root will execute it, so only root may be able to change it.
static bool
is_ours(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IXUSR) != 0 &&
           st.st_uid == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int
privilege_program(const char *name, char *out, size_t out_n, struct err *e)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return err_sys(e, errno, "read /proc/self/exe");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    if (snprintf(out, out_n, "%s/%s", self, name) < (int)out_n && is_ours(out))
        return 0;
    if (snprintf(out, out_n, "%s/%s", STOCKADE_LIBEXECDIR, name) < (int)out_n && is_ours(out))
        return 0;
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "%s was found neither beside this program nor in %s, or does not belong to root",
                   name, STOCKADE_LIBEXECDIR);
}

int
privilege_open_program(const char *name, int *fd, struct err *e)
{
    char path[PATH_MAX];
    int r = privilege_program(name, path, sizeof path, e);
    if (r < 0)
        return r;
    *fd = open(path, O_PATH | O_CLOEXEC);
    return *fd < 0 ? err_sys(e, errno, "open %s", path) : 0;
}
