// SPDX-License-Identifier: Apache-2.0
// Packed records of ended jobs, for `stockade inspect`: the last RECORDS_PER_TENANT of each caller, at most
// RECORDS_BYTES_PER_TENANT, and at most RECORDS_BYTES in total; the oldest are dropped first. Loop thread only.
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

// Creates the store. Free it with record_store_free(). NULL: out of memory.
struct record_store *record_store_new(void);
void record_store_free(struct record_store *st);

// Stores n bytes (a packed GetRecordResponse) of a job. Takes ownership of bytes (malloc), also if they cannot be
// stored (false: out of memory).
bool record_store_add(struct record_store *st, const char *tenant, const char *process_id,
                      uint8_t *bytes, size_t n);

// The newest record of a tenant (NULL: of any) with these first digits of its id; *several increases with each match.
// NULL: none. Borrowed until the next add.
const uint8_t *record_store_find(const struct record_store *st, const char *tenant,
                                 const char *beginning, size_t *n, uint32_t *several);
