// SPDX-License-Identifier: Apache-2.0
// See private.h: what an operation carries into a sandbox or out of it, for the observers of sandboxes.
#include "private.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "server/base/server.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"

// Contents up to this size have a digest: 16 ms of this process, in pieces of 60 KiB.
enum { DIGESTED_MAX = 16 * 1024 * 1024 };

struct carried {
    bool out;
    bool complete;
    const char *method;
    uint64_t bytes;
    crypto_generichash_state hash;
    size_t path_n;
    uint8_t path[];
};

// What carries contents.
static const struct {
    const char *name;
    bool out;
} carriers[FILES_METHODS_N] = {
    [FILES_READ] = {"Read", true},          [FILES_WRITE] = {"Write", false},
    [FILES_UPLOAD] = {"Upload", false},     [FILES_DOWNLOAD] = {"Download", true},
    [FILES_DIFF_FILE] = {"DiffFile", true},
};

static const ProtobufCBinaryData *
path_of(const ProtobufCMessage *request)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "path");
    return f == NULL || f->type != PROTOBUF_C_TYPE_BYTES
               ? NULL
               : (const void *)((const uint8_t *)request + f->offset);
}

int
carried_begin(struct files_op *op, const ProtobufCMessage *request, struct err *e)
{
    const ProtobufCBinaryData *path = path_of(request);
    if (carriers[op->method].name == NULL || path == NULL)
        return 0;
    struct carried *c = calloc(1, sizeof *c + path->len);
    if (c == NULL)
        return err_sys(e, ENOMEM, "begin an operation on files");
    c->method = carriers[op->method].name;
    c->out = carriers[op->method].out;
    c->path_n = path->len;
    if (path->len > 0)
        memcpy(c->path, path->data, path->len);
    (void)crypto_generichash_init(&c->hash, NULL, 0, SANDBOX_DIGEST_BYTES);
    op->carried = c;
    return 0;
}

void
carried_add(struct files_op *op, const void *bytes, size_t n)
{
    struct carried *c = op->carried;
    if (c == NULL)
        return;
    c->bytes += n;
    if (c->bytes <= DIGESTED_MAX)
        (void)crypto_generichash_update(&c->hash, bytes, n);
}

void
carried_is_complete(struct files_op *op)
{
    if (op->carried != NULL)
        op->carried->complete = true;
}

void
carried_end(struct files_op *op)
{
    struct carried *c = op->carried;
    struct err e;
    uint8_t digest[SANDBOX_DIGEST_BYTES];
    if (c == NULL)
        return;
    struct sandboxes *all = op->box->all->srv->sandboxes;
    struct sandbox *s = sandbox_find(all, op->tenant, op->sandbox_id, &e);
    if (c->bytes > 0 || c->complete) {
        const struct sandbox_carried fact = {
            .sandbox_id = op->sandbox_id,
            .tenant = op->tenant,
            .method = c->method,
            .out = c->out,
            .complete = c->complete,
            .path = c->path,
            .path_n = c->path_n,
            .bytes = c->bytes,
            .digest = c->bytes <= DIGESTED_MAX ? digest : NULL,
        };
        (void)crypto_generichash_final(&c->hash, digest, sizeof digest);
        OBSERVERS_NOTIFY(sandboxes_observers(all), carried, s, &fact);
    }
    op->carried = NULL;
    free(c);
}
