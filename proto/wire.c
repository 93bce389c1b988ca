// SPDX-License-Identifier: Apache-2.0
// See wire.h. The scan reads the bytes along the descriptor and allocates nothing. Only accepted bytes reach
// protobuf-c's unpacker. The scan refuses more than the unpacker would, so afterwards the unpacker can only fail for
// lack of memory.
#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "google/protobuf/timestamp.pb-c.h"
#include "path.h"
#include "utf8.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

enum {
    VARINT_BYTES_MAX = 10,
    FIELD_NUMBER_MAX = (1 << 29) - 1, // protobuf's own limit
    ID_BYTES = 4,
};

// The remaining budget of a scan, and where it reports an error.
struct scan {
    uint32_t elements_left;
    uint32_t elements_max;
    struct err *e;
};

struct bytes {
    const uint8_t *p;
    size_t n;
};

// Reads a varint. False: truncated, longer than ten bytes or above 64 bits.
static bool
take_varint(struct bytes *b, uint64_t *value)
{
    uint64_t v = 0;
    for (size_t i = 0; i < b->n && i < VARINT_BYTES_MAX; i++) {
        uint8_t byte = b->p[i];
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            return false;
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            b->p += i + 1;
            b->n -= i + 1;
            *value = v;
            return true;
        }
    }
    return false;
}

static bool
take_bytes(struct bytes *b, size_t n, struct bytes *taken)
{
    if (n > b->n)
        return false;
    *taken = (struct bytes){b->p, n};
    b->p += n;
    b->n -= n;
    return true;
}

static int
check_string(struct bytes b, const struct path *at, struct err *e)
{
    while (b.n > 0) {
        if (b.p[0] == '\0')
            return path_refuse(at, e, "text holds a NUL byte");
        size_t n = b.p[0] < 0x80 ? 1 : utf8_decode(b.p, b.n, NULL);
        if (n == 0)
            return path_refuse(at, e, "text is not valid UTF-8");
        b.p += n;
        b.n -= n;
    }
    return 0;
}

// The wire type of an unpacked scalar of this type.
static enum wire_type
scalar_wire_type(ProtobufCType type)
{
    if (type == PROTOBUF_C_TYPE_SFIXED32 || type == PROTOBUF_C_TYPE_FIXED32 ||
        type == PROTOBUF_C_TYPE_FLOAT)
        return WIRE_32;
    if (type == PROTOBUF_C_TYPE_SFIXED64 || type == PROTOBUF_C_TYPE_FIXED64 ||
        type == PROTOBUF_C_TYPE_DOUBLE)
        return WIRE_64;
    if (type == PROTOBUF_C_TYPE_STRING || type == PROTOBUF_C_TYPE_BYTES ||
        type == PROTOBUF_C_TYPE_MESSAGE)
        return WIRE_BYTES;
    return WIRE_VARINT;
}

static int
count_elements(struct scan *s, size_t n, const struct path *at)
{
    if (n > s->elements_left)
        return path_refuse(at, s->e, "more than %u fields and elements in one message",
                           (unsigned)s->elements_max);
    s->elements_left -= (uint32_t)n;
    return 0;
}

static int
check_packed(struct scan *s, enum wire_type element, struct bytes b, const struct path *at)
{
    size_t width = element == WIRE_32 ? 4 : 8;
    if (element != WIRE_VARINT) {
        if (b.n % width != 0)
            return path_refuse(at, s->e, "packed elements are truncated");
        return count_elements(s, b.n / width, at);
    }
    while (b.n > 0) {
        uint64_t value;
        int failed = count_elements(s, 1, at);
        if (failed)
            return failed;
        if (!take_varint(&b, &value))
            return path_refuse(at, s->e, "packed elements are truncated");
    }
    return 0;
}

static int scan_message(struct scan *s, const ProtobufCMessageDescriptor *type, struct bytes b,
                        const struct path *at, unsigned depth);

// One known field whose length precedes its bytes.
static int
scan_delimited(struct scan *s, const ProtobufCFieldDescriptor *field, struct bytes b,
               const struct path *at, unsigned depth)
{
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return check_string(b, at, s->e);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return scan_message(s, field->descriptor, b, at, depth + 1);
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return 0;
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return path_refuse(at, s->e, "wrong wire type");
    return check_packed(s, scalar_wire_type(field->type), b, at);
}

// According to protobuf, a sub-message in two pieces is merged; protobuf-c loses the numbers of the first piece. No
// encoder makes such pieces, so they are refused.
static int
check_once(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
           uint64_t *seen, const struct path *at, struct err *e)
{
    if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE ||
        field->label == PROTOBUF_C_LABEL_REPEATED)
        return 0;
    ptrdiff_t index = field - type->fields;
    assert(index < 64);
    if (*seen >> index & 1)
        return path_refuse(at, e, "a duplicate field");
    *seen |= UINT64_C(1) << index;
    return 0;
}

// The value after a tag; `field` is NULL for an unknown one.
static int
scan_value(struct scan *s, const ProtobufCFieldDescriptor *field, uint64_t wire, struct bytes *b,
           const struct path *at, unsigned depth)
{
    uint64_t value;
    struct bytes inner;
    bool whole = false;
    if (wire == WIRE_VARINT)
        whole = take_varint(b, &value);
    else if (wire == WIRE_64)
        whole = take_bytes(b, 8, &inner);
    else if (wire == WIRE_32)
        whole = take_bytes(b, 4, &inner);
    else if (wire == WIRE_BYTES)
        whole = take_varint(b, &value) && value <= b->n && take_bytes(b, (size_t)value, &inner);
    else
        return path_refuse(at, s->e, "wire type %u is not valid", (unsigned)wire);
    if (!whole)
        return path_refuse(at, s->e, "truncated, or a number or length beyond its range");
    if (field == NULL)
        return 0;
    if (wire == WIRE_BYTES)
        return scan_delimited(s, field, inner, at, depth);
    if (wire != scalar_wire_type(field->type))
        return path_refuse(at, s->e, "wrong wire type");
    return 0;
}

static int
scan_message(struct scan *s, const ProtobufCMessageDescriptor *type, struct bytes b,
             const struct path *at, unsigned depth)
{
    if (depth > WIRE_DEPTH_MAX)
        return path_refuse(at, s->e, "nested deeper than %d messages", WIRE_DEPTH_MAX);
    uint64_t seen = 0;
    while (b.n > 0) {
        uint64_t tag;
        int failed = count_elements(s, 1, at);
        if (failed)
            return failed;
        if (!take_varint(&b, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
            return path_refuse(at, s->e, "a field's tag is not valid");
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        struct path here = {at, field != NULL ? field->name : "(unknown field)", -1};
        failed = check_once(type, field, &seen, &here, s->e);
        if (!failed)
            failed = scan_value(s, field, tag & 7, &b, &here, depth);
        if (failed)
            return failed;
    }
    return 0;
}

static int
scan_top(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, uint32_t elements_max,
         struct err *e)
{
    struct scan s = {elements_max, elements_max, e};
    return scan_message(&s, type, (struct bytes){bytes, n}, NULL, 1);
}

int
wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct err *e)
{
    return scan_top(type, bytes, n, WIRE_ELEMENTS_MAX, e);
}

static int
unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct arena *a,
       ProtobufCMessage **out, struct err *e)
{
    static const uint8_t nothing[1];
    ProtobufCMessage *m = protobuf_c_message_unpack(type, arena_allocator(a), n,
                                                    n > 0 ? (const uint8_t *)bytes : nothing);
    if (m == NULL)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "unpack %s: more than its share of memory",
                       type->name);
    *out = m;
    return 0;
}

static void forget_unknown(ProtobufCMessage *m);

static void
forget_unknown_in_field(const ProtobufCFieldDescriptor *field, ProtobufCMessage *m)
{
    const uint8_t *base = (const uint8_t *)m;
    const uint8_t *member = base + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n;
        memcpy(&n, base + field->quantifier_offset, sizeof n);
        ProtobufCMessage **items;
        memcpy(&items, member, sizeof(void *));
        for (size_t i = 0; i < n; i++)
            forget_unknown(items[i]);
        return;
    }
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t which;
        memcpy(&which, base + field->quantifier_offset, sizeof which);
        if (which != field->id)
            return;
    }
    ProtobufCMessage *item;
    memcpy(&item, member, sizeof(void *));
    if (item != NULL)
        forget_unknown(item);
}

// Unknown fields are not passed on if a message is packed again.
static void
forget_unknown(ProtobufCMessage *m)
{
    m->n_unknown_fields = 0;
    m->unknown_fields = NULL;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++)
        if (m->descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            forget_unknown_in_field(&m->descriptor->fields[i], m);
}

int
wire_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct arena *a,
            ProtobufCMessage **out, struct err *e)
{
    int failed = wire_check(type, bytes, n, e);
    if (failed)
        return failed;
    failed = unpack(type, bytes, n, a, out, e);
    if (failed)
        return failed;
    forget_unknown(*out);
    return 0;
}

int
wire_unpack_schema(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n,
                   struct arena *a, ProtobufCMessage **out, struct err *e)
{
    int failed = scan_top(type, bytes, n, WIRE_SCHEMA_ELEMENTS_MAX, e);
    return failed ? failed : unpack(type, bytes, n, a, out, e);
}

void *
wire_make(struct arena *a, const ProtobufCMessageDescriptor *type)
{
    void *m = arena_alloc(a, type->sizeof_message);
    if (m != NULL)
        type->message_init(m);
    return m;
}

Google__Protobuf__Timestamp *
wire_make_time(struct arena *a, int64_t seconds, int32_t nanos)
{
    Google__Protobuf__Timestamp *m = wire_make(a, &google__protobuf__timestamp__descriptor);
    if (m != NULL) {
        m->seconds = seconds;
        m->nanos = nanos;
    }
    return m;
}

const uint8_t *
wire_descriptor_set(size_t *n)
{
    static const uint8_t set[] = {
#include "descriptor_set.inc"
    };
    *n = sizeof set;
    return set;
}

void
sp_hello(uint8_t out[SP_HELLO_BYTES], uint16_t protocol)
{
    const uint8_t hello[SP_HELLO_BYTES] = {
        0, 'S', 'P', 0, (uint8_t)(protocol >> 8), (uint8_t)protocol, 0, 0};
    memcpy(out, hello, sizeof hello);
}

bool
sp_hello_is(const uint8_t in[SP_HELLO_BYTES], uint16_t protocol)
{
    uint8_t expected[SP_HELLO_BYTES];
    sp_hello(expected, protocol);
    return memcmp(in, expected, sizeof expected) == 0;
}

size_t
sp_header_bytes(bool ipc)
{
    return ipc ? 9 : 8;
}

size_t
sp_header(uint8_t *out, bool ipc, uint64_t body_bytes)
{
    if (ipc)
        *out++ = 1;
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(body_bytes >> (56 - 8 * i));
    return sp_header_bytes(ipc);
}

int
sp_header_read(const uint8_t *in, size_t n, bool ipc, uint64_t *body_bytes)
{
    if (ipc && n > 0 && in[0] != 1)
        return -EPROTO;
    if (n < sp_header_bytes(ipc))
        return 0;
    uint64_t length = 0;
    for (unsigned i = 0; i < 8; i++)
        length = length << 8 | in[(ipc ? 1 : 0) + i];
    if (length < ID_BYTES || length > WIRE_FRAME_BYTES_MAX)
        return -EPROTO;
    *body_bytes = length;
    return 1;
}

size_t
wire_frame_bytes(bool ipc, const ProtobufCMessage *frame)
{
    size_t body = ID_BYTES + protobuf_c_message_get_packed_size(frame);
    return body > WIRE_FRAME_BYTES_MAX ? 0 : sp_header_bytes(ipc) + body;
}

void
wire_put_frame(uint8_t *out, size_t n, bool ipc, uint32_t id, const ProtobufCMessage *frame)
{
    uint8_t *p = out + sp_header(out, ipc, n - sp_header_bytes(ipc));
    for (unsigned i = 0; i < ID_BYTES; i++)
        *p++ = (uint8_t)(id >> (24 - 8 * i));
    (void)protobuf_c_message_pack(frame, p);
}

uint8_t *
wire_pack_frame(bool ipc, uint32_t id, const ProtobufCMessage *frame, size_t *n)
{
    size_t bytes = wire_frame_bytes(ipc, frame);
    uint8_t *out = bytes > 0 ? malloc(bytes) : NULL;
    if (out == NULL)
        return NULL;
    wire_put_frame(out, bytes, ipc, id, frame);
    *n = bytes;
    return out;
}

size_t
wire_element_bytes(ProtobufCType type)
{
    static const size_t bytes[] = {
        [PROTOBUF_C_TYPE_INT32] = 4,
        [PROTOBUF_C_TYPE_SINT32] = 4,
        [PROTOBUF_C_TYPE_SFIXED32] = 4,
        [PROTOBUF_C_TYPE_INT64] = 8,
        [PROTOBUF_C_TYPE_SINT64] = 8,
        [PROTOBUF_C_TYPE_SFIXED64] = 8,
        [PROTOBUF_C_TYPE_UINT32] = 4,
        [PROTOBUF_C_TYPE_FIXED32] = 4,
        [PROTOBUF_C_TYPE_UINT64] = 8,
        [PROTOBUF_C_TYPE_FIXED64] = 8,
        [PROTOBUF_C_TYPE_FLOAT] = 4,
        [PROTOBUF_C_TYPE_DOUBLE] = 8,
        [PROTOBUF_C_TYPE_BOOL] = sizeof(protobuf_c_boolean),
        [PROTOBUF_C_TYPE_ENUM] = 4,
        [PROTOBUF_C_TYPE_STRING] = sizeof(char *),
        [PROTOBUF_C_TYPE_BYTES] = sizeof(ProtobufCBinaryData),
        [PROTOBUF_C_TYPE_MESSAGE] = sizeof(void *),
    };
    return bytes[type];
}

ProtobufCBinaryData
wire_bytes(const void *bytes, size_t n)
{
    union {
        const void *from;
        uint8_t *to;
    } data = {.from = bytes};
    return (ProtobufCBinaryData){n, data.to};
}
