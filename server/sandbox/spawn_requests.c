// SPDX-License-Identifier: Apache-2.0
// See spawn.h: one function per operation, which fills in a request of ops.h. spawn.c sends it.
#include "spawn.h"

#include <string.h>

#include "spawn_private.h"

int
spawn_create(struct spawn *s, const uint8_t id[16], uint32_t root,
             const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {.op = SPAWN_CREATE, .arg = root, .limits = *limits};
    memcpy(q.id, id, sizeof q.id);
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_limit(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_limits *limits,
            spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_LIMIT, .slot = slot, .generation = generation, .limits = *limits};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_freeze(struct spawn *s, uint32_t slot, uint32_t generation, bool frozen, spawn_done *done,
             void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_FREEZE, .slot = slot, .generation = generation, .arg = frozen};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_still(struct spawn *s, uint32_t slot, uint32_t generation, bool still, spawn_done *done,
            void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_FREEZE, .slot = slot, .generation = generation, .arg = still ? 2 : 0};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_copy(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_copy *copy,
           spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_COPY,
        .slot = slot,
        .generation = generation,
        .arg = copy->from,
        .other = copy->below,
        .from_slot = copy->other,
        .from_generation = copy->other_generation,
        .limits = {.disk_bytes = copy->bytes, .inodes = copy->inodes},
    };
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_unseal(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_unsealing *u,
             spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {
        .op = SPAWN_UNSEAL,
        .slot = slot,
        .generation = generation,
        .other = u->below,
        .limits = {.disk_bytes = u->bytes, .inodes = u->inodes},
    };
    memcpy(q.digest, u->digest, sizeof q.digest);
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_copied(struct spawn *s, uint32_t slot, uint32_t generation, const uint32_t layers[2],
             spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_COPIED,
                                    .slot = slot,
                                    .generation = generation,
                                    .arg = layers[0],
                                    .other = layers[1]};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_hold(struct spawn *s, uint32_t slot, uint32_t generation, bool held, spawn_done *done,
           void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_HOLD, .slot = slot, .generation = generation, .arg = held};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_lists(struct spawn *s, uint32_t slot, uint32_t generation, enum spawn_lists what,
            spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_LISTS, .slot = slot, .generation = generation, .arg = what};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_kill_job(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t job, spawn_done *done,
               void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_KILL_JOB, .slot = slot, .generation = generation, .arg = job};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_destroy(struct spawn *s, uint32_t slot, uint32_t generation, bool off, spawn_done *done,
              void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_DESTROY, .slot = slot, .generation = generation, .arg = off};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_net_open(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done, void *cookie,
               struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_NET_OPEN, .slot = slot, .generation = generation};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_net_dial(struct spawn *s, uint32_t slot, uint32_t generation, uint16_t port, spawn_done *done,
               void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_NET_DIAL, .slot = slot, .generation = generation, .arg = port};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_watch(struct spawn *s, bool attached, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_WATCH, .arg = attached};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_relay(struct spawn *s, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_RELAY};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_read(struct spawn *s, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_READ};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_unroot(struct spawn *s, uint32_t root, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_UNROOT, .arg = root};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_seal(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done, void *cookie,
           struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_SEAL, .slot = slot, .generation = generation};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_restore(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer, spawn_done *done,
              void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_RESTORE, .slot = slot, .generation = generation, .arg = layer};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_inherit(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_source *from,
              spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_INHERIT,
                                    .slot = slot,
                                    .generation = generation,
                                    .arg = from->layer,
                                    .from_slot = from->slot,
                                    .from_generation = from->generation};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_reset(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t stays, spawn_done *done,
            void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_RESET, .slot = slot, .generation = generation, .arg = stays};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_drop(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer, spawn_done *done,
           void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_DROP, .slot = slot, .generation = generation, .arg = layer};
    return spawn_ask(s, &q, done, cookie, e);
}

static int
ask_disk(struct spawn *s, uint32_t op, const struct spawn_disk *disk,
         const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {.op = op, .arg = disk->kind};
    memcpy(q.id, disk->id, sizeof q.id);
    if (limits != NULL)
        q.limits = *limits;
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_disk_make(struct spawn *s, const struct spawn_disk *disk, uint64_t bytes, uint32_t inodes,
                spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_limits limits = {.disk_bytes = bytes, .inodes = inodes};
    return ask_disk(s, SPAWN_DISK_MAKE, disk, &limits, done, cookie, e);
}

int
spawn_disk_open(struct spawn *s, const struct spawn_disk *disk, spawn_done *done, void *cookie,
                struct err *e)
{
    return ask_disk(s, SPAWN_DISK_OPEN, disk, NULL, done, cookie, e);
}

int
spawn_disk_remove(struct spawn *s, const struct spawn_disk *disk, spawn_done *done, void *cookie,
                  struct err *e)
{
    return ask_disk(s, SPAWN_DISK_REMOVE, disk, NULL, done, cookie, e);
}

int
spawn_disk_close(struct spawn *s, uint32_t number, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_DISK_CLOSE, .arg = number};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_mount(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_mount *m,
            spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {.op = SPAWN_MOUNT,
                              .slot = slot,
                              .generation = generation,
                              .arg = m->disk,
                              .read_only = m->read_only};
    const size_t n = strlen(m->at);
    if (n >= sizeof q.at)
        return err_field(e, "path", "longer than %d bytes", SPAWN_AT_MAX - 1);
    memcpy(q.at, m->at, n + 1);
    q.other = m->host != NULL;
    if (m->host != NULL)
        memcpy(q.id, m->host, sizeof q.id);
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_keep(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t layer, spawn_done *done,
           void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_KEEP, .slot = slot, .generation = generation, .arg = layer};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_keeper(struct spawn *s, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_KEEPER};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_fetcher(struct spawn *s, uint32_t seconds, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_FETCHER, .arg = seconds};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_adopt(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_kept *kept,
            spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {
        .op = SPAWN_ADOPT, .slot = slot, .generation = generation, .arg = kept->below};
    memcpy(q.digest, kept->digest, sizeof q.digest);
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_states(struct spawn *s, uint32_t slot, uint32_t generation, const uint32_t layers[2],
             spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_STATES,
                                    .slot = slot,
                                    .generation = generation,
                                    .arg = layers[0],
                                    .other = layers[1]};
    return spawn_ask(s, &q, done, cookie, e);
}

int
spawn_graft(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_source *from,
            spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_GRAFT,
                                    .slot = slot,
                                    .generation = generation,
                                    .arg = from->layer,
                                    .other = from->below,
                                    .from_slot = from->slot,
                                    .from_generation = from->generation};
    return spawn_ask(s, &q, done, cookie, e);
}
