// SPDX-License-Identifier: Apache-2.0
// The table of slots: states, permitted changes, and the list of each state.
//
//   FREE -> QUEUED -> BORN -> LIVE <-> FREEZING <-> FROZEN
//             |        |       |         |            |
//             v        +-------+---------+------------+--> REMOVING -> FREE
//            FREE
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "config.h"
#include "disk_host.h"
#include "ids.h"
#include "io.h"
#include "spawner.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_LEAK_CHECK
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_LEAK_CHECK
#endif
#endif
#ifdef WITH_LEAK_CHECK
#include <sanitizer/lsan_interface.h>
#endif

#define TO(state) (1u << (state))

static const unsigned moves[SLOT_STATES_N] = {
    [SLOT_FREE] = TO(SLOT_QUEUED),
    [SLOT_QUEUED] = TO(SLOT_BORN) | TO(SLOT_FREE),
    [SLOT_BORN] = TO(SLOT_LIVE) | TO(SLOT_REMOVING),
    [SLOT_LIVE] = TO(SLOT_FREEZING) | TO(SLOT_REMOVING),
    [SLOT_FREEZING] = TO(SLOT_LIVE) | TO(SLOT_FROZEN) | TO(SLOT_REMOVING),
    [SLOT_FROZEN] = TO(SLOT_FREEZING) | TO(SLOT_REMOVING),
    [SLOT_REMOVING] = TO(SLOT_FREE),
};

static void
list_remove(struct slot_list *l, struct slot *slot)
{
    if (slot->previous)
        slot->previous->next = slot->next;
    else
        l->head = slot->next;
    if (slot->next)
        slot->next->previous = slot->previous;
    else
        l->tail = slot->previous;
    slot->next = slot->previous = NULL;
}

static void
list_append(struct slot_list *l, struct slot *slot)
{
    slot->previous = l->tail;
    slot->next = NULL;
    if (l->tail)
        l->tail->next = slot;
    else
        l->head = slot;
    l->tail = slot;
}

static void
list_prepend(struct slot_list *l, struct slot *slot)
{
    slot->next = l->head;
    slot->previous = NULL;
    if (l->head)
        l->head->previous = slot;
    else
        l->tail = slot;
    l->head = slot;
}

// BORN is only polled for its deadline.
static struct slot_list *
list_of(struct spawner *s, enum slot_state state)
{
    struct slot_list *const lists[SLOT_STATES_N] = {
        [SLOT_FREE] = &s->free,       [SLOT_QUEUED] = &s->queued,   [SLOT_BORN] = &s->polled,
        [SLOT_FREEZING] = &s->polled, [SLOT_REMOVING] = &s->polled,
    };
    return lists[state];
}

static void
slot_empty(struct slot *slot)
{
    slot->cgroup = CGROUP_SANDBOX_EMPTY;
    slot->pid_fd = slot->disk_fd = slot->channel_fd = slot->socket_fd = slot->net_fd = -1;
    slot->channel_theirs_fd = slot->socket_theirs_fd = slot->userns_low_fd = -1;
    slot->layers = NULL;
    slot->mounts = NULL;
    slot->wish = NULL;
    slot->scratch_fd = -1;
    slot->scratch_use = (struct tree_in_use){0};
    slot->queues_fd = slot->sockets_fd = slot->net_again_fd = -1;
    slot->answer = NULL;
}

// Children never use the table, so their clone does not copy its page tables.
static struct slot *
map_table(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_DONTFORK);
#ifdef WITH_LEAK_CHECK
    // LeakSanitizer otherwise searches only the heap and globals
    __lsan_register_root_region(p, bytes);
#endif
    return p;
}

bool
slots_init(struct spawner *s)
{
    uint32_t n = s->config->slots;
    s->slots = map_table(n * sizeof *s->slots);
    if (!s->slots)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = &s->slots[i];
        slot->number = i;
        slot->uid = config_slot_uid(s->config, i);
        slot->userns_fd = slot->userns_root_fd = slot->kept_userns_fd = -1;
        slot_empty(slot);
        list_append(&s->free, slot);
    }
    return true;
}

void
slots_drop(struct spawner *s)
{
    for (uint32_t i = 0; s->slots && i < s->config->slots; i++) {
        answer_drop(s->slots[i].answer);
        s->slots[i].answer = NULL;
        scratch_drop(s, &s->slots[i]);
        io_close(&s->slots[i].scratch_fd);
        tree_layers_free(s->slots[i].layers);
        s->slots[i].layers = NULL;
        free(s->slots[i].mounts);
        s->slots[i].mounts = NULL;
    }
}

struct slot *
slot_take(struct spawner *s)
{
    for (uint32_t i = 0; i < s->config->slots && s->free.head; i++) {
        struct slot *slot = s->free.head;
        if (ids_take(s, slot))
            return slot;
        list_remove(&s->free, slot);
        list_append(&s->free, slot);
    }
    return NULL;
}

void
slot_move(struct spawner *s, struct slot *slot, enum slot_state to)
{
    assert(moves[slot->state] & TO(to));
    struct slot_list *from_list = list_of(s, slot->state);
    struct slot_list *to_list = list_of(s, to);
    if (from_list)
        list_remove(from_list, slot);
    slot->state = to;
    if (to == SLOT_FREE) {
        ids_give(s, slot);
        tree_root_leave(s->tree, slot->root);
        tree_layers_free(slot->layers);
        disk_leave(s->disks, slot->mounts);
        free(slot->mounts);
        disk_hosts_sweep(s);
        io_close(&slot->scratch_fd);
        io_close(&slot->queues_fd);
        io_close(&slot->sockets_fd);
        io_close(&slot->net_again_fd);
        slot_empty(slot);
        list_prepend(to_list,
                     // reused first: its user namespace exists and its memory is in the cache
                     slot);
    } else if (to_list) {
        list_append(to_list, slot);
    }
}
