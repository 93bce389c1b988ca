// SPDX-License-Identifier: Apache-2.0
// Sends stdin, signals and the size of the terminal to a running job, in a thread of its own, because the main thread
// reads the job's output.
//
//   stdin ----------> Input ... CloseInput      (at most one request in flight; waits while the queue is full)
//   SIGINT, SIGTERM,  1st: Signal to the job's process group; before it runs: the call is cancelled
//   SIGHUP, SIGQUIT   2nd: the call is cancelled     3rd: exits immediately; SIGHUP stays ignored under nohup(1)
//   SIGWINCH -------> Resize
//   stdin that cannot be read: the call is cancelled, because the job has only part of its input
//   stdout was closed by its reader: the call is cancelled, if requested
#pragma once

#include <stdbool.h>

#include "client/stockade.h"

struct feed;

struct feed_options {
    struct stockade *s;
    bool input;    // read stdin
    bool terminal; // the job has a terminal: send its size
    bool signals;  // send signals to the job; false: a signal cancels the call immediately
    bool outlet;   // cancel the call when stdout is closed: without output it would never find out
    bool kills;    // kill the process before the call is cancelled, which would leave it running
};

// Blocks the signals in the calling thread; call it before any other thread is made.
void feed_block_signals(void);

// Starts the thread. NULL: the reason was reported. Free it with feed_stop().
struct feed *feed_start(const struct feed_options *o);

// The job runs with this id.
void feed_started(struct feed *f, const char *process_id);

struct feed_end {
    int signal;      // the first signal that arrived, or 0
    bool cancelled;  // a signal cancelled the job
    int input_error; // the errno of a failed read of stdin, or 0
};

// Ends the thread.
struct feed_end feed_stop(struct feed *f);
