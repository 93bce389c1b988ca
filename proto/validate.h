// SPDX-License-Identifier: Apache-2.0
// Rules that stand in the .proto files as custom options (options.proto), read from the descriptor set at start.
//
// A descriptor set in which something has no bound is refused: what is not bounded cannot be served.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "err.h"

// Checks a message against the options (stockade.v1.field) of its fields, and those of its sub-messages:
// INVALID_ARGUMENT with the field's path. The rules are read once by validate_init(). Any thread.
int validate_message(const ProtobufCMessage *m, struct err *e);

// Reads the embedded descriptor set once: rules of every field and method. Fails when a method lacks a scope, or a
// string, bytes, repeated or map field lacks its bound (the start-up self-test). Not thread-safe: call it first.
int validate_init(struct err *e);

// The same from another set, which takes the place of what was read before: for servers of further services, and
// tests. The bytes are copied. On failure the rules stay as they were.
int validate_load(const uint8_t *set, size_t n, struct err *e);

// Every method of the set, in the order of their paths: i from 0 on until NULL. Borrowed, until the next load.
const struct method_rules *validate_method_at(size_t i);

// Rules of a method, by path ("/stockade.v1.ProcessService/Run"). NULL: no such method. Borrowed, until the next load.
struct method_rules {
    const char *path;
    const char *scope;
    uint32_t deadline_ms_max; // 0: none
    bool idempotent;
    bool begins;
    bool client_streaming;
    bool server_streaming;
};
const struct method_rules *validate_method(const char *path);
