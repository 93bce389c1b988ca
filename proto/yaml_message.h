// SPDX-License-Identifier: Apache-2.0
// A YAML file as a message of the schema: keys are names of fields, so there is one description of both. A key that the message
// does not have, one that is there twice, and a value of the wrong type or beyond the schema's bounds are errors with file, line and column.
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "arena.h"
#include "err.h"
#include "yaml_tree.h"

// A message of this type with the values of a mapping, borrowed from arena and tree. Fields are texts, numbers, flags, words of enums, messages,
// lists of texts or messages, and maps of texts. INVALID_ARGUMENT: see above; `name` is the file's. The bounds are those of the schema.
int yaml_message(const char *name, const struct yaml_node *n,
                 const ProtobufCMessageDescriptor *type, struct arena *a, ProtobufCMessage **out,
                 struct err *e);
