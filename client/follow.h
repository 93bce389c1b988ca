// SPDX-License-Identifier: Apache-2.0
// Run, Start and Attach: a stream of ProcessEvents to the program's handlers, and to a result.
#pragma once

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "stockade.h"

struct following {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *type; // of the messages: one ProcessEvent in each
    const struct stockade_call_options *options;
    const struct stockade_handlers *handlers; // or NULL
    bool detach;                              // until `started`
};

// Waits for the end. *out (or NULL) gets the result.
int follow(struct stockade *s, const struct following *f, const struct stockade_result **out,
           struct stockade_error *e);

// The same without waiting.
int follow_begin(struct stockade *s, const struct following *f, const struct stockade_async *a,
                 uint64_t *call, struct stockade_error *e);
