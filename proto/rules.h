// SPDX-License-Identifier: Apache-2.0
// The tables of validate.h: the rules in a FileDescriptorSet for every method and field. Constant after rules_read().
#pragma once

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

// Bounds of one field; 0 means none (see options.proto).
struct field_rule {
    uint32_t number;
    bool map, required, has_pattern;
    uint32_t len_min, len_max, items_max, key_len_max, value_len_max, total_len_max;
    int64_t min, max;
    const char *pattern;
    regex_t compiled; // of `pattern`, anchored at both ends
};

// The rules of one message, fields by number.
struct message_rules {
    const char *name; // "stockade.v1.Frame"
    struct field_rule *fields;
    size_t fields_n;
};

// The rules of one method.
struct method_rules {
    const char *path;
    const char *scope;
    const char *others_scope; // "": none
    const char *wakes;        // a field of the request; "": none
    uint32_t deadline_ms_max; // 0: none
    bool idempotent;
    bool begins;
    bool client_streaming;
    bool server_streaming;
};

struct rules;

// Reads a serialized FileDescriptorSet. Refuses (INVALID_ARGUMENT, with the method or field): a method without a scope,
// a string, bytes, repeated or map field without its bound, a pattern that does not compile. Messages outside of
// packages that begin with "stockade", and those of options.proto, need no rules. Owned: rules_free().
int rules_new(const uint8_t *set, size_t n, struct rules **out, struct err *e);
void rules_free(struct rules *r);

// NULL: not found. Borrowed from r.
const struct message_rules *rules_message(const struct rules *r, const char *name);
const struct field_rule *rules_field(const struct message_rules *m, uint32_t number);
const struct method_rules *rules_method(const struct rules *r, const char *path);

// Methods by index, in the order of their paths; NULL at the end.
const struct method_rules *rules_method_at(const struct rules *r, size_t i);
