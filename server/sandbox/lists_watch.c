// SPDX-License-Identifier: Apache-2.0
// See lists.h.
#include <inttypes.h>
#include <sys/statfs.h>

#include "private.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "spawn.h"
#include "template.h"

enum {
    LOOK_MS = 100,
    EXACT_TURNS = 20, // at least one exact look in so many
    COUNT_REST = 4,   // after a count, so many times as long without one
    // descriptors; a sandbox with few names may have more than one job needs
    FOLDERS_MANY = 16,
    // what a program sends to another arrives before the second
    HIDES_LOOKS = 2,
    NAMES_OF_ROOT = 16384, // in a folder of the host that its jobs may change
    LIST_BYTES_MAX = 512,  // one name of 255 bytes
};
#define LISTS_LOOK (UINT64_C(8) << 20)
#define LISTS_STEP (UINT64_C(16) << 20)
#define LISTS_MAX  (UINT64_C(128) << 20)

// Names that its folders have besides those that count to its limit.
static uint64_t
names_of_others(const struct sandbox *s)
{
    return s->lists.inherited + (s->spec.template->user_root ? (uint64_t)NAMES_OF_ROOT : 0);
}

// Its limit minus what is free, since the upper layer has what the sealed ones leave.
static uint64_t
names_now(const struct sandbox *s)
{
    struct statfs fs;
    const uint64_t limit = s->spec.limits.v[LIMIT_INODES];
    const int fd = s->dirs.fd[SPAWN_FD_DISK];
    const bool known = fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_ffree <= limit;
    return names_of_others(s) + (known ? limit - fs.f_ffree : limit);
}

static void
note_names(struct sandbox *s)
{
    const uint64_t names = names_now(s);
    s->lists.names = names > s->lists.names ? names : s->lists.names;
}

// A list outlives its names, which can be removed between two looks: of one with many open folders they are as many as its limit
// permits. To remove as many as count with few folders takes longer than that.
static uint64_t
may_hold(const struct sandbox *s)
{
    const uint64_t limit = s->spec.limits.v[LIMIT_INODES] + names_of_others(s);
    return s->lists.folders * LIST_BYTES_MAX *
           (s->lists.folders >= FOLDERS_MANY ? limit : s->lists.names);
}

static bool
is_suspect(const struct sandbox *s)
{
    return s->lists.watched && s->state != SANDBOX_DELETING &&
           (s->lists.folders >= FOLDERS_MANY || s->lists.hidden > 0 || may_hold(s) >= LISTS_MAX);
}

static bool
can_ask(const struct sandbox *s)
{
    return s->lists.watched && s->live && s->state != SANDBOX_DELETING;
}

static void
report(struct sandbox *s, uint64_t growth, bool ends)
{
    const struct sandbox_lists what = {growth, LISTS_MAX, s->lists.folders, ends};
    OBSERVERS_NOTIFY(&s->all->observers, lists, s, &what);
}

static void
blame(struct sandbox *s, uint64_t growth)
{
    struct err e;
    report(s, growth, true);
    const struct log_about about = {.sandbox = s->id.id,
                                    .tenant = s->tenant != NULL ? s->tenant->name : NULL};
    (void)err_set(
        &e, ERR_RESOURCE_EXHAUSTED,
        "sandbox %s made the kernel hold lists of names that no memory limit counts, and was "
        "destroyed: %" PRIu64 " MiB more than before on this host, %" PRIu64 " open folders",
        s->id.id, growth >> 20, s->lists.folders);
    err_detail(&e, SANDBOX_KERNEL_MEMORY, s->id.id,
               "close each folder after it was read; a list is held for each open one");
    log_err_about(LOG_WARNING, "kernel-memory", &about, &e);
    metrics_add(METRIC_KERNEL_MEMORY_ENDS, 1);
    s->lists.ends = true;
    s->all->lists.ending++;
    sandbox_destroy(s, &e, NULL);
}

// All have been counted.
static void
judge(struct sandboxes *all)
{
    struct lists *l = &all->lists;
    struct sandbox *worst = NULL, *hides = NULL;
    const uint64_t growth = l->now - l->low;
    const uint64_t now_ns = uv_hrtime();
    uint64_t suspects = 0;
    l->again_ns = now_ns + COUNT_REST * (now_ns - l->began_ns);
    if (l->ending > 0 || l->stale)
        return; // what it held is being freed, or was since
    list_each(it, &all->owned)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (!is_suspect(s))
            continue;
        suspects++;
        if (worst == NULL || may_hold(s) > may_hold(worst))
            worst = s;
        if (s->lists.hidden > 0 && (hides == NULL || s->lists.hides_for > hides->lists.hides_for))
            hides = s;
    }
    const bool may_be_worst = suspects > 0 && may_hold(worst) >= growth / (2 * suspects);
    if (suspects > 0 && growth < LISTS_MAX) {
        if (may_be_worst)
            report(worst, growth, false);
        return;
    }
    if (may_be_worst)
        blame(worst, growth);
    else if (hides == NULL)
        l->low = l->now; // it is the host's own, or all of them together cannot hold half of it
    else if (hides->lists.hides_for >= HIDES_LOOKS)
        blame(hides, growth);
}

// False: the spawner hangs, or is going; the next look tries again.
static bool
ask(struct sandbox *s, enum spawn_lists what, spawn_done *done)
{
    struct err e;
    if (spawn_lists(s->all->srv->spawn, s->slot, s->generation, what, done, s, &e) < 0)
        return false;
    sandbox_hold(s);
    s->all->lists.asked++;
    return true;
}

static spawn_done on_counted;

// One after the other, so that other requests to the spawner need not wait for all of them. False: none is left.
static bool
count_next(struct sandboxes *all)
{
    list_each(it, &all->owned)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        const bool due = s->lists.due && can_ask(s);
        s->lists.due = false;
        if (due && ask(s, SPAWN_LISTS_FOLDERS, on_counted))
            return true;
    }
    return false;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_counted(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    struct sandboxes *all = s->all;
    (void)fds;
    s->lists.folders = reply->ok != 0 ? reply->amount : 0;
    s->lists.hidden = reply->ok != 0 ? reply->hidden : 0;
    s->lists.hides_for = s->lists.hidden > 0 ? s->lists.hides_for + 1 : 0;
    all->lists.asked--;
    if (!count_next(all))
        judge(all);
    sandbox_let_go(s);
}

static void
count_all(struct sandboxes *all)
{
    all->lists.began_ns = uv_hrtime();
    list_each(it, &all->owned) list_entry(it, struct sandbox, node)->lists.due = true;
    (void)count_next(all);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_exact(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    struct lists *l = &s->all->lists;
    (void)fds;
    l->asked--;
    if (reply->ok != 0) {
        l->now = reply->amount;
        l->low = l->low == 0 || l->now < l->low ? l->now : l->low;
        l->slabs = l->slabs_now;
        const uint64_t growth = l->now - l->low;
        if (growth >= LISTS_MAX || (growth >= LISTS_STEP && uv_hrtime() >= l->again_ns))
            count_all(s->all);
    }
    sandbox_let_go(s);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_slabs(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    struct lists *l = &s->all->lists;
    (void)fds;
    l->asked--;
    if (reply->ok != 0) {
        l->slabs_now = reply->amount;
        l->slabs = l->slabs_now < l->slabs ? l->slabs_now : l->slabs;
        const bool grew = l->slabs_now - l->slabs >= LISTS_LOOK || l->now - l->low >= LISTS_MAX;
        if ((l->turn++ % EXACT_TURNS == 0 || grew) && can_ask(s) &&
            ask(s, SPAWN_LISTS_UNCHARGED, on_exact))
            l->stale = false;
    }
    sandbox_let_go(s);
}

static void
look(void *cookie)
{
    struct sandboxes *all = cookie;
    struct lists *l = &all->lists;
    struct sandbox *any = NULL;
    (void)loop_timer_start(all->srv->loop, &l->timer, LOOK_MS, look, all);
    list_each(it, &all->owned)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (!can_ask(s))
            continue;
        note_names(s);
        any = s;
    }
    if (any != NULL && l->asked == 0)
        (void)ask(any, SPAWN_LISTS_SLABS, on_slabs); // of the host: any one will do
}

void
lists_watch(struct sandbox *s)
{
    struct lists *l = &s->all->lists;
    if (s->lists.watched)
        return;
    s->lists.watched = true;
    if (l->watched++ > 0)
        return;
    l->low = l->now = l->slabs = 0;
    l->turn = 0;
    if (loop_timer_start(s->all->srv->loop, &l->timer, 0, look, s->all) < 0)
        log_event(LOG_ERROR, "kernel-memory", "out of memory: lists of names are not bounded");
}

void
lists_inherit(struct sandbox *s, const struct sandbox *from)
{
    s->lists.inherited = from != NULL ? names_now(from) : s->spec.limits.v[LIMIT_INODES];
}

void
lists_forget(struct sandbox *s)
{
    struct lists *l = &s->all->lists;
    if (s->lists.ends) {
        l->ending--;
        l->stale = true; // else the next in the list would end for what is freed
    }
    if (s->lists.watched && --l->watched == 0)
        loop_timer_stop(&l->timer);
    s->lists = (struct lists_of){0};
}
