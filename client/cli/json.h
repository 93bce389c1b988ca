// SPDX-License-Identifier: Apache-2.0
// The output of `-o json`: names of the .proto files, enums without their prefix, figures as plain numbers (null if the
// host cannot provide one), times as RFC 3339 in UTC.
#pragma once

#include <jansson.h>

#include "client/stockade.h"

// Each returns a new reference; NULL: out of memory.
// Of any message of the schema, as the library unpacked it.
json_t *json_of_message(const void *message);
json_t *json_of_event(const struct stockade_event *e);
json_t *json_of_usage(const struct stockade_usage *u);
json_t *json_of_network_use(const struct stockade_network_use *n);
// Events that a follower missed: {"gap": {...}}, as in SubscribeResponse.
json_t *json_of_gap(uint64_t from, uint64_t to, uint64_t count, const char *reason);
json_t *json_of_finding(const struct stockade_finding *f);
json_t *json_of_record(const struct stockade_record *r);
json_t *json_of_result(const struct stockade_result *r);
json_t *json_of_sandbox(const struct stockade_sandbox *b);
json_t *json_of_process(const struct stockade_process *p);
json_t *json_of_info(const struct stockade_info *i);
json_t *json_of_error(const struct stockade_error *e);
// Milliseconds since 1970; null for 0.
json_t *json_of_time(int64_t ms);

// Sets `name` in object to the text, with invalid UTF-8 replaced by U+FFFD, and in that case also "NAME_base64".
int json_set_bytes(json_t *object, const char *name, const void *bytes, size_t n);

// Prints one line on stdout and releases the value. 0, or EXIT_PROBLEM if it could not be written.
int json_put(json_t *value);

// Prints {"error": {...}}.
int json_put_error(const struct stockade_error *e);

// Prints a list as one indented array, because one element per line would not be one JSON document.
int json_put_list(json_t *array);

// The end of a list that was read with this exit code: prints it as the options say, the array or the table, and frees both. Returns the
// exit code. Each may be NULL.
struct options;
struct table;
int json_end_listing(const struct options *o, struct table *t, json_t *array, int code);

// policy.c
json_t *json_of_policy(const struct stockade_policy *p);
