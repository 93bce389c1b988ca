// SPDX-License-Identifier: Apache-2.0
// The file of `stockade template build`: a message TemplateDefinition in YAML.
#pragma once

#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "proto/yaml_tree.h"
#include "stockade/v1/template_definition.pb-c.h"

enum { BUILD_FILE_MAX = 1024 * 1024, BUILD_STEPS_MAX = 40 };

struct build_file {
    const Stockade__V1__TemplateDefinition *definition; // borrowed from arena and tree
    uint32_t line[BUILD_STEPS_MAX];                     // of each step
    const struct yaml_node *root;                       // borrowed from tree
    struct arena *arena;
    struct yaml *tree;
    char *bytes;
};

// Checks the bytes of a file; `name` is for messages. INVALID_ARGUMENT: what is wrong, with line and column. Free it with
// build_file_free(), also after a failure.
int build_file_parse(const char *name, const void *bytes, size_t n, struct build_file *out,
                     struct err *e);

// "FILE:3:7: KEY" for a message about a key of the file, "FILE: KEY" if the file has it not. Returns out.
const char *build_file_location(const struct build_file *f, const char *name, const char *key,
                                char *out, size_t n);

// Reads it first.
int build_file_read(const char *path, struct build_file *out, struct err *e);
void build_file_free(struct build_file *f);
