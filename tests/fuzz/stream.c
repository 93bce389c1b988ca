// SPDX-License-Identifier: Apache-2.0
// A peer's bytes as conn.c cuts them: hello, headers, bodies, frames. The first byte chooses ipc or tcp.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "stockade/v1/wire.pb-c.h"

#include "proto/wire.h"

static void
read_body(const uint8_t *body, size_t n)
{
    struct err e = {0};
    ProtobufCMessage *m = NULL;
    // a copy of exact length, so that a read beyond it is seen
    uint8_t *copy = malloc(n);
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    assert(copy != NULL && a != NULL);
    memcpy(copy, body, n);
    if (wire_unpack(&stockade__v1__frame__descriptor, copy + 4, n - 4, a, &m, &e) == 0) {
        const Stockade__V1__Frame *f = (const Stockade__V1__Frame *)m;
        assert(f->method != NULL && strlen(f->method) <= n);
        assert(f->payload.len <= n);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 + SP_HELLO_BYTES)
        return 0;
    bool ipc = data[0] & 1;
    (void)sp_hello_is(data + 1, SP_PROTO_REQ);
    data += 1 + SP_HELLO_BYTES;
    size -= 1 + SP_HELLO_BYTES;
    for (;;) {
        uint64_t body = 0;
        if (sp_header_read(data, size, ipc, &body) != 1)
            return 0;
        size_t header = sp_header_bytes(ipc);
        assert(body >= 4 && body <= WIRE_FRAME_BYTES_MAX);
        if (size - header < body)
            return 0;
        read_body(data + header, (size_t)body);
        data += header + body;
        size -= header + body;
    }
}
