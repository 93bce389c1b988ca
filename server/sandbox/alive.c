// SPDX-License-Identifier: Apache-2.0
// See alive.h.
#include "alive.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/notify.h"
#include "pool.h"
#include "server/base/server.h"
#include "spawn.h"

enum { LOOK_MS = 1000 };

struct alive {
    struct server *srv;
    const char *state_dir;
    struct loop_timer *timer;
    uint64_t look_ms;
    bool watched; // systemd expects keep-alive messages
    bool stopped;
    bool served; // the result of the last check
    dev_t state_dev;
    ino_t state_ino;
};

bool
alive_serves(const struct alive *a, struct err *why)
{
    const struct server *srv = a->srv;
    struct stat st;
    if (srv->draining)
        return err_set(why, ERR_UNAVAILABLE, "the broker is shutting down") == 0;
    if (!spawn_answers(srv->spawn))
        return spawn_say_hangs(why) == 0;
    if (lstat(a->state_dir, &st) < 0 || st.st_dev != a->state_dev || st.st_ino != a->state_ino)
        return err_set(why, ERR_FAILED_PRECONDITION,
                       "the state directory %s was removed or replaced: restart the broker",
                       a->state_dir) == 0;
    if (srv->pool != NULL && pool_fails(srv->pool, why)) {
        (void)err_wrap(why, "sandboxes cannot be created");
        return false;
    }
    return true;
}

// A quarter of systemd's interval: sd_watchdog_enabled(3) recommends half.
static bool
is_watched(uint64_t *look_ms)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t us = usec != NULL ? strtoull(usec, NULL, 10) : 0;
    if (us == 0 || (pid != NULL && strtol(pid, NULL, 10) != getpid()))
        return false;
    uint64_t ms = us / 4000;
    if (ms < *look_ms)
        *look_ms = ms > 0 ? ms : 1;
    return true;
}

static void
on_look(void *cookie)
{
    struct alive *a = cookie;
    alive_look(a);
    (void)loop_timer_start(a->srv->loop, &a->timer, a->look_ms, on_look, a);
}

struct alive *
alive_new(struct server *srv, const char *state_dir)
{
    struct alive *a = calloc(1, sizeof *a);
    struct stat st;
    if (a == NULL)
        return NULL;
    *a = (struct alive){.srv = srv, .state_dir = state_dir, .look_ms = LOOK_MS, .served = true};
    metrics_set(METRIC_SERVING, 0, 1);
    if (lstat(state_dir, &st) == 0) {
        a->state_dev = st.st_dev;
        a->state_ino = st.st_ino;
    }
    a->watched = is_watched(&a->look_ms);
    if (loop_timer_start(srv->loop, &a->timer, a->look_ms, on_look, a) == 0)
        return a;
    free(a);
    return NULL;
}

void
alive_look(struct alive *a)
{
    struct err why;
    if (a == NULL || a->stopped)
        return;
    if (a->watched && spawn_answers(a->srv->spawn))
        notify_systemd("WATCHDOG=1");
    bool serves = alive_serves(a, &why);
    if (serves == a->served)
        return;
    a->served = serves;
    metrics_set(METRIC_SERVING, 0, serves);
    if (serves)
        log_event(LOG_INFO, "serving", "again");
    else if (!a->srv->draining)
        log_err(LOG_ERROR, "not-serving", &why);
    if (a->srv->on_serving_change != NULL)
        a->srv->on_serving_change(a->srv->serving_cookie);
}

void
alive_stop(struct alive *a)
{
    if (a == NULL)
        return;
    a->stopped = true;
    loop_timer_stop(&a->timer);
}

void
alive_free(struct alive *a)
{
    alive_stop(a);
    free(a);
}
