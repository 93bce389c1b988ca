// SPDX-License-Identifier: Apache-2.0
// See tier.h: the row "process". Takes namespaces that were made in advance, makes cgroups, and clones a first
// process into both. child.c has what it does until it executes the guest, tree_enter.c the files that it sees.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/keeper/keep.h"
#include "holder.h"
#include "io.h"
#include "tier.h"
#include "tree_copy.h"
#include "tree_states.h"

static int
low_copy(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, FD_CHILD_MAX);
}

static bool
is_user_root(const struct spawner *s, const struct slot *slot)
{
    return tree_root_is_user_root(s->tree, slot->root);
}

static int
userns_of(const struct spawner *s, const struct slot *slot)
{
    return is_user_root(s, slot) ? slot->userns_root_fd : slot->userns_fd;
}

static int
user_namespace(const struct spawner *s, struct slot *slot, struct err *e)
{
    const bool root = is_user_root(s, slot);
    int *fd = root ? &slot->userns_root_fd : &slot->userns_fd;
    if (*fd >= 0)
        return *fd;
    int made = root ? holder_user_namespace_of_root(slot->uid, s->proc_fd, e)
                    : holder_user_namespace(slot->uid, s->proc_fd, e);
    if (made < 0)
        return made;
    *fd = io_keep_fd(made);
    return *fd;
}

// Takes the namespaces that were made in advance, at numbers that the child can use.
static int
take_namespaces(struct spawner *s, struct slot *slot, struct err *e)
{
    int user_fd = user_namespace(s, slot, e);
    if (user_fd < 0)
        return user_fd;
    slot->userns_low_fd = low_copy(user_fd);
    if (slot->userns_low_fd < 0)
        return err_sys(e, errno, "user namespace: copy the descriptor");
    if (s->net_n > 0) {
        slot->net_again_fd = s->net_pool[--s->net_n];
        slot->net_fd = low_copy(slot->net_again_fd);
    }
    return 0;
}

static int
clone_child(struct spawner *s, struct slot *slot, struct err *e)
{
    // a copy, because the child does not have the table of slots
    const struct cgroup_sandbox cgroup = slot->cgroup;
    const struct child_plan plan = {
        .cgroup = &cgroup,
        .tree = s->tree,
        .enter = tier_of(s, slot)->enter,
        .sandbox = {.root = slot->root,
                    .userns_fd = slot->userns_low_fd,
                    .uid = slot->uid,
                    .disk_bytes = slot->limits.disk_bytes,
                    .inodes = slot->limits.inodes,
                    .memory_bytes = slot->limits.memory_bytes,
                    .cpu_millis = slot->limits.cpu_millis,
                    .hidden_fd = cgroup.tree_fd,
                    .scratch_fd = slot->scratch_fd},
        .filter = &s->guest_filter,
        .hostname = tree_root_hostname(s->tree, slot->root),
        .user_root = is_user_root(s, slot),
        .net_fd = slot->net_fd,
        .socket_fd = slot->socket_theirs_fd,
        .channel_fd = slot->channel_theirs_fd,
        .job_filter_fd = s->job_filter_fd,
        .exe_fd = s->exe_fd,
        .null_fd = s->null_fd,
        .proc_fd = s->proc_fd,
        .cores_piped = s->cores_piped,
        .ignored = s->ignored,
    };
    int r = child_start(&plan, &slot->pid_fd, e);
    if (r < 0)
        return r;
    slot->pid_fd = io_keep_fd(slot->pid_fd);
    return 0;
}

static int
process_make(struct spawner *s, struct slot *slot, struct err *e)
{
    const uint32_t guest = is_user_root(s, slot) ? SANDBOX_UID_GUEST_OF_ROOT : SANDBOX_UID_GUEST;
    int r = take_namespaces(s, slot, e);
    if (r == 0)
        r = cgroup_make(&s->cgroups, slot->name, slot->uid + guest, s->proc_fd, &slot->limits,
                        &slot->cgroup, e);
    if (r < 0)
        return r;
    slot->cgroup.fd = io_keep_fd(slot->cgroup.fd);
    return clone_child(s, slot, e);
}

static int
process_figures(struct slot *slot, int fds[SPAWN_FDS_MAX], unsigned *n, uint32_t *bits,
                struct err *e)
{
    static const enum spawn_fd v1[CG_N] = {
        [CG_MEMORY] = SPAWN_FD_MEMORY,
        [CG_CPU] = SPAWN_FD_CPU,
        [CG_PIDS] = SPAWN_FD_PIDS,
        [CG_IO] = SPAWN_FD_BLKIO,
    };
    int auto_close cgroup_fd = low_copy(slot->cgroup.fd);
    int auto_close disk_fd = low_copy(slot->disk_fd);
    if (cgroup_fd < 0 || disk_fd < 0)
        return err_sys(e, errno, "copy the cgroup's and the disk's descriptor");
    fds[(*n)++] = take_fd(&cgroup_fd);
    *bits |= 1u << SPAWN_FD_CGROUP | 1u << SPAWN_FD_DISK;
    for (int c = 0; c < CG_N; c++) {
        if (slot->cgroup.v1_fd[c] < 0)
            continue;
        fds[(*n)++] = take_fd(&slot->cgroup.v1_fd[c]);
        *bits |= 1u << v1[c];
    }
    fds[(*n)++] = take_fd(&disk_fd);
    return 0;
}

// Of the process that stays: it has not become more than it was.
static bool
has_one_thread(int cgroup_fd)
{
    char text[64];
    const long n = io_read_at(cgroup_fd, "cgroup.threads", text, sizeof text);
    return n > 0 && strchr(text, '\n') == text + n - 1;
}

// True if a process is in the cgroup of a job, or if a cgroup cannot be read. `stays`: see slot_check_idle().
static bool
has_jobs(int cgroup_fd, uint32_t stays)
{
    char but[sizeof "job-" + 10] = "";
    if (stays != 0)
        (void)snprintf(but, sizeof but, "job-%u", stays);
    int fd = openat(cgroup_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool any = d == NULL;
    if (d == NULL)
        io_close(&fd);
    for (struct dirent *it = d != NULL ? readdir(d) : NULL; it != NULL && !any; it = readdir(d)) {
        if (it->d_type != DT_DIR || strncmp(it->d_name, "job-", 4) != 0)
            continue;
        int auto_close job = openat(dirfd(d), it->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int populated = job < 0 ? -errno : cgroup_event(job, "populated");
        any = populated != 0 && populated != -ENOENT && populated != -ENODEV &&
              !(strcmp(it->d_name, but) == 0 && has_one_thread(job));
    }
    if (d != NULL)
        (void)closedir(d);
    return any;
}

// The sandbox whose layers are inherited, grafted or copied. It may have ended in the meantime: NULL.
static const struct slot *
find_source(const struct spawner *s, const struct spawn_request *q, struct err *e)
{
    const struct slot *from = &s->slots[q->from_slot];
    if (from->generation == q->from_generation && from->pid_fd >= 0 && from->layers != NULL &&
        (from->state == SLOT_LIVE || from->state == SLOT_FROZEN))
        return from;
    (void)err_set(e, ERR_ABORTED, "the other sandbox ended meanwhile, or has no layers");
    return NULL;
}

int
slot_check_idle(const struct slot *slot, uint32_t stays, struct err *e)
{
    if (slot->pid_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "its guest has ended");
    if (has_jobs(slot->cgroup.fd, stays)) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "a job still runs");
        err_detail(e, "JOBS_RUN", slot->name, "wait for its jobs to end, or stop them (--stop)");
        return -EBUSY;
    }
    return 0;
}

static int
begin_layers(struct slot *slot, struct err *e)
{
    if (slot->layers != NULL)
        return 0;
    if ((slot->layers = tree_layers_new()) == NULL)
        return err_sys(e, ENOMEM, "begin the layers");
    slot->layers->base = slot->scratch_use;
    return 0;
}

static int
process_swap(struct spawner *s, struct slot *slot, const struct spawn_request *q, uint32_t *layer,
             int *disk_fd, struct scratch_size *needs, struct err *e)
{
    *disk_fd = -1;
    const bool resets = q->op == SPAWN_RESET;
    int r = slot_check_idle(slot, resets ? q->arg : 0, e);
    if (r == 0)
        r = begin_layers(slot, e);
    if (r < 0)
        return r;
    struct tree_swap swap = {.kind = q->op == SPAWN_SEAL      ? TREE_SEAL
                                     : q->op == SPAWN_RESTORE ? TREE_RESTORE
                                     : resets                 ? TREE_FRESH
                                                              : TREE_INHERIT,
                             .of = tree_of(slot),
                             .layer = resets ? 0 : q->arg,
                             .root = slot->root,
                             .uid = slot->uid,
                             .userns_fd = userns_of(s, slot),
                             .proc_fd = s->proc_fd,
                             .mounts = slot->mounts,
                             .space_fd =
                                 slot->mounts != NULL ? disks_space(s->disks, s->proc_fd, e) : -1,
                             .disk_bytes = slot->limits.disk_bytes,
                             .inodes = slot->limits.inodes,
                             .on_disk = tree_root_is_on_disk(s->tree, slot->root),
                             .scratch_fd = slot->scratch_fd,
                             .scratch_has = slot->scratch_bytes,
                             .scratch_use = slot->scratch_use,
                             .scratch_bytes = &needs->bytes,
                             .scratch_inodes = &needs->inodes};
    if (q->op == SPAWN_INHERIT) {
        const struct slot *from = find_source(s, q, e);
        if (from == NULL)
            return err_errno(e);
        swap.from = tree_of(from);
        swap.from_root = from->root;
    }
    int helper_fd = -1;
    r = tree_swap(s->tree, &swap, layer, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    if (r == 0 && helper_fd >= 0 && (*disk_fd = low_copy(slot->layers->upper_fd)) < 0)
        r = err_sys(e, errno, "copy the disk's descriptor");
    return r;
}

static int
process_open_layer(struct spawner *s, struct slot *slot, uint32_t layer, uint32_t *uid,
                   struct err *e)
{
    int helper_fd = -1;
    if (slot->pid_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "its guest has ended");
    const struct tree_of p = tree_of(slot);
    int fd = tree_open_layer(&p, layer, uid, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return fd;
}

static struct tree_copy
copy_of(const struct slot *slot, const struct spawn_request *q)
{
    return (struct tree_copy){.of = tree_of(slot),
                              .root = slot->root,
                              .from = q->arg,
                              .below = q->other,
                              .uid = slot->uid,
                              .bytes = q->limits.disk_bytes,
                              .inodes = q->limits.inodes,
                              .disk_bytes = slot->limits.disk_bytes,
                              .disk_inodes = slot->limits.inodes,
                              .scratch_fd = slot->scratch_fd,
                              .scratch_use = slot->scratch_use};
}

static int
check_copy(const struct slot *slot, const struct spawn_request *q, struct err *e)
{
    if (slot->pid_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "its guest has ended");
    if (q->op == SPAWN_COPY && q->arg == 0 && (slot->state != SLOT_FROZEN || !slot->still))
        return err_set(e, ERR_FAILED_PRECONDITION, "it is not frozen");
    if (slot->layers != NULL && slot->layers->recycled)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "a batch recycles it, so its files are not kept");
    if (slot->layers == NULL || slot->layers->copy == 0)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "its files are being copied already");
    err_detail(e, "COPYING", slot->name, "try again");
    return r;
}

// The folder of a layer in the state directory; `more` is the name of a file in it.
enum {
    KEPT_PATH = SPAWN_PATH_MAX + sizeof "/" KEEP_FOLDER "/" + KEEP_HEX + sizeof "/" KEEP_SEALED
};
static void
kept_path(const struct spawner *s, const struct spawn_request *q, const char *more,
          char out[KEPT_PATH])
{
    int at = snprintf(out, KEPT_PATH, "%s/" KEEP_FOLDER "/", s->config->state_dir);
    for (size_t i = 0; i < SPAWN_DIGEST_BYTES; i++, at += 2)
        (void)snprintf(out + at, 3, "%02x", q->digest[i]);
    (void)snprintf(out + at, sizeof "/" KEEP_SEALED, "%s", more);
}

static int
process_copy(struct spawner *s, struct slot *slot, const struct spawn_request *q,
             struct tree_copying *out, struct scratch_size *needs, struct err *e)
{
    char path[KEPT_PATH];
    int helper_fd = -1;
    int r = check_copy(slot, q, e);
    if (r == 0)
        r = begin_layers(slot, e);
    if (r < 0)
        return r;
    struct tree_copy plan = copy_of(slot, q);
    plan.on_disk = tree_root_is_on_disk(s->tree, slot->root);
    plan.scratch_bytes = &needs->bytes;
    plan.scratch_inodes = &needs->inodes;
    if (q->op == SPAWN_UNSEAL) {
        kept_path(s, q, "/" KEEP_SEALED, path);
        plan.sealed = path;
        plan.mount_home_fd = s->mount_home_fd;
    } else if (q->from_generation != 0) {
        const struct slot *from = find_source(s, q, e);
        if (from == NULL)
            return err_errno(e);
        plan.other = tree_of(from);
        plan.other_root = from->root;
    }
    r = tree_copy(s->tree, &plan, out, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return r;
}

static int
process_copied(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct err *e)
{
    const struct tree_copy plan = copy_of(slot, q);
    return slot->layers == NULL ? err_set(e, ERR_NOT_FOUND, "the sandbox has no layers")
                                : tree_copied(s->tree, &plan, q->arg, q->other, e);
}

static int
adopt(struct spawner *s, const struct tree_adopt *plan, uint32_t *layer, struct err *e)
{
    int helper_fd = -1;
    int r = tree_adopt_layer(s->tree, plan, layer, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return r;
}

static int
adopt_kept(struct spawner *s, struct slot *slot, const struct spawn_request *q, uint32_t *layer,
           struct err *e)
{
    char path[KEPT_PATH];
    if (slot->kept_userns_fd < 0) {
        int fd = holder_user_namespace_from(KEEP_ID_BASE, slot->uid, s->proc_fd, e);
        if (fd < 0)
            return fd;
        slot->kept_userns_fd = io_keep_fd(fd);
    }
    kept_path(s, q, "", path);
    const struct tree_adopt plan = {.of = tree_of(slot),
                                    .below = q->arg,
                                    .path = path,
                                    .mount_home_fd = s->mount_home_fd,
                                    .userns_fd = slot->kept_userns_fd,
                                    .disk_bytes = slot->limits.disk_bytes,
                                    .inodes = slot->limits.inodes};
    return adopt(s, &plan, layer, e);
}

static int
graft(struct spawner *s, struct slot *slot, const struct spawn_request *q, uint32_t *layer,
      struct err *e)
{
    const struct slot *from = find_source(s, q, e);
    if (from == NULL)
        return err_errno(e);
    if (!tree_layers_have(from->layers, q->arg))
        return err_set(e, ERR_NOT_FOUND, "the other sandbox has no layer %u", q->arg);
    int auto_close userns_fd =
        holder_user_namespace_from(from->layers->sealed[q->arg].uid, slot->uid, s->proc_fd, e);
    if (userns_fd < 0)
        return userns_fd;
    const struct tree_adopt plan = {.of = tree_of(slot),
                                    .below = q->other,
                                    .from = tree_of(from),
                                    .layer = q->arg,
                                    .root = slot->root,
                                    .from_root = from->root,
                                    .userns_fd = userns_fd,
                                    .disk_bytes = slot->limits.disk_bytes,
                                    .inodes = slot->limits.inodes};
    return adopt(s, &plan, layer, e);
}

static int
process_adopt(struct spawner *s, struct slot *slot, const struct spawn_request *q, uint32_t *layer,
              struct err *e)
{
    if (slot->pid_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "its guest has ended");
    int r = begin_layers(slot, e);
    if (r < 0)
        return r;
    return q->op == SPAWN_GRAFT ? graft(s, slot, q, layer, e) : adopt_kept(s, slot, q, layer, e);
}

static int
process_drop(struct spawner *s, struct slot *slot, uint32_t layer, struct err *e)
{
    int helper_fd = -1;
    if (slot->pid_fd < 0 || slot->layers == NULL)
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layers");
    const struct tree_of p = tree_of(slot);
    int r = tree_drop_layer(&p, layer, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return r;
}

static int
process_mount(struct spawner *s, struct slot *slot, const struct disk_mount *m, struct err *e)
{
    int helper_fd = -1;
    const struct disk_target to = {s->tree, slot->root, slot->uid, userns_of(s, slot),
                                   slot->pid_fd};
    if (slot->pid_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "its guest has ended");
    if (slot->mounts == NULL && (slot->mounts = calloc(1, sizeof *slot->mounts)) == NULL)
        return err_sys(e, ENOMEM, "begin the mounts");
    int r = disk_mount(s->disks, &to, m, slot->mounts, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return r;
}

static int
process_states(struct spawner *s, struct slot *slot, uint32_t from, uint32_t to, int *fds,
               struct err *e)
{
    int helper_fd = -1;
    if (slot->pid_fd < 0 || slot->layers == NULL || slot->layers->upper == 0)
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layers");
    const struct tree_of p = tree_of(slot);
    int r = tree_states(&p, from, to, fds, &helper_fd, e);
    swap_watch_helper(s, helper_fd);
    return r;
}

// The end of pid 1 ends everything in its pid namespace. Any other process in the cgroup would prevent its removal,
// so it is killed there.
static void
process_kill(struct slot *slot)
{
    struct err ignored; // ENOENT: the cgroup was not made yet
    if (slot->pid_fd >= 0)
        (void)syscall(SYS_pidfd_send_signal, slot->pid_fd, SIGKILL, NULL, 0);
    else if (slot->cgroup.fd >= 0)
        (void)cgroup_kill(slot->cgroup.fd, &ignored);
}

static int
process_remove(struct spawner *s, struct slot *slot, struct err *e)
{
    return slot->cgroup.fd < 0 ? 0 : cgroup_remove(&s->cgroups, slot->cgroup.fd, slot->name, e);
}

const struct tier tier_table[SPAWN_TIERS_N] = {
    [SPAWN_TIER_PROCESS] = {"process", process_make, tree_enter, process_figures, process_swap,
                            process_open_layer, process_copy, process_copied, process_adopt,
                            process_drop, process_mount, process_states, process_kill,
                            process_remove},
};

const struct tier *
tier_of(const struct spawner *s, const struct slot *slot)
{
    return &tier_table[tree_root_tier(s->tree, slot->root)];
}
