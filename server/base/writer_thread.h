// SPDX-License-Identifier: Apache-2.0
// A thread that writes for the loop, because a disk is slow, and the way back:
//
//   loop thread:  lock, put into the owner's queue, unlock, signal `wake`  -->  thread: waits for `wake`, takes, writes
//                 done(owner)  <--------- uv_async ---------  writer_thread_done(): something is done
//
// The owner has the queue and the flag that ends the thread, both under `lock`. All functions but writer_thread_done() are for the
// loop thread.
#pragma once

#include <stdbool.h>

#include <uv.h>

#include "proto/err.h"

struct writer_thread {
    uv_mutex_t lock;
    uv_cond_t wake;
    bool started; // also after its end
    // ---- private
    uv_thread_t thread;
    uv_async_t *async; // freed by the loop
    void (*done)(void *owner);
    void *owner;
};

// Makes lock and wake.
void writer_thread_init(struct writer_thread *w);

// Starts the thread, which runs until run(owner) returns. It keeps no loop alive.
int writer_thread_start(struct writer_thread *w, uv_loop_t *loop, void (*run)(void *owner),
                        void (*done)(void *owner), void *owner, struct err *e);

// Has the loop call done(). For the thread.
void writer_thread_done(struct writer_thread *w);

// Sets the owner's flag and waits for the end of the thread. False: it was never started.
bool writer_thread_end(struct writer_thread *w, bool *ends);

// Frees what init and start have made, after the end of the thread.
void writer_thread_free(struct writer_thread *w);
