// SPDX-License-Identifier: Apache-2.0
// The walk of a comparison (diff.c), for Diff and DiffFile.
#pragma once

#include "methods.h"
#include "path.h"
#include "states.h"
#include "stockade/v1/snapshot_service.pb-c.h"

enum { DIFF_PAGE_MAX = 1000 };

// A file that differs, with its path behind it.
struct change {
    Stockade__V1__Change m;
    struct described before, after;
};

struct diff {
    struct op *op;
    struct states states;
    char path[FILES_PATH_MAX]; // where it is: absolute
    size_t max, bytes;
    bool full; // there is more
    size_t n;
    struct change *change[DIFF_PAGE_MAX]; // owned: n of them
};

// Compares a file or folder of the states and all that it holds; "" or "/": everything. after: the last path of the page before,
// or "". INVALID_ARGUMENT: a path.
int diff_walk(struct diff *d, const ProtobufCBinaryData *path, const ProtobufCBinaryData *after,
              struct err *e);
void diff_free(struct diff *d);
