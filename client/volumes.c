// SPDX-License-Identifier: Apache-2.0
// Volumes (stockade_volumes.h).
#include <stddef.h>

#include "errors.h"
#include "invoke.h"
#include "results.h"
#include "stockade/v1/volume_service.pb-c.h"

#define SERVICE "/stockade.v1.VolumeService/"

_Static_assert(sizeof(Stockade__V1__VolumeServiceCreateResponse) ==
                       sizeof(Stockade__V1__VolumeServiceGetResponse) &&
                   offsetof(Stockade__V1__VolumeServiceCreateResponse, volume) ==
                       offsetof(Stockade__V1__VolumeServiceGetResponse, volume),
               "a response with one volume");

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    static const Stockade__V1__Volume none = STOCKADE__V1__VOLUME__INIT;
    const Stockade__V1__Volume *from =
        message != NULL ? (const Stockade__V1__Volume *)message : &none;
    (void)a;
    *(struct stockade_volume *)to = (struct stockade_volume){
        .name = from->name,
        .bytes = from->bytes,
        .inodes = from->inodes,
        .created_ms = time_from(from->create_time),
        .sandboxes = from->sandboxes,
        .measured = from->use != NULL,
        .used_bytes = from->use != NULL ? from->use->bytes : 0,
        .used_inodes = from->use != NULL ? from->use->inodes : 0,
    };
    return true;
}

static bool
answer_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__VolumeServiceGetResponse *m =
        (const Stockade__V1__VolumeServiceGetResponse *)from;
    return one_from(to, a, m->volume != NULL ? &m->volume->base : NULL);
}

static bool
all_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__VolumeServiceListResponse *m =
        (const Stockade__V1__VolumeServiceListResponse *)from;
    struct stockade_volumes *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->volumes, m->n_volumes, one_from);
}

// A call that is answered with a volume, or (out NULL) with nothing.
static int
ask(struct stockade *s, const char *method, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *response, const struct stockade_volume **out,
    struct stockade_error *e)
{
    const struct invocation i = {.method = method,
                                 .request = request,
                                 .response = response,
                                 .size = sizeof(struct stockade_volume),
                                 .read = answer_from};
    return invoke(s, &i, out, e);
}

int
stockade_volume_create(struct stockade *s, const char *name, uint64_t bytes, uint64_t inodes,
                       const struct stockade_volume **out, struct stockade_error *e)
{
    Stockade__V1__VolumeServiceCreateRequest m = STOCKADE__V1__VOLUME_SERVICE_CREATE_REQUEST__INIT;
    m.name = name;
    m.bytes = bytes;
    m.inodes = inodes;
    return ask(s, SERVICE "Create", &m.base,
               &stockade__v1__volume_service_create_response__descriptor, out, e);
}

int
stockade_volume_get(struct stockade *s, const char *name, const struct stockade_volume **out,
                    struct stockade_error *e)
{
    Stockade__V1__VolumeServiceGetRequest m = STOCKADE__V1__VOLUME_SERVICE_GET_REQUEST__INIT;
    m.name = name;
    return ask(s, SERVICE "Get", &m.base, &stockade__v1__volume_service_get_response__descriptor,
               out, e);
}

int
stockade_volume_list(struct stockade *s, const char *page, const struct stockade_volumes **out,
                     struct stockade_error *e)
{
    Stockade__V1__VolumeServiceListRequest m = STOCKADE__V1__VOLUME_SERVICE_LIST_REQUEST__INIT;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__volume_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = all_from};
    return invoke(s, &i, out, e);
}

int
stockade_volume_delete(struct stockade *s, const char *name, bool force, struct stockade_error *e)
{
    Stockade__V1__VolumeServiceDeleteRequest m = STOCKADE__V1__VOLUME_SERVICE_DELETE_REQUEST__INIT;
    m.name = name;
    m.force = force;
    return ask(s, SERVICE "Delete", &m.base,
               &stockade__v1__volume_service_delete_response__descriptor, NULL, e);
}
