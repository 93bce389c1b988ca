// SPDX-License-Identifier: Apache-2.0
// Reads the frames of a file of the audit log, one after the other, through a buffer of fixed size. Any thread.
#pragma once

#include "audit.h"

enum { AUDIT_SCAN_BYTES = 256 * 1024 };

struct audit_scan {
    int fd;          // borrowed
    uint8_t *buffer; // owned
    size_t begin, end;
    uint64_t offset; // of the next frame in the file
    uint64_t left;   // at the end: bytes that are no whole frame
};

// Begins at a frame. Free it with audit_scan_close().
int audit_scan_open(struct audit_scan *s, int fd, uint64_t offset, struct err *e);
void audit_scan_close(struct audit_scan *s);

// 1: *f is the next frame, borrowed until the next call; 0: there is none, and `left` bytes are behind the last one; negative: the file
// cannot be read.
int audit_scan_next(struct audit_scan *s, struct audit_frame *f, struct err *e);
