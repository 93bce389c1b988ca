// SPDX-License-Identifier: Apache-2.0
// Records of jobs that have ended, packed, for `stockade inspect`: of each caller the last RECORDS_PER_TENANT, as far as
// they fit into RECORDS_BYTES_PER_TENANT, and no more than RECORDS_BYTES in all; the oldest go first. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record_store;

enum {
    RECORDS_PER_TENANT = 1000,
    RECORDS_BYTES_PER_TENANT = 8 * 1024 * 1024,
    RECORDS_BYTES = 64 * 1024 * 1024,
};

// Owned: record_store_free(). NULL without memory.
struct record_store *record_store_new(void);
void record_store_free(struct record_store *st);

// Keeps n bytes (a packed GetRecordResponse) about a job; bytes is taken (malloc), also when it cannot be kept (false: no memory).
bool record_store_add(struct record_store *st, const char *tenant, const char *process_id,
                      uint8_t *bytes, size_t n);

// The newest of a tenant (NULL: of any) whose id begins so; *several goes up with each that does. NULL: none. Borrowed
// until the next add.
const uint8_t *record_store_find(const struct record_store *st, const char *tenant,
                                 const char *beginning, size_t *n, uint32_t *several);
