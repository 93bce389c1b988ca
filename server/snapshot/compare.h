// SPDX-License-Identifier: Apache-2.0
// What differs between two layers of a sandbox, a page at a time. As SnapshotService.Diff: the spawner mounts both states,
// and stockade-files compares them inside the sandbox with the rights of its jobs. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "stockade/v1/snapshot_service.pb-c.h"

struct compare;
struct sandbox;

enum { COMPARE_PATH_MAX = 4095 };

struct compare_want {
    uint32_t from, to;    // layers; `to` 0: the files of now
    const uint8_t *after; // next_page_token of the page before
    size_t after_n;       // 0: the first page; at most COMPARE_PATH_MAX
    uint32_t changes_max; // 1 to 1000
};

// A page, and the same as bytes: hostile, checked like a message of a client, and borrowed.
struct compare_page {
    const Stockade__V1__SnapshotServiceDiffResponse *message;
    const void *bytes;
    size_t n;
};

// done is called once, later, with a page or with the failure, unless compare_drop() comes before.
typedef void compare_done(void *cookie, const struct compare_page *page, const struct err *e);
int compare_begin(struct sandbox *s, const struct compare_want *want, compare_done *done,
                  void *cookie, struct compare **out, struct err *e);
void compare_drop(struct compare *c); // accepts NULL
