// SPDX-License-Identifier: Apache-2.0
// What a host must have for file systems in images: stockade-disk uses it, and the check of a configuration asks for it.
#pragma once

#define LOOP_CONTROL "/dev/loop-control"

// The path of mkfs.ext4(8). Static; NULL: it is not installed.
const char *loop_disk_mkfs(void);

// Why this host cannot have any, as far as everybody can see. Static; NULL: nothing is missing.
const char *loop_disk_missing(void);
