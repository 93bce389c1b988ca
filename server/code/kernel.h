// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and a kernel: the interpreter of a context, a process in the sandbox that runs one of the
// programs of server/code/kernel/.
//
// Descriptor 3 of the kernel is one end of an AF_UNIX SOCK_STREAM pair. Both directions carry frames: a line of words that
// are separated by one space, and then as many bytes as the third word says. The words are text because bash cannot read
// other numbers.
//
//   broker                                 kernel
//     | program 0 N\n<its text> ->           | the loader (language.c) executes it
//     |             <- ready 0 0 1\n         |
//     | setup 0 N\n<folder>\0<A=1>... ->     | instead of program and ready: of one that a zygote has forked (zygote.h)
//     |   <- failed 0 N\n<why>               | the folder cannot be entered; it ends
//     | fork 0 0\n, with a socket ->         | it forks a process, which answers on the socket (image.h)
//     | run 7 N\n<the cell> ->               |
//     |   <- stdout 7 N\n<bytes>             | and stderr; bash writes to descriptors 1 and 2 instead
//     |   <- result 7 N m+. MIME\n<bytes>    | m: of the last expression, d: displayed; +: more of this form; .: the last
//     |   <- error 7 N\n<name>\0<value>\0<traceback>
//     |   <- done 7 0 COUNT STATUS\n         | ok, error, interrupted
//     | SIGINT ->                            | interrupts the cell
//
// The code of a cell runs in the kernel itself or beside it under the same uid, so it can write frames of its own. They can
// only say wrong things about this context to the caller who owns it. Each is bounded and checked here before anything looks
// at it, and the broker reads no frame before the one before it was sent to the caller.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    KERNEL_HEAD_MAX = 192,          // bytes of the line
    KERNEL_PAYLOAD_MAX = 48 * 1024, // from the kernel
    KERNEL_CODE_MAX = 1024 * 1024,  // to the kernel
    KERNEL_MIME_MAX = 100,
    KERNEL_ERROR_NAME_MAX = 1000,
    KERNEL_ERROR_VALUE_MAX = 16 * 1000,
    KERNEL_VERSION = 1,
};

enum kernel_kind {
    KERNEL_READY,
    KERNEL_STDOUT,
    KERNEL_STDERR,
    KERNEL_RESULT,
    KERNEL_ERROR,
    KERNEL_FAILED,
    KERNEL_DONE,
    KERNEL_KINDS_N,
};

// Numbers as in stockade.v1.CodeStatus.
enum code_status {
    CODE_NONE,
    CODE_OK,
    CODE_ERROR,
    CODE_INTERRUPTED,
    CODE_CRASHED,
    CODE_TIMEOUT,
    CODE_CANCELLED,
};

// One frame from a kernel. Payload is borrowed from the buffer that it was read from.
struct kernel_frame {
    enum kernel_kind kind;
    uint64_t run;
    const uint8_t *payload;
    size_t n;
    bool main, more, last;          // RESULT
    char mime[KERNEL_MIME_MAX + 1]; // RESULT: visible ASCII
    uint32_t count;                 // DONE
    enum code_status status;        // DONE
};

// Reads the frame at the beginning of n bytes. Returns its length, 0: more bytes are needed; negative, with *e: it is not a
// frame of this protocol. Pure.
int kernel_frame_read(const uint8_t *bytes, size_t n, struct kernel_frame *out, struct err *e);

// The parts of an ERROR's payload, as valid UTF-8 without NUL, terminated; missing ones are "". The texts are written to
// `out`, which must have at least 3 * n + 3 bytes for a payload of n bytes: an invalid byte becomes U+FFFD.
struct kernel_error {
    const char *name, *value, *traceback;
};
void kernel_error_read(const uint8_t *payload, size_t n, char *out, struct kernel_error *e);

// Writes the line of a frame to the kernel; returns its length.
size_t kernel_head(char out[KERNEL_HEAD_MAX], const char *kind, uint64_t run, size_t n);
