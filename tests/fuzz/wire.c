// SPDX-License-Identifier: Apache-2.0
// protobuf-c unpacks what the scan accepts: a message of each kind that a peer may send, by the first byte. The
// result is checked by the field rules, and packed into bytes that are accepted again.
#include <assert.h>
#include <stdlib.h>

#include "google/protobuf/descriptor.pb-c.h"
#include "guest.pb-c.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

#include "proto/validate.h"
#include "proto/wire.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &stockade__v1__frame__descriptor,
    &stockade__v1__run_request__descriptor,
    &stockade__v1__start_request__descriptor,
    &stockade__v1__sandbox_service_create_request__descriptor,
    &stockade__v1__sandbox_service_list_response__descriptor,
    &stockade__v1__attach_response__descriptor,
    &stockade__v1__info_response__descriptor,
    &stockade__v1__error_info__descriptor,
    &stockade__guest__request__descriptor,
    &stockade__guest__event__descriptor,
    &google__protobuf__file_descriptor_set__descriptor,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    struct err e = {0};
    ProtobufCMessage *m = NULL;
    if (!ready && validate_init(&e) != 0)
        abort();
    ready = true;
    if (size == 0)
        return 0;
    const ProtobufCMessageDescriptor *type = types[data[0] % (sizeof types / sizeof types[0])];
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    if (wire_unpack(type, data + 1, size - 1, a, &m, &e) != 0) {
        assert(e.code != ERR_OK && e.text[0] != '\0');
        return 0;
    }
    (void)validate_message(m, &e);
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = malloc(n + 1);
    assert(packed != NULL && protobuf_c_message_pack(m, packed) == n);
    assert(wire_check(type, packed, n, &e) == 0);
    free(packed);
    return 0;
}
