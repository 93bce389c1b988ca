// SPDX-License-Identifier: Apache-2.0
// Archives of templates on their way: Push and Load of TemplateService.
//
// Each takes room on the disk, so their number is bounded, and a caller has one at most. So that slow callers cannot keep all others out,
// one of them loses its slot when another caller needs it: the slowest of those which the broker has waited for too long. The time
// in which the broker itself works does not count. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"

struct made_all;

enum {
    ARCHIVES_OF_TENANT = 1,
    ARCHIVES_MAX = 8,
    ARCHIVE_IDLE_MS = 10 * 1000,           // nothing came or went
    ARCHIVE_SLOW_MS = 30 * 1000,           // of waiting, in all; from then on it is slow below
    ARCHIVE_SLOW_BYTES_PER_S = 256 * 1024, // of that time
};

// list_remove() the node at its end.
struct archive {
    struct list node;
    bool loads; // set by who begins it: archive_find() finds it
    // Set by who begins it: ends its call with this error, and frees it.
    void (*cut)(struct archive *a, const struct err *why);
    char tenant[32];
    char id[ID_TEXT_MAX + 1];
    uint64_t bytes;     // that came or went
    uint64_t since_ns;  // the broker waits for the caller; 0: it does not
    uint64_t waited_ns; // before that
};

// Takes a slot. May cut off the transfer of another caller. RESOURCE_EXHAUSTED (TRANSFERS).
int archive_begin(struct made_all *all, const char *tenant, struct archive *a, struct err *e);

// The broker waits for the caller from now on, unless it does already.
void archive_waits(struct archive *a);

// So many bytes came or went; the broker works now.
void archive_moved(struct archive *a, size_t bytes);

// One that loads. NULL: the caller has none with this id.
struct archive *archive_find(struct made_all *all, const char *tenant, const char *id);
