// SPDX-License-Identifier: Apache-2.0
// stockade.v1.VolumeService: translation between its messages and server/volume/volumes.h.
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "page.h"
#include "pending.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/volume/volumes.h"
#include "stockade/v1/volume_service.pb-c.h"

enum {
    INODES_LEAST = 1024,
    BYTES_PER_INODE = 16 * 1024,
};
static const uint64_t BYTES_USUAL = UINT64_C(1) << 30;

// NULL: out of memory.
static Stockade__V1__Volume *
convert_volume(struct arena *a, const struct volumes *vs, const struct volume *v)
{
    Stockade__V1__Volume *m = wire_make(a, &stockade__v1__volume__descriptor);
    if (m == NULL)
        return NULL;
    m->name = v->name;
    m->bytes = v->bytes;
    m->inodes = v->inodes;
    m->sandboxes = volume_sandboxes(vs, v);
    m->create_time =
        wire_make_time(a, v->created_ms / 1000, (int32_t)(v->created_ms % 1000) * 1000000);
    volume_look(v);
    if (v->measured && (m->use = wire_make(a, &stockade__v1__volume_use__descriptor)) == NULL)
        return NULL;
    if (v->measured) {
        m->use->bytes = v->used_bytes;
        m->use->inodes = v->used_inodes;
    }
    return m->create_time != NULL ? m : NULL;
}

// Create and Get respond with a message of one field.
static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct volumes *vs,
      const struct volume *v)
{
    Stockade__V1__VolumeServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__VolumeServiceCreateResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    response.volume = a != NULL ? convert_volume(a, vs, v) : NULL;
    if (response.volume == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

// It goes on; nobody waits for it.
static void
unwait(void *op)
{
    volume_unwait(op);
}

static void
on_made(void *cookie, const struct volume *v, const struct err *e)
{
    struct pending *p = cookie;
    if (e == NULL)
        reply(p->call, p->answer, p->s->volumes, v);
    pending_end(p, e);
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__VolumeServiceCreateRequest *m =
        (const Stockade__V1__VolumeServiceCreateRequest *)req;
    struct err e;
    struct volume_wanted w = {.tenant = call_tenant(c),
                              .name = m->name,
                              .bytes = m->bytes != 0 ? m->bytes : BYTES_USUAL,
                              .inodes = (uint32_t)m->inodes};
    const uint64_t usual = w.bytes / BYTES_PER_INODE;
    if (w.inodes == 0)
        w.inodes = usual < INODES_LEAST            ? INODES_LEAST
                   : usual > SPAWN_DISK_INODES_MAX ? SPAWN_DISK_INODES_MAX
                                                   : (uint32_t)usual;
    struct volume_op *op = NULL;
    struct pending *p =
        pending_new(s, c, &stockade__v1__volume_service_create_response__descriptor, unwait);
    if (p == NULL)
        return;
    int r = volume_create(s->volumes, &w, on_made, p, &op, &e);
    pending_begun(p, r, op, &e);
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__VolumeServiceGetRequest *m =
        (const Stockade__V1__VolumeServiceGetRequest *)req;
    struct err e;
    const struct volume *v = volume_find(s->volumes, call_tenant(c), m->name, &e);
    if (v == NULL) {
        call_fail(c, &e);
        return;
    }
    struct volume_op *op = NULL;
    struct pending *p =
        pending_new(s, c, &stockade__v1__volume_service_get_response__descriptor, unwait);
    if (p == NULL)
        return;
    int r = volume_measure(v, on_made, p, &op, &e);
    if (r > 0)
        on_made(p, v, NULL);
    else
        pending_begun(p, r, op, &e);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__VolumeServiceListRequest *m =
        (const Stockade__V1__VolumeServiceListRequest *)req;
    Stockade__V1__VolumeServiceListResponse response =
        STOCKADE__V1__VOLUME_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    for (const struct volume *v = volume_next(s->volumes, NULL); v != NULL;
         v = volume_next(s->volumes, v)) {
        if (v->order <= p.last || strcmp(v->tenant, call_tenant(c)) != 0)
            continue;
        if (!page_has_room(&p) || !page_add(&p, v->order, convert_volume(p.arena, s->volumes, v)))
            break;
    }
    response.volumes = p.elements;
    response.n_volumes = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void
on_deleted(void *cookie, const struct volume *none, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__VolumeServiceDeleteResponse response =
        STOCKADE__V1__VOLUME_SERVICE_DELETE_RESPONSE__INIT;
    (void)none;
    if (e == NULL)
        call_reply(p->call, &response.base);
    pending_end(p, e);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__VolumeServiceDeleteRequest *m =
        (const Stockade__V1__VolumeServiceDeleteRequest *)req;
    struct err e;
    struct volume_op *op = NULL;
    struct pending *p = pending_new(s, c, NULL, unwait);
    if (p == NULL)
        return;
    const struct volume_unwanted w = {call_tenant(c), m->name, m->force};
    const struct volume *v = volume_find(s->volumes, w.tenant, w.name, &e);
    if (v != NULL)
        files_let_go(s->files, w.tenant, v->id);
    int r = volume_delete(s->volumes, &w, on_deleted, p, &op, &e);
    pending_begun(p, r, op, &e);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.VolumeService/" name,                                                        \
            &stockade__v1__volume_service_##message##_request__descriptor,                         \
            &stockade__v1__volume_service_##message##_response__descriptor, handler                \
    }

const struct call_method volume_methods[] = {
    METHOD("Create", create, create),
    METHOD("Get", get, get),
    METHOD("List", list, list),
    METHOD("Delete", delete, delete),
    {0},
};
