// SPDX-License-Identifier: Apache-2.0
// Folders of the host that sandboxes may have mounted, because the template of their root lists them. Each is a mount that the reader
// opened once, when the configuration was read, and that lies among the open disks (disk.h) as long as its root exists: nobody looks
// its path up again, so a name on the host that leads elsewhere later has no effect. What was mounted below it is not part of it.
//
// Ids. All files are nobody's in a sandbox: its jobs can read and execute what everybody on the host can, and the kernel refuses
// them to write, also to unix sockets and FIFOs (HAS_UNMAPPED_ID in fs/namei.c). Where jobs may write, the folder's owner and
// group are the job's ids there, and all other ids are nobody's. Root inside has no capability over nobody's files.
#pragma once

#include "disk.h"
#include "ops.h"

struct spawner;

// The folders of a root that is being added; takes no descriptor. On failure there is none of them.
int disk_hosts_add(struct spawner *s, uint32_t root, const struct spawn_root *r, const int *fds,
                   struct err *e);

// Unmounts those whose root does not exist any more. Costs nothing while there are none.
void disk_hosts_sweep(struct spawner *s);

// A folder of a root by its id, for disk_mount(): fills in m->disk, and m->userns_fd, owned. job: the host's id of the sandbox's job.
// NOT_FOUND, PERMISSION_DENIED: see SPAWN_MOUNT.
struct disk_host_user {
    uint32_t root;
    uint32_t first, job; // ids on the host: the first one of the sandbox, and the jobs'
};
int disk_host_find(struct spawner *s, const struct disk_host_user *who, const uint8_t id[16],
                   struct disk_mount *m, struct err *e);
