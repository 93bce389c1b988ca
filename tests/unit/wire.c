// SPDX-License-Identifier: Apache-2.0
// Hostile bytes are refused before protobuf-c gets them; valid ones are unchanged.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "google/protobuf/descriptor.pb-c.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

#include "proto/wire.h"

#define FRAME &stockade__v1__frame__descriptor

struct refusal {
    const char *what;
    const char *bytes;
    size_t n;
    const char *text_part; // part of the text
};

#define BYTES(s) s, sizeof s - 1

// Frame: kind = 1 (enum), method = 2 (string), payload = 3 (bytes), status = 4, metadata = 8
static const struct refusal refusals[] = {
    {"a tag alone", BYTES("\x08"), "beyond its range"},
    {"a varint that never ends", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
     "kind"},
    {"a varint above 64 bits", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "kind"},
    {"a tag above 64 bits", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "tag"},
    {"field number 0", BYTES("\x00\x01"), "tag"},
    {"field number above 2^29-1", BYTES("\x80\x80\x80\x80\x10\x01"), "tag"},
    {"a length beyond the end", BYTES("\x12\x05 abc"), "method"},
    {"a length of 2^64-1", BYTES("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 abc"), "method"},
    {"a length of 2^63", BYTES("\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01 abc"), "method"},
    {"a length of 2^32", BYTES("\x12\x80\x80\x80\x80\x10 abc"), "method"},
    {"the start of a group", BYTES("\x0b\x0c"), "wire type 3"},
    {"the end of a group", BYTES("\x0c"), "wire type 4"},
    {"wire type 7", BYTES("\x0f"), "wire type 7"},
    {"an unknown group", BYTES("\xbb\x3e\xbc\x3e"), "wire type 3"},
    {"a varint where text belongs", BYTES("\x10\x01"), "wrong wire type"},
    {"bytes where a number belongs", BYTES("\x0a\x01\x01"), "wrong wire type"},
    {"four bytes where a number belongs", BYTES("\x0d\x01\x01\x01\x01"), "wrong wire type"},
    {"four bytes that are three", BYTES("\xfd\x3e\x01\x01\x01"), "unknown"},
    {"eight bytes that are seven", BYTES("\xf9\x3e\x01\x01\x01\x01\x01\x01\x01"), "unknown"},
    {"NUL in text",
     BYTES("\x12\x03"
           "a\0b"),
     "NUL"},
    {"a lone continuation byte", BYTES("\x12\x01\x80"), "UTF-8"},
    {"an over-long slash", BYTES("\x12\x02\xc0\xaf"), "UTF-8"},
    {"an over-long three-byte form", BYTES("\x12\x03\xe0\x80\xaf"), "UTF-8"},
    {"an over-long four-byte form", BYTES("\x12\x04\xf0\x80\x80\xaf"), "UTF-8"},
    {"a surrogate", BYTES("\x12\x03\xed\xa0\x80"), "UTF-8"},
    {"beyond U+10FFFF", BYTES("\x12\x04\xf4\x90\x80\x80"), "UTF-8"},
    {"half a character", BYTES("\x12\x02\xe2\x82"), "UTF-8"},
    {"0xff", BYTES("\x12\x01\xff"), "UTF-8"},
    {"NUL in a sub-message",
     BYTES("\x42\x05\x0a\x03"
           "a\0b"),
     "metadata.key"},
    {"a sub-message that lies", BYTES("\x42\x02\x0a\x03"), "metadata.key"},
    {"a sub-message in two pieces", BYTES("\x22\x02\x08\x05\x22\x00"), "status: a duplicate field"},
};

static void
malformed_bytes_are_refused_with_the_field_that_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
        ProtobufCMessage *m = NULL;
        struct err e = {0};
        // a copy of exactly this length, so that reading beyond it is detected
        uint8_t *bytes = malloc(r->n);
        memcpy(bytes, r->bytes, r->n);
        int rc = wire_unpack(FRAME, bytes, r->n, a, &m, &e);
        free(bytes);
        if (rc != -EINVAL || e.code != ERR_INVALID_ARGUMENT || strstr(e.text, r->text_part) == NULL)
            fail_msg("%s: %d, \"%s\"", r->what, rc, e.text);
        assert_null(m);
        assert_int_equal(arena_used(a), 0);
    }
}

// FileDescriptorSet.file.message_type.nested_type.nested_type...: the only available recursive schema.
static size_t
nest(uint8_t *out, size_t room, unsigned levels)
{
    size_t at = room;
    size_t length = 0;
    for (unsigned i = 0; i < levels; i++) {
        uint8_t head[16];
        size_t n = 0;
        head[n++] = i + 1 == levels ? 0x0a : i + 2 == levels ? 0x22 : 0x1a;
        size_t rest = length;
        do {
            head[n++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
            rest >>= 7;
        } while (rest > 0);
        at -= n;
        memcpy(out + at, head, n);
        length += n;
    }
    memmove(out, out + at, length);
    return length;
}

static void
nesting_of_58_KB_is_refused_and_32_levels_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *set = &google__protobuf__file_descriptor_set__descriptor;
    static uint8_t bytes[64 * 1024];
    struct err e = {0};
    size_t n = nest(bytes, sizeof bytes, 16000);
    assert_in_range(n, 58000, sizeof bytes);
    assert_int_equal(wire_check(set, bytes, n, &e), -EINVAL);
    assert_non_null(strstr(e.text, "deeper than 32"));
    n = nest(bytes, sizeof bytes, 32);
    assert_int_equal(wire_check(set, bytes, n, &e), -EINVAL);
    n = nest(bytes, sizeof bytes, 31);
    assert_int_equal(wire_check(set, bytes, n, &e), 0);
}

static void
a_megabyte_of_empty_submessages_is_refused(void **state)
{
    (void)state;
    enum { N = 1024 * 1024 };
    uint8_t *bytes = malloc(N);
    struct err e = {0};
    for (size_t i = 0; i < N; i += 2) {
        bytes[i] = 0x42; // metadata
        bytes[i + 1] = 0;
    }
    assert_int_equal(wire_check(FRAME, bytes, N, &e), -EINVAL);
    assert_non_null(strstr(e.text, "more than 16384"));
    assert_int_equal(wire_check(FRAME, bytes, 2 * WIRE_ELEMENTS_MAX + 2, &e), -EINVAL);
    assert_int_equal(wire_check(FRAME, bytes, 2 * WIRE_ELEMENTS_MAX, &e), 0);
    for (size_t i = 0; i < N; i += 4)
        memcpy(bytes + i, "\xf8\x3e\x01\x01", 4); // unknown fields count as well
    assert_int_equal(wire_check(FRAME, bytes, N, &e), -EINVAL);
    free(bytes);
}

static void
packed_elements_count(void **state)
{
    (void)state;
    // FileDescriptorProto.public_dependency = 10, repeated int32
    const ProtobufCMessageDescriptor *file = &google__protobuf__file_descriptor_proto__descriptor;
    static uint8_t bytes[4 + WIRE_ELEMENTS_MAX] = {0x52, 0x80, 0x80, 0x01};
    struct err e = {0};
    assert_int_equal(wire_check(file, bytes, sizeof bytes, &e), -EINVAL);
    assert_non_null(strstr(e.text, "more than 16384"));
    static uint8_t fewer[4 + WIRE_ELEMENTS_MAX - 1] = {0x52, 0xff, 0xff, 0x00};
    assert_int_equal(wire_check(file, fewer, sizeof fewer, &e), 0);
    assert_int_equal(wire_check(file, BYTES("\x52\x02\x01\x80"), &e), -EINVAL);
}

static void
a_message_that_does_not_fit_into_the_arena_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[5 + 100000] = {0x1a, 0xa0, 0x8d, 0x06};
    struct arena *auto_arena a = arena_new(50000);
    ProtobufCMessage *m = NULL;
    struct err e = {0};
    assert_int_equal(wire_unpack(FRAME, bytes, 4 + 100000, a, &m, &e), -ENOSPC);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_null(m);
}

static void
packing_and_unpacking_keeps_a_frame(void **state)
{
    (void)state;
    Stockade__V1__Metadata meta = STOCKADE__V1__METADATA__INIT;
    Stockade__V1__Metadata *metas[] = {&meta};
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    uint8_t payload[3] = {0, 0xff, 1};
    meta.key = "idempotency-key";
    meta.value = "gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x8e";
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = "/stockade.v1.SystemService/Info";
    f.payload = (ProtobufCBinaryData){sizeof payload, payload};
    f.timeout_us = UINT64_MAX;
    f.credit = UINT32_MAX;
    f.n_metadata = 1;
    f.metadata = metas;
    for (int ipc = 0; ipc < 2; ipc++) {
        size_t n = 0;
        uint64_t body = 0;
        uint8_t *bytes = wire_pack_frame(ipc, 0x80000007, &f.base, &n);
        assert_non_null(bytes);
        size_t header = sp_header_bytes(ipc);
        for (size_t i = 0; i < header; i++)
            assert_int_equal(sp_header_read(bytes, i, ipc, &body), 0);
        assert_int_equal(sp_header_read(bytes, n, ipc, &body), 1);
        assert_int_equal(header + body, n);
        assert_memory_equal(bytes + header, "\x80\0\0\x07", 4);
        struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
        ProtobufCMessage *m = NULL;
        struct err e = {0};
        assert_int_equal(wire_unpack(FRAME, bytes + header + 4, n - header - 4, a, &m, &e), 0);
        const Stockade__V1__Frame *g = (const Stockade__V1__Frame *)m;
        assert_int_equal(g->kind, f.kind);
        assert_string_equal(g->method, f.method);
        assert_memory_equal(g->payload.data, payload, 3);
        assert_true(g->timeout_us == UINT64_MAX && g->credit == UINT32_MAX);
        assert_string_equal(g->metadata[0]->value, meta.value);
        free(bytes);
    }
}

static void
unknown_fields_are_skipped_and_forgotten(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    ProtobufCMessage *m = NULL;
    struct err e = {0};
    const char bytes[] = "\x08\x01\xf8\x3e\x05\x42\x07\x0a\x01k\xfa\x3e\x01z";
    assert_int_equal(wire_unpack(FRAME, BYTES(bytes), a, &m, &e), 0);
    const Stockade__V1__Frame *f = (const Stockade__V1__Frame *)m;
    assert_int_equal(f->base.n_unknown_fields, 0);
    assert_int_equal(f->metadata[0]->base.n_unknown_fields, 0);
    assert_string_equal(f->metadata[0]->key, "k");
    assert_int_equal(f->kind, 1);
}

static void
an_empty_message_unpacks(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    ProtobufCMessage *m = NULL;
    struct err e = {0};
    assert_int_equal(wire_unpack(FRAME, NULL, 0, a, &m, &e), 0);
    assert_non_null(m);
}

static void
wrong_lengths_are_not_a_header(void **state)
{
    (void)state;
    uint64_t body = 0;
    assert_int_equal(
        sp_header_read((const uint8_t *)BYTES("\xff\xff\xff\xff\xff\xff\xff\xff"), false, &body),
        -EPROTO);
    assert_int_equal(
        sp_header_read((const uint8_t *)BYTES("\xff\xff\xff\xff\xff\xff\xff\xe0"), false, &body),
        -EPROTO);
    assert_int_equal(sp_header_read((const uint8_t *)BYTES("\0\0\0\0\0\x40\0\x01"), false, &body),
                     -EPROTO);
    assert_int_equal(sp_header_read((const uint8_t *)BYTES("\0\0\0\0\0\0\0\x03"), false, &body),
                     -EPROTO);
    assert_int_equal(sp_header_read((const uint8_t *)BYTES("\0"), true, &body), -EPROTO);
    assert_int_equal(sp_header_read((const uint8_t *)BYTES("\x02\0\0\0\0\0\0\0\x04"), true, &body),
                     -EPROTO);
    assert_int_equal(body, 0);
    assert_int_equal(sp_header_read((const uint8_t *)BYTES("\0\0\0\0\0\x40\0\0"), false, &body), 1);
    assert_int_equal(body, WIRE_FRAME_BYTES_MAX);
}

static void
a_hello_is_eight_bytes_of_the_right_protocol(void **state)
{
    (void)state;
    uint8_t hello[SP_HELLO_BYTES];
    sp_hello(hello, SP_PROTO_REQ);
    assert_memory_equal(hello, "\0SP\0\0\x30\0\0", 8);
    assert_false(sp_hello_is(hello, SP_PROTO_REP));
    assert_true(sp_hello_is(hello, SP_PROTO_REQ));
    hello[7] = 1;
    assert_false(sp_hello_is(hello, SP_PROTO_REQ));
}

static void
a_frame_above_4_MiB_is_not_packed(void **state)
{
    (void)state;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    size_t n = 0;
    f.payload.len = WIRE_FRAME_BYTES_MAX - 8;
    f.payload.data = calloc(1, f.payload.len);
    assert_null(wire_pack_frame(true, 1, &f.base, &n));
    f.payload.len -= 1;
    uint8_t *bytes = wire_pack_frame(true, 1, &f.base, &n);
    assert_non_null(bytes);
    assert_int_equal(n, WIRE_FRAME_BYTES_MAX + 9);
    free(bytes);
    free(f.payload.data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_bytes_are_refused_with_the_field_that_is_wrong),
        cmocka_unit_test(nesting_of_58_KB_is_refused_and_32_levels_pass),
        cmocka_unit_test(a_megabyte_of_empty_submessages_is_refused),
        cmocka_unit_test(packed_elements_count),
        cmocka_unit_test(a_message_that_does_not_fit_into_the_arena_is_refused),
        cmocka_unit_test(wrong_lengths_are_not_a_header),
        cmocka_unit_test(a_frame_above_4_MiB_is_not_packed),
        cmocka_unit_test(packing_and_unpacking_keeps_a_frame),
        cmocka_unit_test(unknown_fields_are_skipped_and_forgotten),
        cmocka_unit_test(an_empty_message_unpacks),
        cmocka_unit_test(a_hello_is_eight_bytes_of_the_right_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
