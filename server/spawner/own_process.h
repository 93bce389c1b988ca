// SPDX-License-Identifier: Apache-2.0
// What the processes beside the sandboxes have in common: relay, reader, keepers, fetchers and stockade-disk.
#pragma once

#include <sys/types.h>

#include "spawner.h"

// In the child, before it gets its descriptors: enters the host's namespaces, because the spawner's mount namespace has a tiny
// root without programs, and its clocks are those of the sandboxes. `spawner`: a struct spawner. False: failed, see errno.
bool own_process_go_home(void *spawner);

// From now on its end is an event of this kind, with the pidfd in the low half. Returns the pidfd, owned. On failure the process was
// killed and is gone, and *e says "watch NAME: ...".
int own_process_watch(const struct spawner *s, pid_t pid, enum event_kind kind, const char *name,
                      struct err *e);

// Whether it has ended. Then it is reaped and pid_fd closed.
bool own_process_ended(const struct spawner *s, int pid_fd);
