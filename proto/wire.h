// SPDX-License-Identifier: Apache-2.0
// Unpacking and framing: the only file that unpacks protobuf, and the SP framing of both ends.
//
// protobuf-c has no depth limit (58 KB of nesting crash it), amplifies 45x, and checks neither UTF-8 nor NUL. So every
// byte string from a peer, a guest or a file passes wire_unpack(): first a scan along the descriptors (depth, number of
// elements, UTF-8, NUL, wrong lengths, duplicate sub-messages), then the unpacker, into an arena.
//
// SP (nng's "scalability protocols" over a stream; rfc/sp-tcp-mapping-01 of nanomsg): both sides send 8 bytes 00 'S'
// 'P' 00 <u16 protocol> 00 00, then messages. tcp: u64 big-endian length, body. ipc: one byte 01 before that. Body of
// REQ/REP: u32 big-endian id with bit 31 set, then our Frame.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "arena.h"
#include "err.h"

enum {
    WIRE_FRAME_BYTES_MAX = 4 * 1024 * 1024, // body of one SP message, gRPC's default
    WIRE_DATA_BYTES_MAX = 64 * 1024,        // payload of one DATA frame
    WIRE_METADATA_BYTES_MAX = 8 * 1024,     // keys and values of one call
    WIRE_DEPTH_MAX = 32,                    // nested messages
    WIRE_ELEMENTS_MAX = 16384,              // fields of one message, including sub-messages
    WIRE_SCHEMA_ELEMENTS_MAX = 1024 * 1024,
    WIRE_ARENA_BYTES_MAX = 8 * 1024 * 1024, // of one request, unpacked
    WIRE_CREDIT_DEFAULT = 32,               // credit of a CALL that sets none
    SP_HELLO_BYTES = 8,
    SP_PROTO_REQ = 0x30,
    SP_PROTO_REP = 0x31,
};

#define WIRE_ID_REQUEST 0x80000000u // set in the id of a request (SP)

// Scans and unpacks a message. Refuses (INVALID_ARGUMENT, with the field's path if there is one): truncated or too long
// input, depth beyond WIRE_DEPTH_MAX, more than WIRE_ELEMENTS_MAX fields, a duplicate sub-message that is not repeated,
// strings that are not UTF-8 or contain NUL, and messages that do not fit into the arena (RESOURCE_EXHAUSTED). Unknown
// fields are skipped. On success *out is the message: borrowed, valid as long as the arena. Any thread.
int wire_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n,
                struct arena *a, ProtobufCMessage **out, struct err *e);

// Only the scan.
int wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct err *e);

// Like wire_unpack(), for our own schemas (a FileDescriptorSet): up to WIRE_SCHEMA_ELEMENTS_MAX fields. Unknown
// fields are kept, because custom options are unknown fields.
int wire_unpack_schema(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n,
                       struct arena *a, ProtobufCMessage **out, struct err *e);

// The size of a field's value in memory: of what the field itself holds, or of one element of a repeated field.
size_t wire_element_bytes(ProtobufCType type);

// A field of bytes that are only packed: protobuf-c wants a writable pointer there, and packing only reads. Borrowed.
ProtobufCBinaryData wire_bytes(const void *bytes, size_t n);

// An empty message of a type, and a Timestamp; NULL: the arena is full. Borrowed, valid as long as the arena.
void *wire_make(struct arena *a, const ProtobufCMessageDescriptor *type);
struct Google__Protobuf__Timestamp;
struct Google__Protobuf__Timestamp *wire_make_time(struct arena *a, int64_t seconds, int32_t nanos);

// The serialized FileDescriptorSet of the public API, as embedded at build time. Borrowed, always valid.
const uint8_t *wire_descriptor_set(size_t *n);

// The hello: the first 8 bytes of a connection.
void sp_hello(uint8_t out[SP_HELLO_BYTES], uint16_t protocol);

// True if the 8 bytes are a hello of this protocol.
bool sp_hello_is(const uint8_t in[SP_HELLO_BYTES], uint16_t protocol);

// Length of the header before a body on a transport: 9 for ipc, 8 for tcp.
size_t sp_header_bytes(bool ipc);

// Writes this header. Returns its length.
size_t sp_header(uint8_t *out, bool ipc, uint64_t body_bytes);

// Reads this header: 1 and *body_bytes if n bytes contain a whole header, 0 if more bytes are needed, -EPROTO if it is
// not a header or the body is longer than WIRE_FRAME_BYTES_MAX or shorter than 4.
int sp_header_read(const uint8_t *in, size_t n, bool ipc, uint64_t *body_bytes);

// Packs header, id and a message (a Frame) into one malloc'ed buffer, ready to be sent. The caller frees it with
// free(). NULL: out of memory, or the frame is larger than WIRE_FRAME_BYTES_MAX.
uint8_t *wire_pack_frame(bool ipc, uint32_t id, const ProtobufCMessage *frame, size_t *n);

// The same in two steps, into the caller's buffer: the size (0: larger than WIRE_FRAME_BYTES_MAX), and writing exactly
// that many bytes.
size_t wire_frame_bytes(bool ipc, const ProtobufCMessage *frame);
void wire_put_frame(uint8_t *out, size_t n, bool ipc, uint32_t id, const ProtobufCMessage *frame);
