// SPDX-License-Identifier: Apache-2.0
// A template's profiles as a file: one message, Profile of proto/profile.proto.
//
// The sum detects damaged files; it does not make a file trustworthy. A file has bounds (IMAGE_BYTES_MAX, those of
// wire_unpack(), a number of executables), and everything is checked before anything is used.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/watch.h"
#include "proto/err.h"

enum {
    IMAGE_BYTES_MAX = 3 << 20,
    IMAGE_EXES_MAX = 1024,
};

struct image_head {
    uint32_t runs, version, exes;
    bool frozen;       // it was frozen
    bool own_files;    // jobs executed files of their own
    uint64_t frozen_s; // seconds since 1970
    char template[64];
};

struct image_exe {
    struct watch_exe_key key; // .template is not in the file: 0
    uint64_t execs;
    uint32_t runs, surprise; // see profiles.h; WATCH_WINDOW at most
    char path[WATCH_PATH];
};

// Parses a file. `fn` (may be NULL) gets each executable with its bits (both borrowed) after the whole file was
// verified. INVALID_ARGUMENT with the reason and the position.
int image_read(const uint8_t *bytes, size_t n, struct image_head *head,
               void (*fn)(void *cookie, const struct image_exe *exe,
                          const struct watch_profile *bits),
               void *cookie, struct err *e);

// Writes a file: image_begin(), at most head->exes times image_add(), image_end(), which returns the file (*owned*).
// RESOURCE_EXHAUSTED beyond IMAGE_BYTES_MAX. Call image_free() in any case.
struct image_writer;
struct image_writer *image_begin(const struct image_head *head, struct err *e);
int image_add(struct image_writer *w, const struct image_exe *exe, const struct watch_profile *bits,
              struct err *e);
int image_end(struct image_writer *w, uint8_t **bytes, size_t *n, struct err *e);
void image_free(struct image_writer *w); // accepts NULL

uint32_t image_count(const struct watch_profile *bits);
