// SPDX-License-Identifier: Apache-2.0
// ReflectionService: the schema that is embedded in the program.
#include "api.h"

#include "proto/wire.h"

#include "stockade/v1/system_service.pb-c.h"

static void
get_file_descriptor_set(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    (void)req;
    Stockade__V1__GetFileDescriptorSetResponse response =
        STOCKADE__V1__GET_FILE_DESCRIPTOR_SET_RESPONSE__INIT;
    size_t n;
    const uint8_t *set = wire_descriptor_set(&n);
    union {
        const uint8_t *constant;
        uint8_t *plain; // protobuf-c reads only, but has no const there
    } bytes = {set};
    response.file_descriptor_set = (ProtobufCBinaryData){n, bytes.plain};
    call_reply(c, &response.base);
}

const struct call_method reflection_methods[] = {
    {"/stockade.v1.ReflectionService/GetFileDescriptorSet",
     &stockade__v1__get_file_descriptor_set_request__descriptor,
     &stockade__v1__get_file_descriptor_set_response__descriptor, get_file_descriptor_set},
    {0},
};
