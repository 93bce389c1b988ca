// SPDX-License-Identifier: Apache-2.0
// Scratch disks (disk/order.h), on which the files of a sandbox are if its root says so: who waits for one.
//
//   birth, or a swap that needs an upper layer  --scratch_wish()-->  waits for a free stockade-disk  ->  stockade-disk makes it
//   ->  the birth or the swap goes on, and attaches the mount in the sandbox, whose mount namespace owns it from then on
//
// No birth of another root waits meanwhile. What a swap or a copy needs is found out again when its disk is there, because
// others of the same sandbox may have come between.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statfs.h>

#include "disk_process.h"
#include "io.h"
#include "spawner.h"

struct scratch_wish {
    struct scratch_wish *next; // of the same slot
    uint32_t number;
    enum { WISH_NEW, WISH_WAITS, WISH_RUNS } state; // a stockade-disk makes it
    struct scratch_size size;
    struct spawn_request request;
    struct answer *answer; // owned; NULL: of a birth
    uint64_t deadline_ns;  // unless of a birth, which has its own
};

// A swap, a copy for a caller, one in the background. The broker takes a swap without an answer for a spawner that hangs.
enum { WISHES_MAX = 4, SWAP_SECONDS = 20 };

static void
wish_drop(struct spawner *s, struct slot *slot, struct scratch_wish *w)
{
    struct scratch_wish **at = &slot->wish;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    s->scratch_waits -= w->state == WISH_WAITS;
    s->scratch_swaps -= w->answer != NULL;
    free(w);
}

static unsigned
wishes(const struct slot *slot)
{
    unsigned n = 0;
    for (const struct scratch_wish *w = slot->wish; w != NULL; w = w->next)
        n++;
    return n;
}

// 1: too many run.
static int
begin(struct spawner *s, const struct slot *slot, struct scratch_wish *w, struct err *e)
{
    const struct tree_layers *l = slot->layers;
    // Of a sandbox that is reset, the first disk, which no job reaches any more.
    const int trim_fd = l != NULL && l->recycled   ? slot->disk_fd
                        : l != NULL && l->top != 0 ? l->under_fd
                                                   : -1;
    int r = disk_process_scratch(s, slot, w->number, &w->size, trim_fd, e);
    s->scratch_waits -= w->state == WISH_WAITS;
    s->scratch_waits += r == 1;
    w->state = r == 0 ? WISH_RUNS : r == 1 ? WISH_WAITS : WISH_NEW;
    return r;
}

int
scratch_wish(struct spawner *s, struct slot *slot, const struct scratch_size *size,
             const struct spawn_request *q, struct answer *a, struct err *e)
{
    static uint32_t number;
    if (wishes(slot) >= WISHES_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "it waits for %d disks already", WISHES_MAX);
    struct scratch_wish *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "wait for a disk");
    w->number = number++;
    w->size = *size;
    w->next = slot->wish;
    slot->wish = w;
    if (q != NULL)
        w->request = *q;
    w->deadline_ns = io_now_ns() + SWAP_SECONDS * UINT64_C(1000000000);
    int r = begin(s, slot, w, e);
    if (r < 0) {
        wish_drop(s, slot, w);
        return r;
    }
    w->answer = a;
    s->scratch_swaps += a != NULL;
    return 0;
}

// What an empty one takes, so that only the sandbox's files are counted.
static void
measure(struct slot *slot)
{
    struct statfs fs;
    slot->scratch_use = (struct tree_in_use){0};
    if (fstatfs(slot->scratch_fd, &fs) < 0)
        return;
    slot->scratch_use.blocks = fs.f_blocks - fs.f_bfree;
    slot->scratch_use.inodes = fs.f_files - fs.f_ffree;
}

// fd < 0: see *why. Takes it.
static void
go_on(struct spawner *s, struct slot *slot, struct scratch_wish *wish, int fd,
      const struct err *why)
{
    struct scratch_wish w = *wish;
    wish_drop(s, slot, wish);
    io_close(&slot->scratch_fd);
    slot->scratch_fd = fd;
    slot->scratch_bytes = w.size.bytes;
    if (fd >= 0)
        measure(slot);
    if (w.answer == NULL)
        birth_with_disk(s, slot, why);
    else if (w.request.op == SPAWN_COPY || w.request.op == SPAWN_UNSEAL)
        copy_with_disk(s, slot, &w.request, w.answer, why);
    else
        swap_with_disk(s, slot, &w.request, w.answer, why);
}

void
scratch_made(struct spawner *s, const struct scratch_run *run, int fd, const struct err *why)
{
    struct err e = *why;
    struct slot *slot = &s->slots[run->slot];
    struct scratch_wish *w = slot->wish;
    while (w != NULL && w->number != run->wish)
        w = w->next;
    // The child uses it, so it is among the low descriptors.
    int low = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_CHILD_MAX);
    if (fd >= 0 && low < 0)
        (void)err_sys(&e, errno, "copy a disk's descriptor");
    io_close(&fd);
    if (w == NULL || w->state != WISH_RUNS)
        io_close(&low);
    else
        go_on(s, slot, w, low, &e);
}

void
scratch_next(struct spawner *s)
{
    for (uint32_t i = 0; i < s->config->slots && s->scratch_waits > 0; i++) {
        struct slot *slot = &s->slots[i];
        struct scratch_wish *next = NULL;
        for (struct scratch_wish *w = slot->wish; w != NULL; w = next) {
            struct err e = {.code = ERR_OK};
            next = w->next;
            int r = w->state == WISH_WAITS ? begin(s, slot, w, &e) : 0;
            if (r == 1)
                return;
            if (r < 0) {
                go_on(s, slot, w, -1, &e);
                break; // it may have changed all
            }
        }
    }
}

static void
too_late(struct spawner *s, struct slot *slot, struct scratch_wish *w)
{
    struct err e;
    (void)err_set(&e, ERR_UNAVAILABLE, "its disk was not ready after %d s", SWAP_SECONDS);
    err_detail(&e, "DISKS_BUSY", NULL, "try again");
    go_on(s, slot, w, -1, &e);
}

int
scratch_look(struct spawner *s)
{
    uint64_t next_ns = UINT64_MAX;
    const uint64_t now_ns = io_now_ns();
    for (uint32_t i = 0; i < s->config->slots && s->scratch_swaps > 0; i++) {
        struct slot *slot = &s->slots[i];
        struct scratch_wish *w = slot->wish;
        while (w != NULL && (w->answer == NULL || w->deadline_ns > now_ns)) {
            if (w->answer != NULL && w->deadline_ns < next_ns)
                next_ns = w->deadline_ns;
            w = w->next;
        }
        if (w == NULL)
            continue;
        too_late(s, slot, w);
        next_ns = now_ns; // the slot may have more of them
    }
    return s->scratch_swaps == 0 ? -1
           : next_ns <= now_ns   ? 0
                                 : (int)((next_ns - now_ns + 999999) / 1000000);
}

void
scratch_forget(struct spawner *s, struct slot *slot)
{
    while (slot->wish != NULL) {
        struct err e;
        struct answer *a = slot->wish->answer;
        wish_drop(s, slot, slot->wish);
        (void)err_set(&e, ERR_CANCELLED, "sandbox %s is being removed", slot->name);
        if (a != NULL)
            answer_err(s, a, &e);
    }
}

void
scratch_drop(struct spawner *s, struct slot *slot)
{
    while (slot->wish != NULL) {
        answer_drop(slot->wish->answer);
        wish_drop(s, slot, slot->wish);
    }
}
