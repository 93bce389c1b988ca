// SPDX-License-Identifier: Apache-2.0
// The broker's end of a kernel's socket: frames in both directions (kernel.h). Embedded in its owner. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "kernel.h"

struct loop_poll;

struct kernel_link {
    int fd; // -1: closed
    struct loop_poll *poll;
    uint8_t *in, *out; // owned: [in_at, in_n) was read, [out_at, out_n) is queued
    size_t in_at, in_n, out_at, out_n;
    bool held;
    void (*wake)(void *cookie); // kernel_link_next() may return something
    void *cookie;
};

// Makes the socket pair. *child is the kernel's end, *owned* by the caller. On failure the link is closed.
int kernel_link_open(struct kernel_link *l, uv_loop_t *loop, void (*wake)(void *cookie),
                     void *cookie, int *child, struct err *e);
// Does nothing if it is closed.
void kernel_link_close(struct kernel_link *l);

// Sends a frame, or queues the rest of it. RESOURCE_EXHAUSTED: an earlier one is still queued. UNAVAILABLE: it has ended.
int kernel_link_send(struct kernel_link *l, const char *kind, uint64_t run, const void *payload,
                     size_t n, struct err *e);

// The same without a payload and with a descriptor, which is *owned* by this, also on failure. Nothing is queued.
int kernel_link_send_fd(struct kernel_link *l, const char *kind, int fd, struct err *e);

// The next frame; its payload is valid until the next call. 1: *out; 0: none now; -EPIPE: the kernel has closed it; other
// negative, with *e: it broke the protocol.
int kernel_link_next(struct kernel_link *l, struct kernel_frame *out, struct err *e);

// While it is held, nothing is read and `wake` is not called.
void kernel_link_hold(struct kernel_link *l, bool held);

// The kernel has ended: what was sent until now can be read, and then it is closed, also if another process has its end.
void kernel_link_ended(const struct kernel_link *l);

// No frame is being read: frees the buffers.
void kernel_link_rest(struct kernel_link *l);
