// SPDX-License-Identifier: Apache-2.0
// See files.h: the operations.
#include "private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/plural.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"
#include "packet.h"

_Static_assert((int)FILES_PACKET_MAX <= (int)PACKET_LINK_IN_MAX, "a packet fits");
_Static_assert((int)FILES_PACKET_MAX <= (int)AGENT_PACKET_MAX, "a request fits");

enum { QUEUE_MAX = 1024, PACKETS_PER_TURN = 8 };

struct files *
files_new(struct server *srv, int program_fd)
{
    struct files *all = calloc(1, sizeof *all);
    if (all == NULL) {
        if (program_fd >= 0)
            (void)close(program_fd);
        return NULL;
    }
    all->srv = srv;
    all->program_fd = program_fd;
    list_init(&all->boxes);
    list_init(&all->holders);
    return all;
}

void
files_free(struct files *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->boxes) box_free(list_entry(it, struct box, node));
    holders_free(all);
    if (all->program_fd >= 0)
        (void)close(all->program_fd);
    free(all);
}

// Frees the operation, and its box if that has no further use.
static void
op_free(struct files_op *op)
{
    struct box *b = op->box;
    carried_end(op);
    op->events = NULL;
    packet_free(op->later);
    op->later = NULL;
    list_remove(&op->of_box);
    idtable_remove(&b->all->table, &op->id);
    b->ops_n--;
    metrics_move(METRIC_FILES, 0, -1);
    if (files_is_transfer(op->method))
        metrics_move(METRIC_FILES_TRANSFERS, 0, -1);
    packet_link_free(&op->link);
    if (b->ops_n == 0 && b->agent == NULL)
        box_free(b);
    else if (b->ops_n == 0)
        box_look_soon(b);
}

void
files_op_finish(struct files_op *op, const struct err *why)
{
    const struct files_events *events = op->events;
    void *cookie = op->cookie;
    op_free(op);
    if (events != NULL)
        events->ended(cookie, why);
}

void
files_drop(struct files_op *op)
{
    op_free(op);
}

// ---- one operation

static int
deliver(struct files_op *op, const struct files_packet *p, struct err *e)
{
    if (p->kind == FILES_MESSAGE) {
        if (files_is_transfer(
                op->method)) // it comes when all was written, and may be the last event
            carried_is_complete(op);
        return op->events->message(op->cookie, p->body, p->body_n, e);
    }
    int r = op->events->data(op->cookie, p->body, p->body_n, e);
    if (r == 0) {
        metrics_add(METRIC_FILES_READ_BYTES, p->body_n);
        carried_add(op, p->body, p->body_n);
    }
    return r;
}

static int
keep_for_later(struct files_op *op, const void *bytes, size_t n, struct err *e)
{
    op->later = packet_new(&op->link.out, n, e);
    if (op->later == NULL)
        return err_errno(e);
    memcpy(op->later->bytes, bytes, n);
    packet_link_hold(&op->link, true);
    return 0;
}

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of packet_link_kind
on_packet(void *owner, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct files_op *op = owner;
    struct files_packet p;
    (void)fd;
    int r = files_packet_read(bytes, n, &p, e);
    if (r < 0)
        return r;
    op->heard_ns = uv_hrtime();
    if (p.kind == FILES_BUSY)
        return 0;
    if (p.kind == FILES_END) {
        if (p.succeeded)
            carried_is_complete(op);
        files_op_finish(op, p.succeeded ? NULL : &p.why);
        return 0;
    }
    r = deliver(op, &p, e);
    return r == -EAGAIN ? keep_for_later(op, bytes, n, e) : r;
}

static void
on_gone(void *owner, const struct err *why)
{
    struct files_op *op = owner;
    struct err e = *why;
    if (op->events == NULL)
        return;
    if (e.code == ERR_UNAVAILABLE && !box_is_ended(op->box, &e)) { // closed without an END
        if (op->box->agent == NULL && op->box->why.code != ERR_OK)
            e = op->box->why;
        else if (op->box->agent == NULL || !agent_out_of_memory(op->box->agent, &e))
            (void)err_set(&e, ERR_UNAVAILABLE, "the program in the sandbox ended");
        metrics_add(METRIC_FILES_CUT_OFF, 1);
        (void)err_wrap(&e, "the operation was cut off");
        if (e.reason[0] == '\0')
            err_detail(&e, "FILES_CUT_OFF", NULL,
                       "a process of the sandbox may have killed it; try again");
    }
    files_op_finish(op, &e);
}

// Without the heads of the packets that are queued.
static void
on_moved(void *owner)
{
    struct files_op *op = owner;
    const struct packets *out = &op->link.out;
    uint64_t queued = out->queued_bytes - out->queued * sizeof(struct files_head);
    op->heard_ns = uv_hrtime();
    if (op->events != NULL && op->events->accepted != NULL)
        op->events->accepted(op->cookie, op->sent - queued);
}

static const struct packet_link_kind kind = {.process = "stockade-files",
                                             .peer = "the sandbox",
                                             .ended = ERR_UNAVAILABLE,
                                             .packet_max = FILES_PACKET_MAX,
                                             .queue_max = QUEUE_MAX,
                                             .queue_bytes_max = (size_t)2 * FILES_QUEUE_BYTES,
                                             .in_max = FILES_PACKET_MAX,
                                             .packets_per_turn = PACKETS_PER_TURN,
                                             .packet = on_packet,
                                             .gone = on_gone,
                                             .moved = on_moved};

void
files_go_on(struct files_op *op)
{
    struct err e;
    if (op->later != NULL) {
        struct files_packet p;
        int r = files_packet_read(op->later->bytes, op->later->n, &p, &e);
        r = r < 0 ? r : deliver(op, &p, &e);
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            files_op_finish(op, &e);
            return;
        }
        packet_free(take_ptr(op->later));
    }
    op->heard_ns = uv_hrtime();
    packet_link_hold(&op->link, false);
}

static int
check_room(const struct files *all, const struct box *b, struct err *e)
{
    if (all->table.n < FILES_OPS_MAX && b->ops_n < FILES_OPS_OF_SANDBOX)
        return 0;
    int r = err_set(
        e, ERR_RESOURCE_EXHAUSTED, "%zu %s in progress, %u of them in this sandbox", all->table.n,
        plural(all->table.n, "operation on files is", "operations on files are"), b->ops_n);
    err_detail(e, "FILES_FULL", "files", "try again when some of them have ended");
    return r;
}

static int
send_request(struct box *b, enum files_method method, const ProtobufCMessage *request, int fd,
             struct err *e)
{
    int auto_close theirs = fd;
    static union {
        struct files_head head;
        uint8_t bytes[FILES_PACKET_MAX];
    } out;
    size_t n = protobuf_c_message_get_packed_size(request);
    if (n > FILES_DATA_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "the request has %zu bytes", n);
    out.head = (struct files_head){.kind = FILES_REQUEST, .method = method};
    (void)protobuf_c_message_pack(request, out.bytes + sizeof out.head);
    return agent_send(b->agent, &out, sizeof out.head + n, take_fd(&theirs), e);
}

// Its id, tables and owner.
static void
enroll(struct files_op *op, struct box *b, struct sandbox *s)
{
    op->box = b;
    op->heard_ns = uv_hrtime();
    memcpy(op->tenant, s->tenant->name, sizeof op->tenant);
    memcpy(op->sandbox_id, s->id.id, sizeof op->sandbox_id);
    id_make(sandboxes_settings(s->all)->node, op->id_bytes, op->id.id);
    list_init(&op->of_box);
    list_append(&b->ops, &op->of_box);
    idtable_add(&b->all->table, &op->id);
    metrics_move(METRIC_FILES, 0, 1);
    if (files_is_transfer(op->method))
        metrics_move(METRIC_FILES_TRANSFERS, 0, 1);
    if (b->ops_n++ == 0)
        box_look_soon(b);
}

struct files_op *
files_begin(struct files *all, struct sandbox *s, enum files_method method,
            const ProtobufCMessage *request, const struct files_events *events, void *cookie,
            struct err *e)
{
    int pair[2];
    struct box *b = sandbox_check_running(s, e) < 0 ? NULL : box_of(all, s, e);
    if (b == NULL || check_room(all, b, e) < 0)
        return NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        (void)err_sys(e, errno, "begin an operation on files");
        return NULL;
    }
    int auto_close theirs = pair[1];
    struct files_op *op = packet_link_new(sizeof *op, all->srv->loop, pair[0], &kind, e);
    if (op == NULL)
        return NULL;
    op->method = method;
    enroll(op, b, s);
    if (carried_begin(op, request, e) < 0 ||
        send_request(b, method, request, take_fd(&theirs), e) < 0) {
        op_free(op);
        (void)err_wrap(e, "begin an operation on files");
        return NULL;
    }
    op->events = events;
    op->cookie = cookie;
    return op;
}

uint32_t
files_of(const struct files *all, const struct sandbox *s)
{
    return all != NULL ? box_ops(all, s) : 0;
}

const char *
files_id(const struct files_op *op)
{
    return op->id.id;
}

void *
files_cookie(const struct files_op *op)
{
    return op->cookie;
}

struct files_op *
files_find(struct files *all, const char *tenant, const char *id, struct err *e)
{
    struct idnode *n = idtable_find(&all->table, id);
    struct files_op *op = n != NULL ? list_entry(n, struct files_op, id) : NULL;
    if (op != NULL && files_is_transfer(op->method) && op->events != NULL &&
        strcmp(op->tenant, tenant) == 0)
        return op;
    (void)id_not_found("transfer", sandboxes_settings(all->srv->sandboxes)->node, id, e);
    if (e->reason[0] == '\0')
        err_detail(e, "TRANSFER_UNKNOWN", "transfer_id", "it has ended; its stream has the reason");
    return NULL;
}

static int
send_packet(struct files_op *op, struct files_head head, int fd, const void *bytes, size_t n,
            struct err *e)
{
    int auto_close owned = fd;
    struct packet *p = packet_new(&op->link.out, sizeof head + n, e);
    if (p == NULL)
        return err_errno(e);
    memcpy(p->bytes, &head, sizeof head);
    if (n > 0)
        memcpy(p->bytes + sizeof head, bytes, n);
    if (fd >= 0)
        p->fds[p->fds_n++] = take_fd(&owned);
    return packet_link_send(&op->link, p, e);
}

// The bytes as packets, whatever the queue holds: a caller bounds them.
static int
send_all(struct files_op *op, const uint8_t *at, size_t n, struct err *e)
{
    while (n > 0) {
        size_t piece = n < FILES_DATA_MAX ? n : FILES_DATA_MAX;
        int r = send_packet(op, (struct files_head){.kind = FILES_DATA}, -1, at, piece, e);
        if (r < 0)
            return r;
        op->sent += piece;
        carried_add(op, at, piece);
        metrics_add(METRIC_FILES_WRITTEN_BYTES, piece);
        at += piece;
        n -= piece;
    }
    return 0;
}

int
files_put(struct files_op *op, const void *bytes, size_t n, struct err *e)
{
    int r = send_all(op, bytes, n, e);
    return r < 0 ? r : files_finish(op, op->sent, e);
}

int
files_send(struct files_op *op, uint64_t offset, const void *bytes, size_t n, uint64_t *until,
           struct err *e)
{
    const uint8_t *at = bytes;
    if (offset > op->sent || op->finished)
        return err_set(e, ERR_OUT_OF_RANGE, "%llu %s sent, not %llu", (unsigned long long)op->sent,
                       plural(op->sent, "byte was", "bytes were"), (unsigned long long)offset);
    uint64_t known = op->sent - offset;
    at += known < n ? known : n;
    n -= known < n ? (size_t)known : n;
    if (op->link.out.queued_bytes + n > FILES_QUEUE_BYTES) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu bytes are already queued",
                        op->link.out.queued_bytes);
        err_detail(e, "QUEUE_FULL", "data",
                   "wait for the calls before this one, then send it again");
        return r;
    }
    op->heard_ns = op->link.out.queued > 0 ? op->heard_ns : uv_hrtime();
    int r = send_all(op, at, n, e);
    if (r < 0)
        return r;
    *until = op->link.out.queued > 0 ? op->sent : 0;
    return 0;
}

int
files_finish(struct files_op *op, uint64_t bytes, struct err *e)
{
    if (bytes != op->sent)
        return err_set(e, ERR_OUT_OF_RANGE, "%llu %s sent, not %llu", (unsigned long long)op->sent,
                       plural(op->sent, "byte was", "bytes were"), (unsigned long long)bytes);
    if (op->finished)
        return 0;
    op->finished = true;
    op->heard_ns = uv_hrtime();
    return send_packet(op, (struct files_head){.kind = FILES_FINISH}, -1, NULL, 0, e);
}

int
files_pass(struct files_op *op, int *fds, uint32_t fds_n, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < fds_n && r == 0; i++)
        if (fds[i] >= 0)
            r = send_packet(op, (struct files_head){FILES_STATE, i}, take_fd(&fds[i]), NULL, 0, e);
    fdpass_close(fds, fds_n);
    return r < 0 ? r : files_finish(op, 0, e);
}
