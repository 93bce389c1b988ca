// SPDX-License-Identifier: Apache-2.0
// See interrupt.h.
#include "interrupt.h"

#include <signal.h>

#include "client/stockade.h"

atomic_int interrupted;

static void *
wait_for_signal(void *handle)
{
    sigset_t ours;
    int signal = 0;
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGINT);
    (void)sigaddset(&ours, SIGTERM);
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
    sigset_t ours;
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGINT);
    (void)sigaddset(&ours, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &ours, NULL);
    return pthread_create(thread, NULL, wait_for_signal, s) == 0;
}
