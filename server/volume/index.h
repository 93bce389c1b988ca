// SPDX-License-Identifier: Apache-2.0
// The index of volumes: one file per volume, STATE_DIR/volumes/ID, in a folder of the broker. A file that is damaged, or
// of a later version, is reported and kept, with its disk.
#pragma once

#include <stdbool.h>

#include "proto/err.h"
#include "volume.h"

#define INDEX_FOLDER "volumes"

// Writes the record of a volume and waits until it is on the disk: all of it, or nothing.
int index_write(const char *state_dir, const struct volume *v, struct err *e);

// Removes it, and waits as well. Does nothing if there is none.
int index_remove(const char *state_dir, const struct volume *v, struct err *e);

// Calls back for each record that can be read.
void index_read(const char *state_dir, void (*found)(void *cookie, const struct volume *v),
                void *cookie);

// Calls back for each disk of a volume that has no file here.
void index_strays(const char *state_dir, void (*found)(void *cookie, const uint8_t id[16]),
                  void *cookie);
