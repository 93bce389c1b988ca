// SPDX-License-Identifier: Apache-2.0
// A template's profiles as a file: what the broker keeps in its folder, and what export gives and import takes.
//
//   "STKPROF" 2 | flags u32 | runs u32 | version u32 | executables u32 | frozen, seconds since 1970 u64
//   length of the template's name u8, the name
//   per executable: inode, size, magic u64 | owner u32 | execs u64 | runs, surprise u32 | length of the path u16, the path
//                   bits set u32 | form u8: 0 distances (LEB128), 1 the whole bitset | bytes
//   BLAKE2b-256 of all before
//
// Little-endian. The sum finds what broke on the way; a file is no more to be trusted for it. Everything is checked before
// anything is used.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../bpf/watch.h"
#include "../proto/err.h"

enum {
    IMAGE_BYTES_MAX = 3 << 20,
    IMAGE_EXES_MAX = 1024,
    IMAGE_FROZEN = 1,    // flag: it was frozen
    IMAGE_OWN_FILES = 2, // flag: jobs executed files of their own
};

struct image_head {
    uint32_t flags, runs, version, exes;
    uint64_t frozen_s;
    char template[64];
};

struct image_exe {
    struct watch_exe_key key; // .template is not in the file: 0
    uint64_t execs;
    uint32_t runs, surprise; // see anomaly_profiles.h; WATCH_WINDOW at most
    char path[WATCH_PATH];
    uint32_t bits_n;
};

// Takes it apart. `fn` gets each executable with its bits (both borrowed) once the whole file was found to be right; it
// may be NULL. INVALID_ARGUMENT, with what is wrong and where.
int image_read(const uint8_t *bytes, size_t n, struct image_head *head,
               void (*fn)(void *cookie, const struct image_exe *exe,
                          const struct watch_profile *bits),
               void *cookie, struct err *e);

// Puts one together. image_begin() and image_end() around head->exes times image_add(). RESOURCE_EXHAUSTED beyond
// IMAGE_BYTES_MAX; then, and in the end, free(w->bytes) is the caller's.
struct image_writer {
    uint8_t *bytes;
    size_t n, room;
};
int image_begin(struct image_writer *w, const struct image_head *head, struct err *e);
int image_add(struct image_writer *w, const struct image_exe *exe, const struct watch_profile *bits,
              struct err *e);
int image_end(struct image_writer *w, struct err *e);

uint32_t image_count(const struct watch_profile *bits);
