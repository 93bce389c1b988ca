// SPDX-License-Identifier: Apache-2.0
// The changes of the key, in audit.pub.chain: a packed AuditKeyChain. Proofs carry them, so that the first public key is enough to check
// a record that a later one signed, also when the files with the changes were removed.
//
// A change is added when its checkpoint is on the disk, and before the next key becomes the key. After a kill in between, the start adds
// the one that the log has.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "private.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/base/log.h"

static const Stockade__V1__AuditKeyChain *
unpack(const uint8_t *bytes, size_t n, struct arena *arena, struct err *e)
{
    ProtobufCMessage *m = NULL;
    if (arena == NULL) {
        (void)err_sys(e, ENOMEM, "read the changes of the key");
        return NULL;
    }
    const int r = wire_unpack(&stockade__v1__audit_key_chain__descriptor, bytes, n, arena, &m, e);
    return r == 0 ? (const Stockade__V1__AuditKeyChain *)m : NULL;
}

void
audit_chain_open(struct audit *a)
{
    struct err e;
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    int auto_close fd = open(a->changes_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, a->changes, sizeof a->changes) : 0;
    a->changes_n = n > 0 ? (size_t)n : 0;
    if (a->changes_n == 0 || unpack(a->changes, a->changes_n, arena, &e) != NULL)
        return;
    a->changes_n = 0; // proofs need the later keys then
    (void)err_wrap(&e, "%s", a->changes_path);
    log_err(LOG_ERROR, "audit", &e);
}

static int
write_chain(const struct audit *a, const uint8_t *bytes, size_t n, struct err *e)
{
    char beside[AUDIT_KEY_PATH];
    (void)snprintf(beside, sizeof beside, "%.*s.new", AUDIT_KEY_PATH - 5, a->changes_path);
    (void)unlink(beside);
    int auto_close fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || fchmod(fd, 0644) < 0 || write(fd, bytes, n) != (ssize_t)n || fsync(fd) < 0 ||
        rename(beside, a->changes_path) < 0)
        return err_sys(e, errno != 0 ? errno : EIO, "write %s", a->changes_path);
    return 0;
}

int
audit_chain_add(struct audit *a, struct err *e)
{
    uint8_t bytes[AUDIT_CHAIN_MAX];
    Stockade__V1__AuditKeyChain all = STOCKADE__V1__AUDIT_KEY_CHAIN__INIT;
    Stockade__V1__AuditCheckpoint *each[AUDIT_KEYS_MAX];
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    ProtobufCMessage *m = NULL;
    if (a->change_n == 0 ||
        (a->changes_n > 0 && memmem(a->changes, a->changes_n, a->change, a->change_n) != NULL))
        return 0;
    const Stockade__V1__AuditKeyChain *old = unpack(a->changes, a->changes_n, arena, e);
    if (old == NULL || wire_unpack(&stockade__v1__audit_checkpoint__descriptor, a->change,
                                   a->change_n, arena, &m, e) < 0)
        return err_errno(e);
    const size_t n_old = old->n_rotations;
    for (size_t i = n_old < AUDIT_KEYS_MAX ? 0 : n_old + 1 - AUDIT_KEYS_MAX; i < n_old; i++)
        each[all.n_rotations++] = old->rotations[i];
    each[all.n_rotations++] = (Stockade__V1__AuditCheckpoint *)m;
    all.rotations = each;
    if (stockade__v1__audit_key_chain__get_packed_size(&all) > sizeof bytes)
        return err_set(e, ERR_DATA_LOSS, "%s is damaged: move it away", a->changes_path);
    const size_t n = stockade__v1__audit_key_chain__pack(&all, bytes);
    int r = write_chain(a, bytes, n, e);
    if (r < 0)
        return r;
    uv_mutex_lock(&a->writer.lock);
    memcpy(a->changes, bytes, n);
    a->changes_n = n;
    uv_mutex_unlock(&a->writer.lock);
    return 0;
}

void
audit_chain_note(struct audit *a, const Stockade__V1__AuditCheckpoint *c)
{
    if (stockade__v1__audit_checkpoint__get_packed_size(c) <= sizeof a->change)
        a->change_n = stockade__v1__audit_checkpoint__pack(c, a->change);
}

void
audit_rotations(struct audit *a, struct arena *arena, Stockade__V1__AuditProof *proof)
{
    struct err none;
    uint8_t *bytes = arena_alloc(arena, sizeof a->changes);
    if (bytes == NULL)
        return;
    uv_mutex_lock(&a->writer.lock);
    const size_t n = a->changes_n;
    memcpy(bytes, a->changes, n);
    uv_mutex_unlock(&a->writer.lock);
    const Stockade__V1__AuditKeyChain *all = unpack(bytes, n, arena, &none);
    if (all == NULL || proof->checkpoint == NULL || all->n_rotations < proof->n_rotations)
        return;
    proof->rotations = all->rotations;
    proof->n_rotations =
        audit_rotations_needed(all->rotations, all->n_rotations, proof->checkpoint);
}
