// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects that are made of events. Strings come from jobs: jansson escapes control characters, and all beyond
// ASCII. Pure.
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "client/stockade.h"

enum { MEMBERS_TIME = 40 };

static inline void
put(json_t *to, const char *name, json_t *value)
{
    (void)json_object_set_new(to, name, value);
}

// "": no member.
static inline void
put_text(json_t *to, const char *name, const char *value)
{
    if (value[0] != '\0')
        put(to, name, json_string(value));
}

static inline void
put_number(json_t *to, const char *name, uint64_t value)
{
    put(to, name, json_integer((json_int_t)value));
}

// A new object of the event's details; prefix: of their names.
json_t *members_of_facts(const struct stockade_event *event, const char *prefix);

// Puts the labels of the event's sandbox, with a prefix.
void members_put_labels(json_t *to, const struct stockade_event *event, const char *prefix);

// The name of the event's sandbox; "": it has none. Borrowed from the event.
const char *members_sandbox_name(const struct stockade_event *event);

// RFC 3339 in UTC, with nanoseconds. "": out of range.
void members_time(int64_t time_ns, char out[MEMBERS_TIME]);

// The object as one line of ASCII with its line break; frees the object. *owned*: free(3). NULL: out of memory.
char *members_line(json_t *o);
