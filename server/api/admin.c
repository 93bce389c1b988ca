// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AdminService: the broker's database, as a stream of bytes from a file without a name; and the key of the audit log.
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

#include "api.h"
#include "convert.h"
#include "server/audit/audit.h"
#include "server/base/server.h"
#include "server/state/state.h"
#include "stockade/v1/access_service.pb-c.h"

enum { PIECE_BYTES = 32 * 1024 };

struct backup {
    struct call *call; // NULL: it was cancelled while the copy was being made
    int fd;            // -1: the copy is being made
    off_t sent;
    uint8_t piece[PIECE_BYTES];
};

static void
backup_free(struct backup *b)
{
    if (b->fd >= 0)
        (void)close(b->fd);
    free(b);
}

// Sends as much as the caller has credit for. The file was written a moment ago, so reading it does not wait for the disk.
static void
send_more(void *cookie)
{
    struct backup *b = cookie;
    Stockade__V1__BackupResponse m = STOCKADE__V1__BACKUP_RESPONSE__INIT;
    struct err e;
    int r = 0;
    for (;;) {
        const ssize_t n = pread(b->fd, b->piece, sizeof b->piece, b->sent);
        if (n <= 0) {
            r = n < 0 ? err_sys(&e, errno, "read the copy of the state") : 0;
            break;
        }
        m.data = (ProtobufCBinaryData){.data = b->piece, .len = (size_t)n};
        r = call_send(b->call, &m.base);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            (void)err_sys(&e, -r, "send the copy of the state");
            break;
        }
        b->sent += n;
    }
    if (r < 0)
        call_fail(b->call, &e);
    else
        call_end(b->call);
    backup_free(b);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct backup *b = cookie;
    (void)why;
    b->call = NULL;
    if (b->fd >= 0)
        backup_free(b);
}

static void
on_copied(void *cookie, int fd, uint64_t bytes, const struct err *e)
{
    struct backup *b = cookie;
    (void)bytes;
    b->fd = fd;
    if (b->call != NULL && e == NULL) {
        send_more(b);
        return;
    }
    if (b->call != NULL)
        call_fail(b->call, e);
    backup_free(b);
}

static void
backup(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    struct backup *b = calloc(1, sizeof *b);
    (void)req;
    if (b == NULL) {
        convert_no_memory(c);
        return;
    }
    b->call = c;
    b->fd = -1;
    if (state_copy(s->state, on_copied, b, &e) < 0) {
        call_fail(c, &e);
        backup_free(b);
        return;
    }
    call_watch(c, on_cancel, send_more, b);
}

// ---- the key of the audit log

// A wait for another key.
struct rekeying {
    struct audit_rekey wait; // must be first
    struct server *server;
    struct call *call;
};

// The public keys. NULL: the arena is full.
static Stockade__V1__AuditKey **
list_keys(struct audit *audit, struct arena *a, size_t *n)
{
    uint8_t keys[AUDIT_KEYS_MAX][AUDIT_KEY];
    *n = audit_public_keys(audit, keys);
    Stockade__V1__AuditKey **all = a != NULL ? arena_alloc(a, (*n + 1) * sizeof(void *)) : NULL;
    for (size_t i = 0; all != NULL && i < *n; i++) {
        char *text = arena_alloc(a, 2 * AUDIT_KEY + 1);
        char *id = arena_alloc(a, 2 * AUDIT_KEY_ID + 1);
        all[i] = wire_make(a, &stockade__v1__audit_key__descriptor);
        if (text == NULL || id == NULL || all[i] == NULL)
            return NULL;
        all[i]->key = sodium_bin2hex(text, 2 * AUDIT_KEY + 1, keys[i], AUDIT_KEY);
        all[i]->id = sodium_bin2hex(id, 2 * AUDIT_KEY_ID + 1, keys[i], AUDIT_KEY_ID);
    }
    return all;
}

static void
get_key(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    Stockade__V1__GetAuditKeyResponse m = STOCKADE__V1__GET_AUDIT_KEY_RESPONSE__INIT;
    (void)req;
    if (s->audit == NULL) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "this broker has no audit log");
        call_fail(c, &e);
        return;
    }
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    m.keys = list_keys(s->audit, a, &m.n_keys);
    if (m.keys == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &m.base);
}

static void
on_rekeyed(struct audit_rekey *wait, const struct err *e)
{
    struct rekeying *w = (struct rekeying *)wait;
    Stockade__V1__RotateAuditKeyResponse m = STOCKADE__V1__ROTATE_AUDIT_KEY_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    if (e == NULL)
        m.keys = list_keys(w->server->audit, a, &m.n_keys);
    if (e != NULL)
        call_fail(w->call, e);
    else if (m.keys == NULL)
        convert_no_memory(w->call);
    else
        call_reply(w->call, &m.base);
    free(w);
}

static void
on_rekey_cancelled(void *cookie, enum call_cancel why)
{
    struct rekeying *w = cookie;
    (void)why;
    audit_rekey_forget(w->server->audit, &w->wait);
    free(w);
}

static void
rotate_key(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    struct rekeying *w = calloc(1, sizeof *w);
    (void)req;
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    *w = (struct rekeying){.wait.done = on_rekeyed, .server = s, .call = c};
    if (audit_rekey(s->audit, &w->wait, &e) < 0) {
        free(w);
        call_fail(c, &e);
        return;
    }
    call_watch(c, on_rekey_cancelled, NULL, w);
}

const struct call_method admin_methods[] = {
    {"/stockade.v1.AdminService/GetAuditKey", &stockade__v1__get_audit_key_request__descriptor,
     &stockade__v1__get_audit_key_response__descriptor, get_key},
    {"/stockade.v1.AdminService/RotateAuditKey",
     &stockade__v1__rotate_audit_key_request__descriptor,
     &stockade__v1__rotate_audit_key_response__descriptor, rotate_key},
    {"/stockade.v1.AdminService/Backup", &stockade__v1__backup_request__descriptor,
     &stockade__v1__backup_response__descriptor, backup},
    {0},
};
