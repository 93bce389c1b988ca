// SPDX-License-Identifier: Apache-2.0
// Makes an ext4 file system in an image, with mkfs.ext4(8) of the host.
#pragma once

#include "order.h"

enum { FORMAT_BLOCK = 4096 };

// Whether mkfs.ext4 is installed. FAILED_PRECONDITION if not.
int format_probe(struct err *e);

// The size of an image whose files can have as many bytes and inodes as the order says.
uint64_t format_size(const struct disk_order *o);

// Formats it. The program runs without any right but to this file, which is its own meanwhile: under an id that nothing else
// has, without capabilities and network, with limits.
int format_run(int file, const struct disk_order *o, struct err *e);
