// SPDX-License-Identifier: Apache-2.0
// TemplateService.Load: a template of an archive, which is hostile.
//
//   Send -> tar_feed() -> the first file: template_archive_read(), checked against this host and the tenant's quota
//                      -> the others: spool, encrypted          one Send after the other; each is answered when it is written
//   Finish -> made_take(): a confined keeper reads each layer and compares its digest -> the template, as the last message
//
// The broker looks at no byte of a layer.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "proto/tar.h"
#include "proto/validate.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/sandbox/template.h"
#include "server/store/spool.h"
#include "stockade/v1/file_service.pb-c.h"
#include "template_message.h"

enum {
    ABOUT_MAX = 512 * 1024,
    QUEUE_BYTES = 1024 * 1024,
    SENDERS_MAX = 64,
    ARENA_MAX = 4 * 1024 * 1024
};

// Bytes that wait for their turn.
struct sender {
    struct list node;
    struct call *call; // NULL: nobody waits any more
    uint8_t *bytes;    // owned
    size_t n;
};

struct load {
    struct archive archive;
    struct server *s;
    struct call *call;
    char name[65]; // "": as in the archive
    char loaded_by[32];
    struct spool *spool;
    struct made_op *taking; // NULL: not yet
    struct arena *arena;
    bool replace; // one of this name
    bool unsent_id, writes, finished, done;
    uint64_t arrived; // bytes
    struct list senders;
    uint32_t senders_n;
    size_t queued; // bytes of them
    struct tar_feed feed;
    uint8_t *about_bytes; // owned, while it comes
    size_t about_n, about_size;
    Stockade__V1__TemplateArchive *about; // NULL: it has not come yet; in the arena
    const struct template *on;
    uint32_t layer; // of the file that has begun, or the next one
    // of the bytes that are being fed
    const uint8_t *base;
    struct spool_piece *piece; // owned
    size_t pieces_n, pieces_max;
};

static void
sender_end(struct sender *x, const struct err *e)
{
    static const Stockade__V1__FileServiceSendResponse answer =
        STOCKADE__V1__FILE_SERVICE_SEND_RESPONSE__INIT;
    list_remove(&x->node);
    if (x->call != NULL && e != NULL)
        call_fail(x->call, e);
    else if (x->call != NULL)
        call_reply(x->call, &answer.base);
    free(x->bytes);
    free(x);
}

// The call has ended, or ends with the failure.
static void
load_end(struct load *l, const struct err *failed)
{
    struct err e;
    if (failed != NULL)
        call_fail(l->call, failed);
    if (l->taking != NULL)
        made_unwait(l->taking);
    spool_free(l->spool);
    list_remove(&l->archive.node);
    list_each(it, &l->senders)
    {
        (void)err_set(&e, ERR_NOT_FOUND, "the transfer has ended");
        err_detail(&e, "TRANSFER_UNKNOWN", "transfer_id", "its stream has the reason");
        sender_end(list_entry(it, struct sender, node), &e);
    }
    arena_free(l->arena);
    free(l->about_bytes);
    free(l->piece);
    free(l);
}

static int
refuse(struct err *e, const char *what)
{
    int r = err_set(e, ERR_INVALID_ARGUMENT, "the archive is refused: %s", what);
    err_detail(e, "ARCHIVE_REFUSED", "archive", "load what \"stockade template push\" wrote");
    return r;
}

// ---- what it says

static int
other_template(const struct load *l, const char *what, struct err *e)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "its sandboxes are of template %s of the host, %s",
                    l->about->template_->host_template, what);
    err_detail(e, "OTHER_TEMPLATE", l->about->template_->host_template,
               "configure a template of this name with the same \"user\" and \"root\"");
    return r;
}

static int
check_host(struct load *l, struct err *e)
{
    const Stockade__V1__SandboxTemplate *t = l->about->template_;
    l->on = config_template(l->s->config, t->host_template);
    if (l->on == NULL)
        return other_template(l, "which this broker does not have", e);
    return l->on->user_root != t->user_root || l->on->root_writable != t->root_writable
               ? other_template(l, "which is another one here", e)
               : 0;
}

// A name that a request could have.
static int
check_name(struct load *l, struct err *e)
{
    Stockade__V1__TemplateServiceLoadRequest m = STOCKADE__V1__TEMPLATE_SERVICE_LOAD_REQUEST__INIT;
    struct err why;
    if (l->name[0] == '\0')
        (void)snprintf(l->name, sizeof l->name, "%s", l->about->template_->name);
    m.name = l->name;
    if (l->name[0] == '\0' || validate_message(&m.base, &why) < 0)
        return refuse(e, "its name is no name of a template");
    if (config_template(l->s->config, l->name) != NULL) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "the host has a template with the name %s", l->name);
        err_detail(e, "NAME_TAKEN", "name", "choose another name");
        return r;
    }
    return made_may_add(l->s->made, l->archive.tenant, l->name, l->replace, e);
}

static int
check_room(const struct load *l, struct err *e)
{
    uint64_t bytes = 0, files = 0;
    for (size_t i = 0; i < l->about->n_layers; i++) {
        bytes += l->about->layers[i]->bytes;
        files += l->about->layers[i]->file_bytes;
    }
    int r = store_has_room(l->s->store, l->archive.tenant, bytes, e);
    return r == 0 ? store_has_disk(l->s->store, bytes + files, e) : r;
}

static int
read_about(struct load *l, struct err *e)
{
    l->arena = arena_new(ARENA_MAX);
    if (l->arena == NULL)
        return err_sys(e, ENOMEM, "load a template");
    int r = template_archive_read(l->about_bytes, l->about_n, l->arena, &l->about, e);
    free(take_ptr(l->about_bytes));
    if (r < 0 || l->about == NULL)
        return r;
    r = check_host(l, e);
    if (r == 0)
        r = check_name(l, e);
    return r == 0 ? check_room(l, e) : r;
}

// ---- the files of the archive

static int
add_piece(struct load *l, const uint8_t *bytes, size_t n, bool begins, struct err *e)
{
    if (l->pieces_n == l->pieces_max) {
        const size_t more = l->pieces_max * 2 + 16;
        struct spool_piece *p = realloc(l->piece, more * sizeof *p);
        if (p == NULL)
            return err_sys(e, ENOMEM, "load a template");
        l->piece = p;
        l->pieces_max = more;
    }
    l->piece[l->pieces_n++] = (struct spool_piece){
        .at = bytes == NULL ? 0 : (size_t)(bytes - l->base), .n = n, .begins = begins};
    return 0;
}

static int
on_file(void *cookie, const char *name, uint64_t size, struct err *e)
{
    struct load *l = cookie;
    if (l->about == NULL) {
        if (strcmp(name, TEMPLATE_ARCHIVE_FILE) != 0)
            return refuse(e, "its first file is not " TEMPLATE_ARCHIVE_FILE);
        if (size == 0 || size > ABOUT_MAX)
            return refuse(e, "its first file is empty, or too large");
        l->about_size = (size_t)size;
        l->about_bytes = malloc(l->about_size);
        return l->about_bytes == NULL ? err_sys(e, ENOMEM, "load a template") : 0;
    }
    if (l->layer >= l->about->n_layers)
        return refuse(e, "it has more files than layers");
    const Stockade__V1__TemplateArchiveLayer *next = l->about->layers[l->layer];
    if (strncmp(name, TEMPLATE_ARCHIVE_LAYER, sizeof TEMPLATE_ARCHIVE_LAYER - 1) != 0 ||
        strcmp(name + sizeof TEMPLATE_ARCHIVE_LAYER - 1, next->digest) != 0)
        return refuse(e, "a file is not the next layer");
    if (size != next->file_bytes)
        return refuse(e, "a layer has another size");
    return add_piece(l, NULL, 0, true, e);
}

static int
on_data(void *cookie, const uint8_t *bytes, size_t n, struct err *e)
{
    struct load *l = cookie;
    if (l->about != NULL)
        return add_piece(l, bytes, n, false, e);
    memcpy(l->about_bytes + l->about_n, bytes, n); // tar_feed() gives out no more than the size
    l->about_n += n;
    return 0;
}

static int
on_file_end(void *cookie, struct err *e)
{
    struct load *l = cookie;
    if (l->about == NULL)
        return read_about(l, e);
    int r = add_piece(l, NULL, 0, false, e);
    if (r == 0)
        l->piece[l->pieces_n - 1].ends = true;
    l->layer++;
    return r;
}

static const struct tar_feed_events events = {on_file, on_data, on_file_end};

// ---- the new template

static void
send_made(struct load *l)
{
    Stockade__V1__TemplateServiceLoadResponse m =
        STOCKADE__V1__TEMPLATE_SERVICE_LOAD_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct made *made = made_find(l->s->made, l->archive.tenant, l->name);
    struct err e;
    if (made == NULL) {
        (void)err_set(&e, ERR_ABORTED, "the template was deleted meanwhile");
        load_end(l, &e);
        return;
    }
    m.template_ = a == NULL ? NULL : template_message(a, made, false);
    if (m.template_ == NULL) {
        convert_no_memory(l->call);
        load_end(l, NULL);
        return;
    }
    if (call_end_with(l->call, &m.base) == 0)
        load_end(l, NULL);
}

static void
on_taken(void *cookie, const struct made *m, const struct err *e)
{
    struct load *l = cookie;
    (void)m;
    l->taking = NULL;
    l->done = e == NULL;
    if (e != NULL)
        load_end(l, e);
    else
        send_made(l);
}

static int
check_whole(const struct load *l, struct err *e)
{
    int r = tar_feed_end(&l->feed, e);
    if (r == 0 && (l->about == NULL || l->layer < l->about->n_layers)) {
        r = err_set(e, ERR_DATA_LOSS, "the archive has fewer layers than it says");
        err_detail(e, "ARCHIVE_CUT", "archive", "get it again");
    }
    return r;
}

static int
take_all(struct load *l, struct err *e)
{
    size_t n = 0;
    int r = check_whole(l, e);
    if (r == 0) // the configuration may be another one by now
        r = check_host(l, e);
    if (r < 0)
        return r;
    uint8_t *auto_free about = template_archive_about(l->about, l->loaded_by, &n, e);
    if (about == NULL)
        return err_errno(e);
    for (uint32_t i = 0; i < l->layer; i++) {
        uint8_t digest[SPAWN_DIGEST_BYTES];
        (void)sodium_hex2bin(digest, sizeof digest, l->about->layers[i]->digest, 2 * sizeof digest,
                             NULL, NULL, NULL);
        spool_expect(l->spool, i, digest);
    }
    const struct made_foreign f = {l->archive.tenant, l->name, l->replace, l->on, about, n,
                                   l->spool};
    return made_take(l->s->made, &f, on_taken, l, &l->taking, e);
}

// ---- bytes

static void load_on(struct load *l);

static void
on_written(void *cookie, const struct err *e)
{
    struct load *l = cookie;
    l->writes = false;
    if (e != NULL) {
        load_end(l, e);
        return;
    }
    struct sender *first = list_entry(l->senders.next, struct sender, node);
    l->senders_n--;
    l->queued -= first->n;
    sender_end(first, NULL);
    load_on(l);
}

// The next bytes that came, or what follows all of them.
static void
load_on(struct load *l)
{
    struct err e;
    int r = 0;
    if (l->writes || l->taking != NULL || l->done)
        return;
    if (list_empty(&l->senders)) {
        if (!l->finished)
            archive_waits(&l->archive);
        else if (take_all(l, &e) < 0)
            load_end(l, &e);
        return;
    }
    struct sender *next = list_entry(l->senders.next, struct sender, node);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): sender_end() has removed the one before from the list
    l->base = next->bytes;
    l->pieces_n = l->pieces_max = 0;
    r = tar_feed(&l->feed, next->bytes, next->n, &events, l, &e);
    if (r < 0) {
        load_end(l, &e);
        return;
    }
    const size_t n = l->pieces_n;
    l->writes = true;
    spool_write(l->spool, take_ptr(next->bytes), take_ptr(l->piece), n, on_written, l);
}

static void
on_sender_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    ((struct sender *)cookie)->call = NULL; // its bytes count
}

static struct load *
load_find(struct server *s, const struct call *c, const char *id)
{
    struct archive *found = archive_find(s->made, call_tenant(c), id);
    return found == NULL ? NULL : container_of(found, struct load, archive);
}

static int
add_sender(struct load *l, struct call *c, const Stockade__V1__FileServiceSendRequest *m,
           struct err *e)
{
    if (m->offset > l->arrived || l->finished) {
        int r = err_set(e, ERR_OUT_OF_RANGE,
                        l->finished ? "all bytes were sent" : "bytes before these are missing");
        err_detail(e, "OFFSET", "offset", "send them in order");
        return r;
    }
    const uint64_t skip = l->arrived - m->offset;
    if (skip >= m->data.len)
        return 1;
    if (l->senders_n == SENDERS_MAX || l->queued + m->data.len > QUEUE_BYTES) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu bytes in %u calls wait already", l->queued,
                        l->senders_n);
        err_detail(e, "QUEUE_FULL", "data", "wait for the answers of earlier calls");
        return r;
    }
    struct sender *x = calloc(1, sizeof *x);
    if (x == NULL || (x->bytes = malloc(m->data.len)) == NULL) {
        free(x);
        return err_sys(e, ENOMEM, "load a template");
    }
    x->call = c;
    x->n = m->data.len - (size_t)skip;
    memcpy(x->bytes, m->data.data + skip, x->n);
    l->arrived += x->n;
    archive_moved(&l->archive, x->n);
    l->senders_n++;
    l->queued += x->n;
    list_append(&l->senders, &x->node);
    call_watch(c, on_sender_cancel, NULL, x);
    return 0;
}

bool
template_send(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    static const Stockade__V1__FileServiceSendResponse answer =
        STOCKADE__V1__FILE_SERVICE_SEND_RESPONSE__INIT;
    const Stockade__V1__FileServiceSendRequest *m =
        (const Stockade__V1__FileServiceSendRequest *)req;
    struct load *l = load_find(s, c, m->transfer_id);
    struct err e;
    if (l == NULL)
        return false;
    int r = add_sender(l, c, m, &e);
    if (r < 0)
        call_fail(c, &e);
    else if (r > 0)
        call_reply(c, &answer.base);
    else
        load_on(l);
    return true;
}

bool
template_finish(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    static const Stockade__V1__FileServiceFinishResponse answer =
        STOCKADE__V1__FILE_SERVICE_FINISH_RESPONSE__INIT;
    const Stockade__V1__FileServiceFinishRequest *m =
        (const Stockade__V1__FileServiceFinishRequest *)req;
    struct load *l = load_find(s, c, m->transfer_id);
    struct err e;
    if (l == NULL)
        return false;
    if (m->bytes != l->arrived) {
        (void)err_set(&e, ERR_OUT_OF_RANGE, "%llu bytes came, and not %llu",
                      (unsigned long long)l->arrived, (unsigned long long)m->bytes);
        err_detail(&e, "OFFSET", "bytes", "send the rest first");
        call_fail(c, &e);
        return true;
    }
    call_reply(c, &answer.base);
    l->finished = true;
    archive_moved(&l->archive, 0);
    load_on(l);
    return true;
}

// ---- the call

static void
send_id(struct load *l)
{
    Stockade__V1__TemplateServiceLoadResponse m =
        STOCKADE__V1__TEMPLATE_SERVICE_LOAD_RESPONSE__INIT;
    m.transfer_id = l->archive.id;
    l->unsent_id = call_send(l->call, &m.base) < 0;
}

static void
on_writable(void *cookie)
{
    struct load *l = cookie;
    if (l->unsent_id)
        send_id(l);
    else if (l->done)
        send_made(l);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    load_end(cookie, NULL);
}

static void
on_cut(struct archive *a, const struct err *why)
{
    load_end(container_of(a, struct load, archive), why);
}

void
template_load(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceLoadRequest *m =
        (const Stockade__V1__TemplateServiceLoadRequest *)req;
    struct err e;
    struct load *l = calloc(1, sizeof *l);
    if (l == NULL) {
        convert_no_memory(c);
        return;
    }
    l->s = s;
    l->call = c;
    l->archive.loads = true;
    l->archive.cut = on_cut;
    list_init(&l->archive.node);
    list_init(&l->senders);
    (void)snprintf(l->name, sizeof l->name, "%s", m->name);
    l->replace = m->replace;
    (void)snprintf(l->loaded_by, sizeof l->loaded_by, "%s", call_tenant(c));
    int r = store_available(s->store, &e);
    if (r == 0)
        r = archive_begin(s->made, call_tenant(c), &l->archive, &e);
    if (r == 0 && (l->spool = store_spool_new(s->store, &e)) == NULL)
        r = err_errno(&e);
    if (r < 0) {
        load_end(l, &e);
        return;
    }
    call_watch(c, on_cancel, on_writable, l);
    archive_waits(&l->archive);
    send_id(l);
}
