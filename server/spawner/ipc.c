// SPDX-License-Identifier: Apache-2.0
// See ipc.h. The spawner itself enters the namespace, for a few calls without side effects, because a helper would take ten
// times as long. If it could not come back it would go on there, which only its own IPC would notice: it has none.
#include "ipc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include "proto/auto.h"
#include "tree_mount.h"

enum { ENTRIES_BYTES = 4096, TURNS_MAX = 4096 };

union semun {
    struct seminfo *info;
    struct semid_ds *set;
};

int
ipc_open(int pid_fd, int home_fd, struct err *e)
{
    if (setns(pid_fd, CLONE_NEWIPC) < 0)
        return err_sys(e, errno, "enter the IPC namespace");
    int auto_close mount =
        mount_new("mqueue", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    int fd = mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int sys = errno;
    if (setns(home_fd, CLONE_NEWIPC) < 0) {
        sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return err_sys(e, sys, "leave the IPC namespace");
    }
    return mount < 0 ? mount : fd < 0 ? err_sys(e, sys, "open the folder of queues") : fd;
}

// 1: some were removed; 0: there is none.
static int
remove_listed(int folder_fd, const char *buffer, long n, struct err *e)
{
    int any = 0;
    for (long at = 0; at < n;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(folder_fd, entry->d_name, 0) < 0)
            return err_sys(e, errno, "remove a message queue");
        any = 1;
    }
    return any;
}

static int
clear_queues(int folder_fd, struct err *e)
{
    _Alignas(struct dirent64) char buffer[ENTRIES_BYTES];
    for (int turn = 0; turn < TURNS_MAX; turn++) {
        long n =
            lseek(folder_fd, 0, SEEK_SET) < 0 ? -1 : getdents64(folder_fd, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(e, errno, "list the message queues");
        int r = remove_listed(folder_fd, buffer, n, e);
        if (r <= 0)
            return r;
    }
    return err_set(e, ERR_INTERNAL, "the message queues do not become fewer");
}

// Each kind: how many there are, the highest index in use, and the removal of the one at an index.

static int
queues(int *used)
{
    struct msginfo info = {0};
    int highest = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&info);
    *used = highest < 0 ? -1 : info.msgpool;
    return highest;
}

static int
remove_queue(int index)
{
    struct msqid_ds of;
    int id = msgctl(index, MSG_STAT, &of);
    return id < 0 ? id : msgctl(id, IPC_RMID, NULL);
}

static int
sets(int *used)
{
    struct seminfo info = {0};
    int highest = semctl(0, 0, SEM_INFO, (union semun){.info = &info});
    *used = highest < 0 ? -1 : info.semusz;
    return highest;
}

static int
remove_set(int index)
{
    struct semid_ds of;
    int id = semctl(index, 0, SEM_STAT, (union semun){.set = &of});
    return id < 0 ? id : semctl(id, 0, IPC_RMID);
}

static int
segments(int *used)
{
    struct shm_info info = {0};
    int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
    *used = highest < 0 ? -1 : info.used_ids;
    return highest;
}

static int
remove_segment(int index)
{
    struct shmid_ds of;
    int id = shmctl(index, SHM_STAT, &of);
    return id < 0 ? id : shmctl(id, IPC_RMID, NULL);
}

static const struct kind {
    int (*count)(int *used);
    int (*remove)(int index);
    const char *name;
} kinds[] = {
    {queues, remove_queue, "message queues"},
    {sets, remove_set, "semaphores"},
    {segments, remove_segment, "shared memory"},
};

static int
clear_kind(const struct kind *k, struct err *e)
{
    int used = 0;
    int highest = k->count(&used);
    if (used == 0)
        return 0;
    for (int i = 0; i <= highest; i++)
        (void)k->remove(i); // not every index is in use
    (void)k->count(&used);
    return used == 0 ? 0 : err_sys(e, errno, "remove %s", k->name);
}

int
ipc_clear(int pid_fd, int home_fd, int folder_fd, struct err *e)
{
    int r = clear_queues(folder_fd, e);
    if (r < 0)
        return r;
    if (setns(pid_fd, CLONE_NEWIPC) < 0)
        return err_sys(e, errno, "enter the IPC namespace");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && r == 0; i++)
        r = clear_kind(&kinds[i], e);
    if (setns(home_fd, CLONE_NEWIPC) < 0)
        return err_sys(e, errno, "leave the IPC namespace");
    return r;
}
