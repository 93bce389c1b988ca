// SPDX-License-Identifier: Apache-2.0
// Checks messages against the rules in the .proto files, which are custom options (options.proto), read from the
// descriptor set at the start.
//
// A descriptor set with a field that has no bound is refused: the broker serves only bounded fields.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "err.h"

struct method_rules; // rules.h

// Checks a message against the options (stockade.v1.field) of its fields, and those of its sub-messages:
// INVALID_ARGUMENT with the field's path. The rules are read once by validate_init(). Any thread.
int validate_message(const ProtobufCMessage *m, struct err *e);

// Reads the rules of every field and method from the embedded descriptor set, once. Fails if a method lacks a scope, or
// a string, bytes, repeated or map field lacks its bound (the start-up self-test). Not thread-safe: call it first.
int validate_init(struct err *e);

// Reads the rules from another set, which replaces the current one: for servers with other services, and for tests.
// The bytes are copied. On failure the rules do not change.
int validate_load(const uint8_t *set, size_t n, struct err *e);

// All methods of the set, in the order of their paths: i from 0 until NULL. Borrowed until the next load.
const struct method_rules *validate_method_at(size_t i);

// Rules of a method by its path ("/stockade.v1.ProcessService/Run"). NULL: not found. Borrowed, until the next load.
const struct method_rules *validate_method(const char *path);
