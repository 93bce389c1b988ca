// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder. A `box` is a sandbox with its program (box.c); it exists as long as the program or an
// operation (files.c). A `holder` is a sandbox of the broker's own for the files of a volume (holder.c).
#pragma once

#include "files.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/base/packet_link.h"
#include "server/sandbox/agent.h"

struct files {
    struct server *srv;
    int program_fd;
    struct list boxes;
    struct list holders;
    struct idtable table; // of operations
};

struct box {
    struct list node;
    struct files *all;
    struct sandbox *sandbox; // NULL: its program has ended
    struct agent *agent;     // NULL: it has ended
    struct err why;          // why it has ended
    struct list ops;
    uint32_t ops_n;
    struct loop_timer *timer; // looks at the operations, or ends an idle program
};

struct files_op {
    struct packet_link link; // must be first
    struct idnode id;
    uint8_t id_bytes[ID_BYTES];
    struct list of_box;
    struct box *box;
    char tenant[32];
    char sandbox_id[ID_TEXT_MAX + 1];
    struct carried *carried; // owned; NULL: it carries no contents
    enum files_method method;
    const struct files_events *events; // NULL: it has ended
    void *cookie;
    uint64_t sent; // bytes of a transfer
    bool finished;
    uint64_t heard_ns;    // of it, or able to speak again
    struct packet *later; // owned: what the caller could not take
};

static inline bool
files_is_transfer(enum files_method method)
{
    return method == FILES_WRITE || method == FILES_UPLOAD;
}

// Ends an operation: why NULL: it succeeded. Frees it, and its box if that has no further use.
void files_op_finish(struct files_op *op, const struct err *why);

// carried.c: which contents an operation carries, for the observers of sandboxes. The program may have been killed by then, and the
// sandbox deleted, so it is found again by its id.
int carried_begin(struct files_op *op, const ProtobufCMessage *request, struct err *e);
void carried_add(struct files_op *op, const void *bytes, size_t n);
void carried_is_complete(struct files_op *op); // all of it
void carried_end(struct files_op *op);         // reports it, if anything was carried

// The sandbox's box, with its program; started if there is none. NULL: FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
struct box *box_of(struct files *all, struct sandbox *s, struct err *e);
void box_free(struct box *b);
// Whether the broker itself ends the program, with the reason: the sandbox is deleted, or gets another layer.
bool box_is_ended(const struct box *b, struct err *why);
// Operations in this sandbox.
uint32_t box_ops(const struct files *all, const struct sandbox *s);
// Looks at the operations some seconds from now, or ends the program a minute from now if there are none.
void box_look_soon(struct box *b);

// The folder of a sandbox that is the root of its files: "/", or that of the volume for which it was made.
const char *holder_root(const struct files *all, const struct sandbox *s);
void holders_free(struct files *all);
