// SPDX-License-Identifier: Apache-2.0
// See interrupt.h.
#include "interrupt.h"

#include <signal.h>

#include "client/stockade.h"

atomic_int interrupted;

// A shell ignores SIGINT for commands in the background, and nohup(1) SIGHUP.
static void
add_unless_ignored(sigset_t *set, int number)
{
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        (void)sigaddset(set, number);
}

static sigset_t ours, before; // the signals, and what was blocked; written before the thread starts

static void *
wait_for_signal(void *handle)
{
    int signal = 0;
    for (;;)
        if (sigwait(&ours, &signal) == 0) {
            atomic_store(&interrupted, signal);
            stockade_interrupt(handle);
        }
    return NULL;
}

bool
interrupt_watch(struct stockade *s, pthread_t *thread)
{
    (void)sigemptyset(&ours);
    add_unless_ignored(&ours, SIGINT);
    add_unless_ignored(&ours, SIGTERM);
    add_unless_ignored(&ours, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &ours, &before);
    if (pthread_create(thread, NULL, wait_for_signal, s) == 0)
        return true;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return false;
}

void
interrupt_stop(pthread_t thread)
{
    (void)pthread_cancel(thread);
    (void)pthread_join(thread, NULL);
}
