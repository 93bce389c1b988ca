// SPDX-License-Identifier: Apache-2.0
// One unary call with messages on both sides.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "stockade.h"

#define INVOKE_FOREVER UINT32_MAX // no deadline

// Converts the response to a struct of stockade.h, allocated from the same arena. False: the arena is full.
typedef bool invoke_reader(void *to, struct arena *a, const ProtobufCMessage *from);

struct invocation {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response; // its type
    const struct stockade_call_options *options;
    uint32_t deadline_ms; // the default of the options; 0: a minute
    size_t size;          // of the result of `read`; 0: the response is empty
    invoke_reader *read;
};

// `out` is a `const struct stockade_X **`, or NULL: it gets the returned object of `read`.
int invoke(struct stockade *s, const struct invocation *i, void *out, struct stockade_error *e);

// A call with an empty response.
int invoke_empty(struct stockade *s, const char *method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *response, struct stockade_error *e);

// Packs a request. Free it with free(). Never NULL on success.
int invoke_pack(const ProtobufCMessage *m, uint8_t **out, size_t *n, struct stockade_error *e);

// Unpacks one hostile message. DATA_LOSS: not a valid message. RESOURCE_EXHAUSTED: it does not fit into the arena, or there was no memory
// for one (NULL).
int invoke_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n,
                  struct arena *a, ProtobufCMessage **out, struct stockade_error *e);

// RESOURCE_EXHAUSTED: the response does not fit into its bounded memory.
int invoke_too_large(struct stockade_error *e);

// DATA_LOSS: a unary call ended with OK and without a response.
int invoke_no_response(struct stockade_error *e);
