// SPDX-License-Identifier: Apache-2.0
// One unary call with messages on both sides.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/arena.h"
#include "stockade.h"

#define INVOKE_FOREVER UINT32_MAX // no deadline

// From the answer to a struct of stockade.h, which lives with it in the arena. False when the arena is full.
typedef bool invoke_reader(void *to, struct arena *a, const ProtobufCMessage *from);

struct invocation {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response; // its type
    const struct stockade_call_options *options;
    uint32_t deadline_ms; // where options say none; 0: a minute
    size_t size;          // of what `read` makes; 0: the answer says nothing but that it worked
    invoke_reader *read;
};

// `out` is a `const struct stockade_X **`, or NULL for nobody: it gets what was read, handed out.
int invoke(struct stockade *s, const struct invocation *i, void *out, struct stockade_error *e);

// Packs a request. Owned: free(). Never NULL on success.
int invoke_pack(const ProtobufCMessage *m, uint8_t **out, size_t *n, struct stockade_error *e);

// Unpacks one hostile message; DATA_LOSS when it is none.
int invoke_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n,
                  struct arena *a, ProtobufCMessage **out, struct stockade_error *e);

// RESOURCE_EXHAUSTED: what came does not fit into the bounded memory that it gets.
int invoke_too_large(struct stockade_error *e);
