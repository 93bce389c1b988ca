// One unary call with messages on both sides.
#pragma once

#include "../proto/arena.h"
#include "stockade.h"

enum { UNARY_DEADLINE_MS = 60000 }; // where neither the caller nor the method says otherwise

struct invocation {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response; // its type
    const struct stockade_call_options *options;
    uint32_t deadline_ms; // where options say none; 0: none
};

// On success *arena is the caller's (arena_free() or handed out) and *out lives in it.
int invoke(struct stockade *s, const struct invocation *i, struct arena **arena,
           ProtobufCMessage **out, struct stockade_error *e);

// Packs a request. Owned: free(). Never NULL on success.
int invoke_pack(const ProtobufCMessage *m, uint8_t **out, size_t *n, struct stockade_error *e);

// Unpacks one hostile message; DATA_LOSS when it is none.
int invoke_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n,
                  struct arena *a, ProtobufCMessage **out, struct stockade_error *e);

// RESOURCE_EXHAUSTED: what came does not fit into the bounded memory that it gets.
int invoke_too_large(struct stockade_error *e);
