// SPDX-License-Identifier: Apache-2.0
// A request in JSON as a message: the reverse of stockade_json(), for the fields that requests of the dashboard have. Names as in the
// .proto files, enums in lower case without their prefix, bytes as hex digits. The input is hostile.
#pragma once

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/arena.h"
#include "proto/err.h"

// The message of an object, borrowed from the arena. An empty text is an empty message. INVALID_ARGUMENT: no JSON, a key that the message
// does not have or has twice, or a value of the wrong type or out of its type's range; *e names the field. Maps are not read. The
// broker checks everything else.
int json_request(const char *text, size_t n, const ProtobufCMessageDescriptor *type,
                 struct arena *a, ProtobufCMessage **out, struct err *e);
