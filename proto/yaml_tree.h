// SPDX-License-Identifier: Apache-2.0
// A YAML file in UTF-8 as a tree of text, mappings and lists; all other features of YAML are refused.
//
// libyaml's event parser reads it. Aliases, anchors, tags, further documents, duplicate keys, keys that are not plain
// text, control bytes, nesting beyond YAML_DEPTH_MAX, more than YAML_NODES_MAX nodes and more than YAML_KEYS_MAX keys of one mapping are errors with line and
// column.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { YAML_DEPTH_MAX = 10, YAML_NODES_MAX = 65536, YAML_KEYS_MAX = 1024 };

enum yaml_kind { YAML_TEXT, YAML_MAP, YAML_LIST };

struct yaml_node {
    enum yaml_kind kind;
    const char *text; // TEXT; borrowed from the tree
    const char *key;  // of a mapping's entry
    uint32_t line, column;
    struct yaml_node *child; // first
    struct yaml_node *next;  // sibling
};

struct yaml;

// Reads a file. Free the tree with yaml_tree_free(). *root is NULL for an empty file. lines: values may have several lines, and tabs.
int yaml_tree_read(const char *name, const void *bytes, size_t n, bool lines, struct yaml **out,
                   struct yaml_node **root, struct err *e);
void yaml_tree_free(struct yaml *y);
size_t yaml_tree_bytes(const struct yaml *y); // of memory
