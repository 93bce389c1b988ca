// SPDX-License-Identifier: Apache-2.0
// TemplateService.Push: the archive of a template.
//
//   layers -> spool (store/export.c); what the archive says; then a piece after the other, as fast as the caller reads
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "proto/tar.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/snapshot/work.h"
#include "server/store/spool.h"
#include "template_message.h"

enum { PIECE = SPOOL_READ_MAX + TAR_BLOCK };

enum phase { ABOUT, LAYER_HEAD, LAYER, END, DONE };

struct push {
    struct archive archive;
    struct server *s;
    struct call *call;
    char name[65];
    struct store_exporting *exporting; // NULL: it has ended
    struct spool *spool;
    uint8_t *about; // owned: the first file, with header and padding
    size_t about_n, about_at;
    enum phase phase;
    uint32_t layer;
    uint64_t left; // of the layer
    bool reads;
    size_t piece_n;
    uint8_t piece[PIECE];
};

static void
push_end(struct push *p, const struct err *e)
{
    if (e != NULL)
        call_fail(p->call, e);
    if (p->exporting != NULL)
        store_export_unwait(p->exporting);
    spool_free(p->spool);
    list_remove(&p->archive.node);
    free(p->about);
    free(p);
}

static void push_on(struct push *p);

static void
on_piece(void *cookie, const struct err *e)
{
    struct push *p = cookie;
    p->reads = false;
    if (e != NULL) {
        push_end(p, e);
        return;
    }
    const uint64_t bytes = spool_stream(p->spool, p->layer)->bytes;
    p->piece_n = p->left < SPOOL_READ_MAX ? (size_t)p->left : SPOOL_READ_MAX;
    memcpy(p->piece, spool_bytes(p->spool), p->piece_n);
    p->left -= p->piece_n;
    if (p->left == 0) {
        const size_t padding = (TAR_BLOCK - bytes % TAR_BLOCK) % TAR_BLOCK;
        memset(p->piece + p->piece_n, 0, padding);
        p->piece_n += padding;
        p->phase = ++p->layer < spool_streams(p->spool) ? LAYER_HEAD : END;
    }
    push_on(p);
}

static void
begin_layer(struct push *p)
{
    char name[sizeof TEMPLATE_ARCHIVE_LAYER + STORE_DIGEST_TEXT] = TEMPLATE_ARCHIVE_LAYER;
    const struct spool_stream *of = spool_stream(p->spool, p->layer);
    store_digest_text(of->digest, name + sizeof TEMPLATE_ARCHIVE_LAYER - 1);
    tar_header_write(p->piece, name, of->bytes);
    p->piece_n = TAR_BLOCK;
    p->left = of->bytes;
    p->phase = LAYER;
}

// The next piece. False: it is being read.
static bool
prepare(struct push *p)
{
    if (p->phase == LAYER) {
        p->reads = true;
        spool_read(p->spool, p->layer, p->left < SIZE_MAX ? (size_t)p->left : SIZE_MAX, on_piece,
                   p);
        return false;
    }
    if (p->phase == LAYER_HEAD) {
        begin_layer(p);
    } else if (p->phase == ABOUT) {
        p->piece_n =
            p->about_n - p->about_at < SPOOL_READ_MAX ? p->about_n - p->about_at : SPOOL_READ_MAX;
        memcpy(p->piece, p->about + p->about_at, p->piece_n);
        p->about_at += p->piece_n;
        p->phase = p->about_at < p->about_n ? ABOUT : LAYER_HEAD;
    } else {
        p->piece_n = (size_t)2 * TAR_BLOCK;
        memset(p->piece, 0, p->piece_n);
        p->phase = DONE;
    }
    return true;
}

// As far as the caller reads.
static void
push_on(struct push *p)
{
    Stockade__V1__TemplateServicePushResponse m =
        STOCKADE__V1__TEMPLATE_SERVICE_PUSH_RESPONSE__INIT;
    for (;;) {
        m.data = wire_bytes(p->piece, p->piece_n);
        if (p->piece_n > 0 && call_send(p->call, &m.base) < 0) {
            archive_waits(&p->archive);
            return; // on_writable()
        }
        archive_moved(&p->archive, p->piece_n);
        p->piece_n = 0;
        if (p->phase == DONE) {
            call_end(p->call);
            push_end(p, NULL);
            return;
        }
        if (!prepare(p))
            return;
    }
}

static void
on_writable(void *cookie)
{
    struct push *p = cookie;
    if (p->exporting == NULL && !p->reads)
        push_on(p);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    push_end(cookie, NULL);
}

static void
on_cut(struct archive *a, const struct err *why)
{
    push_end(container_of(a, struct push, archive), why);
}

// ---- what it says

static bool
add_layers(struct arena *a, const struct push *p, const struct made *m,
           Stockade__V1__TemplateArchive *to)
{
    const struct stored *r = store_find(made_store(m), m->tenant, STORE_TEMPLATE, m->record);
    to->layers = arena_alloc(a, (m->layers_n + 1) * sizeof(void *));
    for (uint32_t i = 0; r != NULL && to->layers != NULL && i < m->layers_n; i++) {
        char hex[STORE_DIGEST_TEXT];
        Stockade__V1__TemplateArchiveLayer *l =
            wire_make(a, &stockade__v1__template_archive_layer__descriptor);
        if (l == NULL)
            return false;
        store_digest_text(spool_stream(p->spool, i)->digest, hex);
        l->digest = arena_copy(a, hex, strlen(hex));
        l->file_bytes = spool_stream(p->spool, i)->bytes;
        l->bytes = r->layer[i]->bytes;
        l->steps_omitted = m->work[i] != NULL ? m->work[i]->omitted : 0;
        l->steps = template_steps(a, m, i, &l->n_steps);
        if (l->digest == NULL || l->steps == NULL)
            return false;
        to->layers[to->n_layers++] = l;
    }
    return r != NULL && to->layers != NULL;
}

static int
describe(struct push *p, const struct made *m, struct err *e)
{
    Stockade__V1__TemplateArchive archive = STOCKADE__V1__TEMPLATE_ARCHIVE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    archive.version = TEMPLATE_ARCHIVE_VERSION;
    if (a == NULL || (archive.template_ = template_message(a, m, false)) == NULL ||
        !add_layers(a, p, m, &archive))
        return err_sys(e, ENOMEM, "describe a template");
    const size_t n = stockade__v1__template_archive__get_packed_size(&archive);
    p->about_n = TAR_BLOCK + (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    p->about = calloc(1, p->about_n);
    if (p->about == NULL)
        return err_sys(e, ENOMEM, "describe a template");
    tar_header_write(p->about, TEMPLATE_ARCHIVE_FILE, n);
    (void)stockade__v1__template_archive__pack(&archive, p->about + TAR_BLOCK);
    return 0;
}

static void
on_exported(void *cookie, struct stored *none, const struct err *failed)
{
    struct push *p = cookie;
    struct err e;
    (void)none;
    p->exporting = NULL;
    const struct made *m = made_find(p->s->made, p->archive.tenant, p->name);
    if (failed != NULL) {
        push_end(p, failed);
    } else if (m == NULL || m->layers_n != spool_streams(p->spool)) {
        (void)err_set(&e, ERR_ABORTED, "the template was deleted meanwhile");
        push_end(p, &e);
    } else if (describe(p, m, &e) < 0) {
        push_end(p, &e);
    } else {
        push_on(p);
    }
}

// ---- the call

static int
find(const struct server *s, const struct call *c, const char *name, const struct made **out,
     struct err *e)
{
    *out = made_find(s->made, call_tenant(c), name);
    if (*out != NULL)
        return store_available(s->store, e);
    if (config_template(s->config, name) == NULL)
        return convert_no_template(name, e);
    int r = err_set(e, ERR_FAILED_PRECONDITION, "the template %s is the host's", name);
    err_detail(e, "OF_HOST", "name", "the configuration lists it: copy its entry");
    return r;
}

void
template_push(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServicePushRequest *m =
        (const Stockade__V1__TemplateServicePushRequest *)req;
    const struct made *from = NULL;
    struct err e;
    struct push *p = calloc(1, sizeof *p);
    if (p == NULL) {
        convert_no_memory(c);
        return;
    }
    p->s = s;
    p->call = c;
    (void)snprintf(p->name, sizeof p->name, "%s", m->name);
    p->archive.cut = on_cut;
    list_init(&p->archive.node);
    int r = find(s, c, m->name, &from, &e);
    if (r == 0)
        r = store_has_disk(s->store, from->bytes, &e);
    if (r == 0)
        r = archive_begin(s->made, call_tenant(c), &p->archive, &e);
    if (r == 0 && (p->spool = store_spool_new(s->store, &e)) == NULL)
        r = err_errno(&e);
    if (r == 0)
        r = made_export(from, p->spool, on_exported, p, &p->exporting, &e);
    if (r < 0)
        push_end(p, &e);
    else
        call_watch(c, on_cancel, on_writable, p);
}
