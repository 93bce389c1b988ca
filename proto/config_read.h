// SPDX-License-Identifier: Apache-2.0
// Readers that store a value of a configuration file in a field of a struct, for tables of keys: of the broker, and of the
// exporter. An error names file, line, column and key.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/quantity.h"
#include "yaml_tree.h"

enum { CONFIG_FILE_MAX = 256 * 1024 };

struct config_reader {
    const char *name; // of the file
    struct err *e;
};

struct config_key;

// Reads `n` into the field of *to that the key names. Returns 0, or the result of config_fail().
typedef int config_read_fn(const struct config_reader *r, const struct config_key *k,
                           struct yaml_node *n, void *to);

// One key of a mapping. `to` is the struct for the mapping; `offset` is the field in it.
struct config_key {
    const char *name;
    config_read_fn *read;
    size_t offset;
    size_t size;                   // text: of the buffer; numbers: 4 or 8; bool: 1
    uint64_t min, max;             // numbers
    const struct config_key *keys; // of a section
};

#define AT(type, member) offsetof(struct type, member), sizeof(((struct type *)0)->member)
#define SECTION(name, keys)                                                                        \
    {                                                                                              \
        name, config_read_section, 0, 0, 0, 0, keys                                                \
    }

// INVALID_ARGUMENT with file, line, column and key of `n`. Returns its negative errno.
int config_fail(const struct config_reader *r, const struct yaml_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The same for the key of `n`, which names no `what` ("key", "limit"): suggests the nearest of the names.
int config_no_such(const struct config_reader *r, const struct yaml_node *n, const char *what,
                   const char *const *names, size_t names_n);

// The field of a key; and storing a number or bool in it.
void *config_field(const struct config_key *k, void *to);
void config_store(const struct config_key *k, void *to, uint64_t v);

// Reads a mapping by a table of keys, terminated by {0}.
int config_read_map(const struct config_reader *r, const struct config_key *keys,
                    struct yaml_node *map, void *to);
config_read_fn config_read_section; // k->keys

// Copies an absolute path without repeated slashes and one at its end. False: not absolute, or with a component "." or
// "..", or longer than n - 1.
bool config_clean_path(const char *path, char *out, size_t n);

// Reads the bytes of a file: regular, owned by root or the caller, not writable by others. *owned*: free(*out).
int config_file(const char *path, char **out, size_t *out_n, struct err *e);
// The same, of a file that may have up to `most` bytes; *out_n is larger if it has more.
int config_file_up_to(const char *path, size_t most, char **out, size_t *out_n, struct err *e);

config_read_fn config_read_bool; // true or false
config_read_fn config_read_text;
config_read_fn config_read_path; // absolute: see config_clean_path()
config_read_fn
    config_read_name; // letters, digits, '.', '_' and '-', as template names and host names have them

// Reads one of `words` (terminated by NULL); *out is its index.
int config_word(const struct config_reader *r, const struct yaml_node *n, const char *const *words,
                uint32_t *out);
// The same; stores `first` plus its index in the field of the key.
int config_read_word(const struct config_reader *r, const struct config_key *k,
                     const struct yaml_node *n, void *to, const char *const *words, uint32_t first);

// Numbers from k->min to k->max: plain, in bytes ("64K"), in milliseconds ("30s", or "30").
config_read_fn config_read_count;
config_read_fn config_read_size;
config_read_fn config_read_ms;

// The same for a value without a key, in units of proto/quantity.h.
int config_number(const struct config_reader *r, const struct yaml_node *n,
                  const struct quantity_unit *units, uint64_t min, uint64_t max, uint64_t *out);
