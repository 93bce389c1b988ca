// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM and SIGHUP for a command that has something to remove when it is interrupted.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct stockade;

extern atomic_int interrupted; // the signal; 0: none

// Starts a thread that waits for the signals, sets `interrupted`, and ends the calls of the handle (stockade_interrupt). Stop it
// before the handle is closed. False: there is no thread, and a signal ends the command as if nobody watched.
bool interrupt_watch(struct stockade *s, pthread_t *thread);
void interrupt_stop(pthread_t thread);
