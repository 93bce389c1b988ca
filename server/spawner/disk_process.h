// SPDX-License-Identifier: Apache-2.0
// stockade-disk, the process that makes, mounts or removes one disk (disk/order.h): the spawner's part. The broker's requests
// wait for its answer; the spawner does not.
#pragma once

#include "feature.h"
#include "spawner.h"

// Once, at the start: finds out which kind of disks this host can have, and adds the feature "disks".
void disk_process_probe(struct spawner *s, struct spawn_features *f);

// DISK_MAKE, DISK_OPEN, DISK_REMOVE.
void disk_process_handle(struct spawner *s, struct slot *none, const struct spawn_request *q,
                         struct answer *a);

// Makes a scratch disk for a slot: scratch_made() gets it. It first has what no file needs of the file system at trim_fd (-1: none)
// given back to the host. 1: too many run; FAILED_PRECONDITION: NO_DISKS.
struct scratch_size;
int disk_process_scratch(struct spawner *s, const struct slot *slot, uint32_t wish,
                         const struct scratch_size *size, int trim_fd, struct err *e);

// One of them has answered, or has ended.
void disk_process_heard(struct spawner *s, uint32_t number);

// At the end: kills those that run.
void disk_process_stop(struct spawner *s);
