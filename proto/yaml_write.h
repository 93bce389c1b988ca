// SPDX-License-Identifier: Apache-2.0
// A message of the schema as YAML that yaml_message() reads back: keys are names of fields, and values that are not set are left out.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

enum yaml_style {
    YAML_LINE,  // all in one line: {a: b, c: [d]}
    YAML_BLOCK, // mappings and lists of mappings on lines of their own
};

// Writes at most n bytes with the end, as snprintf(3) does, and returns the length of the whole text. Fields are those that
// yaml_message() reads.
size_t yaml_write(const ProtobufCMessage *m, enum yaml_style style, char *out, size_t n);

// Writes a text in double quotes, which cannot end a line and hides nothing: control characters, those that end a line for YAML and those
// that change the direction of text are escaped, also where yaml_write() writes texts. Otherwise as above.
size_t yaml_write_quoted(const char *text, char *out, size_t n);
