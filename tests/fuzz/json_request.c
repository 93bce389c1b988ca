// SPDX-License-Identifier: Apache-2.0
// Requests of pages to the dashboard: a message or an error with its field comes of any bytes, and the message can be packed.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/exporter/json_request.h"
#include "proto/arena.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "stockade/v1/telemetry_service.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &stockade__v1__subscribe_request__descriptor,
        &stockade__v1__approve_request__descriptor,
        &stockade__v1__list_usage_request__descriptor,
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct arena *auto_arena a = arena_new(1 << 20);
        ProtobufCMessage *m = NULL;
        struct err e = {0};
        if (a == NULL)
            abort();
        if (json_request((const char *)data, size, types[i], a, &m, &e) < 0) {
            assert(m == NULL && e.code != ERR_OK && e.text[0] != '\0');
            continue;
        }
        const size_t n = protobuf_c_message_get_packed_size(m);
        uint8_t *packed = malloc(n + 1);
        assert(packed != NULL && protobuf_c_message_pack(m, packed) == n);
        free(packed);
    }
    return 0;
}
