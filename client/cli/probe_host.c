// SPDX-License-Identifier: Apache-2.0
// Checks of the host's configuration (doctor): cgroups, ids, limits.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "doctor.h"
#include "units.h"

enum { LINE = 1024, FILES_WANTED = 65536, INSTANCES_WANTED = 128, TERMINALS_WANTED = 8192 };

// Host ids of sandboxes.
static const uint64_t ids_first = 0x70000000u, ids_last = 0x7fffffffu;

enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

static bool
is_cgroup2(const char *path)
{
    struct statfs st;
    return statfs(path, &st) == 0 && (uint64_t)st.f_type == CGROUP2_SUPER_MAGIC;
}

static enum cgroup_mode
cgroup_mode(const char **root)
{
    *root = "/sys/fs/cgroup";
    if (is_cgroup2(*root))
        return CGROUP_V2;
    *root = "/sys/fs/cgroup/unified";
    if (is_cgroup2(*root))
        return CGROUP_HYBRID;
    return access("/sys/fs/cgroup/memory", F_OK) == 0 ? CGROUP_V1 : CGROUP_NONE;
}

static void
look_cgroups(struct finding *f)
{
    static const char boot[] = "boot with systemd.unified_cgroup_hierarchy=1";
    const char *root = NULL;
    switch (cgroup_mode(&root)) {
    case CGROUP_V2:
        finding_set(f, VERDICT_OK, "", "v2 at %s", root);
        break;
    case CGROUP_HYBRID:
        finding_set(
            f, VERDICT_WARN, boot,
            "hybrid: v1 controllers beside v2 at %s; some figures cover the whole sandbox, not one "
            "job",
            root);
        break;
    case CGROUP_V1:
    case CGROUP_NONE:
        finding_set(f, VERDICT_BAD, boot, "no cgroup v2 is mounted");
        break;
    }
}

// One word of a list separated by blanks or commas.
static bool
has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strstr(list, word); p != NULL; p = strstr(p + n, word)) {
        bool starts = p == list || p[-1] == ' ' || p[-1] == ',';
        if (starts && (p[n] == '\0' || p[n] == ' ' || p[n] == ',' || p[n] == '\n'))
            return true;
    }
    return false;
}

static bool
has_controller(enum cgroup_mode mode, const char *v2, const char *name)
{
    char path[LINE];
    if (mode == CGROUP_V2)
        return has_word(v2, name);
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
    return access(path, F_OK) == 0;
}

static void
look_controllers(struct finding *f)
{
    static const char *const needed[] = {"cpu", "memory", "pids"};
    const char *root = NULL;
    enum cgroup_mode mode = cgroup_mode(&root);
    char v2[LINE] = "", path[LINE], missing[LINE] = "";
    (void)snprintf(path, sizeof path, "%s/cgroup.controllers", root);
    (void)probe_read_line(path, v2, sizeof v2);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!has_controller(mode, v2, needed[i])) {
            size_t at = strlen(missing);
            (void)snprintf(missing + at, sizeof missing - at, " %s", needed[i]);
        }
    bool io = has_controller(mode, v2, mode == CGROUP_V2 ? "io" : "blkio");
    if (missing[0] != '\0')
        finding_set(f, VERDICT_BAD,
                    "enable them: in the kernel (cgroup_enable=memory on some boards), and in "
                    "cgroup.subtree_control of the parents",
                    "missing:%s", missing);
    else if (!io)
        finding_set(f, VERDICT_WARN, "use a kernel with CONFIG_BLK_CGROUP",
                    "cpu, memory, pids; no io: the bill has no I/O figures");
    else
        finding_set(f, VERDICT_OK, "", "cpu, memory, pids, io");
}

// Options of the cgroup2 mount, from mountinfo (proc_pid_mountinfo(5)): the last field.
static bool
cgroup2_options(char *out, size_t n)
{
    char line[LINE];
    bool found = false;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const char *type = strstr(line, " - cgroup2 ");
        const char *last = type != NULL ? strrchr(line, ' ') : NULL;
        if (last == NULL)
            continue;
        (void)snprintf(out, n, "%s", last + 1);
        found = true;
    }
    (void)fclose(f);
    return found;
}

static void
look_nsdelegate(struct finding *f)
{
    char options[LINE];
    const char *root = NULL;
    if (!cgroup2_options(options, sizeof options))
        finding_set(f, VERDICT_UNKNOWN, "", "no cgroup v2 mount is visible");
    else if (has_word(options, "nsdelegate"))
        finding_set(f, VERDICT_OK, "", "on");
    else if (cgroup_mode(&root) == CGROUP_HYBRID)
        finding_set(f, VERDICT_OK, "", "off, as on every hybrid host; not needed there");
    else
        finding_set(f, VERDICT_WARN, "sudo mount -o remount,nsdelegate /sys/fs/cgroup",
                    "off: a sandbox's cgroup is fenced by file permissions alone");
}

// Any cgroup below the root: the root itself lacks most files.
static bool
any_cgroup(const char *root, char *out, size_t n)
{
    DIR *d = opendir(root);
    bool found = false;
    if (d == NULL)
        return false;
    for (const struct dirent *e = readdir(d); e != NULL && !found; e = readdir(d)) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        (void)snprintf(out, n, "%s/%s", root, e->d_name);
        found = true;
    }
    (void)closedir(d);
    return found;
}

static void
look_cgroup_files(struct finding *f)
{
    const char *root = NULL;
    char path[LINE], file[LINE + 32];
    enum cgroup_mode mode = cgroup_mode(&root);
    if ((mode != CGROUP_V2 && mode != CGROUP_HYBRID) || !any_cgroup(root, path, sizeof path)) {
        finding_set(f, VERDICT_UNKNOWN, "", "no cgroup to check");
        return;
    }
    (void)snprintf(file, sizeof file, "%s/cgroup.kill", path);
    bool kills = access(file, F_OK) == 0;
    (void)snprintf(file, sizeof file, "%s/memory.peak", path);
    bool peak = mode == CGROUP_HYBRID || access(file, F_OK) == 0;
    if (!kills)
        finding_set(f, VERDICT_BAD, "use a kernel of 5.14 or later", "no cgroup.kill in %s", path);
    else if (!peak)
        finding_set(f, VERDICT_WARN, "use a kernel of 5.19 or later",
                    "cgroup.kill; no memory.peak: the bill has no memory peak");
    else
        finding_set(f, VERDICT_OK, "", "%s",
                    mode == CGROUP_HYBRID ? "cgroup.kill" : "cgroup.kill, memory.peak");
}

// ---- Ids

// Owners of ids in our range, per file. Lines are "name:x:ID:..." or, for ranges, "name:FIRST:COUNT".
static bool
find_owner(const char *path, bool ranges, char *out, size_t n)
{
    char line[LINE];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        char *save = NULL;
        const char *name = strtok_r(line, ":", &save);
        const char *second = strtok_r(NULL, ":", &save);
        const char *third = strtok_r(NULL, ":\n", &save);
        if (name == NULL || second == NULL || third == NULL)
            continue;
        uint64_t first = strtoull(ranges ? second : third, NULL, 10);
        uint64_t count = ranges ? strtoull(third, NULL, 10) : 1;
        found = count > 0 && first <= ids_last && first + count > ids_first;
        if (found)
            (void)snprintf(out, n, "%s in %s", name, path);
    }
    (void)fclose(f);
    return found;
}

static void
look_ids(struct finding *f)
{
    char owner[LINE];
    if (find_owner("/etc/passwd", false, owner, sizeof owner) ||
        find_owner("/etc/group", false, owner, sizeof owner) ||
        find_owner("/etc/subuid", true, owner, sizeof owner) ||
        find_owner("/etc/subgid", true, owner, sizeof owner))
        finding_set(f, VERDICT_BAD, "assign other ids to that account or range",
                    "%.200s uses ids of the range for sandboxes (1879048192 to 2147483647)", owner);
    else
        finding_set(f, VERDICT_OK, "", "1879048192 to 2147483647 are not in use");
}

// ---- Limits

// The broker raises its own limit as far as necessary, which root may up to fs.nr_open; in a container possibly not.
// The limit of another user's shell does not show this.
static rlim_t
files_of_a_broker(void)
{
    struct rlimit own = {0, 0};
    char text[64];
    (void)getrlimit(RLIMIT_NOFILE, &own);
    const struct rlimit more = {own.rlim_cur, FILES_WANTED};
    if (own.rlim_max < FILES_WANTED && geteuid() == 0 && setrlimit(RLIMIT_NOFILE, &more) < 0)
        return own.rlim_max;
    if (!probe_read_line("/proc/sys/fs/nr_open", text, sizeof text))
        return own.rlim_max;
    return strtoul(text, NULL, 10);
}

static void
look_files(struct finding *f)
{
    char open_max[64] = "?";
    rlim_t files = files_of_a_broker();
    (void)probe_read_line("/proc/sys/fs/file-max", open_max, sizeof open_max);
    if (files < FILES_WANTED)
        finding_set(f, VERDICT_WARN, "ulimit -Hn 65536, or LimitNOFILE=65536 in the unit",
                    "at most %ju per process: too few for many sandboxes", (uintmax_t)files);
    else
        finding_set(f, VERDICT_OK, "", "a broker may open %ju, the whole host %s", (uintmax_t)files,
                    open_max);
}

static void
look_inotify(struct finding *f)
{
    char text[64];
    if (!probe_read_line("/proc/sys/fs/inotify/max_user_instances", text, sizeof text)) {
        finding_set(f, VERDICT_WARN, "use a kernel with CONFIG_INOTIFY_USER", "no inotify");
        return;
    }
    long n = strtol(text, NULL, 10);
    finding_set(f, n < INSTANCES_WANTED ? VERDICT_WARN : VERDICT_OK,
                n < INSTANCES_WANTED ? "sudo sysctl -w fs.inotify.max_user_instances=1024" : "",
                "%ld instances per user", n);
}

static void
look_pids(struct finding *f)
{
    char text[64];
    if (!probe_read_line("/proc/sys/kernel/pid_max", text, sizeof text))
        return;
    long n = strtol(text, NULL, 10);
    finding_set(f, n < 32768 ? VERDICT_WARN : VERDICT_OK,
                n < 32768 ? "sudo sysctl -w kernel.pid_max=4194304" : "", "pid_max %ld", n);
}

// Sandboxes get a share of the terminals that the kernel reserves for containers; the broker raises it at its start if
// it may.
static void
look_terminals(struct finding *f)
{
    char max[64] = "", reserve[64] = "", used[64] = "";
    if (!probe_read_line("/proc/sys/kernel/pty/max", max, sizeof max) ||
        !probe_read_line("/proc/sys/kernel/pty/reserve", reserve, sizeof reserve) ||
        !probe_read_line("/proc/sys/kernel/pty/nr", used, sizeof used)) {
        finding_set(f, VERDICT_WARN, "use a kernel with CONFIG_UNIX98_PTYS", "no terminals");
        return;
    }
    long room = strtol(max, NULL, 10) - strtol(reserve, NULL, 10), n = strtol(used, NULL, 10);
    bool full = n >= room - room / 4, few = room < TERMINALS_WANTED;
    finding_set(f, full || few ? VERDICT_WARN : VERDICT_OK,
                full || few ? "sudo sysctl -w kernel.pty.max=65536, and restart the broker" : "",
                "%ld of %ld for containers are in use%s", n, room,
                few ? ": at most two for each of 2048 sandboxes" : "");
}

static void
look_memory(struct finding *f)
{
    char line[LINE], shown[64];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtoull(line + 13, NULL, 10);
    (void)fclose(file);
    bool little = kib < 262144;
    finding_set(f, little ? VERDICT_WARN : VERDICT_OK, little ? "free some memory" : "",
                "%s available", units_show_bytes(kib * 1024, shown, sizeof shown));
}

static void
look_programs(struct finding *f)
{
    static const char *const wanted[] = {"bash", "python3", "git", "node"};
    char there[LINE] = "", missing[LINE] = "", path[64];
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        (void)snprintf(path, sizeof path, "/usr/bin/%s", wanted[i]);
        char *list = access(path, X_OK) == 0 ? there : missing;
        size_t at = strlen(list);
        (void)snprintf(list + at, LINE - at, " %s", wanted[i]);
    }
    finding_set(f, VERDICT_OK, "", "available to jobs:%s%s%s", there,
                missing[0] != '\0' ? "; not on this host:" : "", missing);
}

const struct check checks_host[] = {
    {"cgroups", look_cgroups},       {"controllers", look_controllers},
    {"nsdelegate", look_nsdelegate}, {"cgroup files", look_cgroup_files},
    {"host ids", look_ids},          {"open files", look_files},
    {"inotify", look_inotify},       {"processes", look_pids},
    {"terminals", look_terminals},   {"memory", look_memory},
    {"programs", look_programs},     {0},
};
