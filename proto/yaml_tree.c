// SPDX-License-Identifier: Apache-2.0
// See yaml_tree.h.
#include "yaml_tree.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/arena.h"
#include "proto/utf8.h"

enum { TREE_BYTES_MAX = 16 * 1024 * 1024 };

struct yaml {
    struct arena *arena;
    const char *name;
    size_t nodes;
    bool lines;
};

// The position of the next node.
struct level {
    struct yaml_node *node;
    struct yaml_node **tail;
    const char *key; // read, its value is next
    unsigned keys;   // so far
};

size_t
yaml_tree_bytes(const struct yaml *y)
{
    return arena_used(y->arena);
}

void
yaml_tree_free(struct yaml *y)
{
    if (y == NULL)
        return;
    arena_free(y->arena);
    free(y);
}

static int
fail_at(const struct yaml *y, yaml_mark_t at, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%zu:%zu: %s", y->name, at.line + 1, at.column + 1,
                   what);
}

// libyaml would also read UTF-16, and names no place of a byte that is neither.
static int
check_encoding(const struct yaml *y, const char *bytes, size_t n, struct err *e)
{
    yaml_mark_t at = {0};
    for (size_t one = 0; at.index < n; at.index += one) {
        const bool line = bytes[at.index] == '\n';
        one = utf8_decode(bytes + at.index, n - at.index, NULL);
        if (one == 0 || bytes[at.index] == '\0')
            return fail_at(y, at, "must be UTF-8", e);
        at.line += line ? 1 : 0;
        at.column = line ? 0 : at.column + 1;
    }
    return 0;
}

static int
check_text(const struct yaml *y, bool lines, const yaml_event_t *ev, struct err *e)
{
    const unsigned char *s = ev->data.scalar.value;
    for (size_t i = 0; i < ev->data.scalar.length; i++)
        if ((s[i] < 0x20 && !(lines && (s[i] == '\n' || s[i] == '\t'))) || s[i] == 0x7f)
            return fail_at(y, ev->start_mark, "a control byte in a value", e);
    return 0;
}

static bool
has_key(const struct yaml_node *map, const char *key)
{
    for (const struct yaml_node *n = map->child; n != NULL; n = n->next)
        if (strcmp(n->key, key) == 0)
            return true;
    return false;
}

// A scalar in a mapping that waits for a key is the key.
static int
take_key(struct yaml *y, struct level *at, const yaml_event_t *ev, struct err *e)
{
    int r = check_text(y, false, ev, e);
    if (r < 0)
        return r;
    const char *key = arena_copy(y->arena, ev->data.scalar.value, ev->data.scalar.length);
    if (key == NULL)
        return err_sys(e, ENOMEM, "read %s", y->name);
    if (++at->keys > YAML_KEYS_MAX)
        return fail_at(y, ev->start_mark, "too many keys", e);
    if (has_key(at->node, key)) {
        char what[128];
        (void)snprintf(what, sizeof what, "%.80s: a duplicate key", key);
        return fail_at(y, ev->start_mark, what, e);
    }
    at->key = key;
    return 0;
}

static struct yaml_node *
add_node(struct yaml *y, struct level *at, const yaml_event_t *ev, enum yaml_kind kind,
         struct err *e)
{
    assert(at->tail != NULL);
    if (++y->nodes > YAML_NODES_MAX) {
        (void)fail_at(y, ev->start_mark, "too many values", e);
        return NULL;
    }
    struct yaml_node *n = arena_alloc(y->arena, sizeof *n);
    if (n == NULL) {
        (void)err_sys(e, ENOMEM, "read %s", y->name);
        return NULL;
    }
    n->kind = kind;
    n->line = (uint32_t)ev->start_mark.line + 1;
    n->column = (uint32_t)ev->start_mark.column + 1;
    n->key = at->key;
    at->key = NULL;
    *at->tail = n;
    at->tail = &n->next;
    return n;
}

static int
take_scalar(struct yaml *y, struct level *at, const yaml_event_t *ev, struct err *e)
{
    if (ev->data.scalar.anchor != NULL)
        return fail_at(y, ev->start_mark, "anchors are not allowed", e);
    if (ev->data.scalar.tag != NULL)
        return fail_at(y, ev->start_mark, "tags are not allowed", e);
    if (at->node != NULL && at->node->kind == YAML_MAP && at->key == NULL)
        return take_key(y, at, ev, e);
    int r = check_text(y, y->lines, ev, e);
    struct yaml_node *n = r == 0 ? add_node(y, at, ev, YAML_TEXT, e) : NULL;
    if (n == NULL)
        return err_errno(e);
    n->text = arena_copy(y->arena, ev->data.scalar.value, ev->data.scalar.length);
    return n->text != NULL ? 0 : err_sys(e, ENOMEM, "read %s", y->name);
}

static int
take_begin(struct yaml *y, struct level *levels, size_t *depth, const yaml_event_t *ev,
           struct err *e)
{
    bool map = ev->type == YAML_MAPPING_START_EVENT;
    if ((map ? ev->data.mapping_start.anchor : ev->data.sequence_start.anchor) != NULL)
        return fail_at(y, ev->start_mark, "anchors are not allowed", e);
    if ((map ? ev->data.mapping_start.tag : ev->data.sequence_start.tag) != NULL)
        return fail_at(y, ev->start_mark, "tags are not allowed", e);
    struct level *at = &levels[*depth];
    if (at->node != NULL && at->node->kind == YAML_MAP && at->key == NULL)
        return fail_at(y, ev->start_mark, "a key must be plain text", e);
    if (*depth == YAML_DEPTH_MAX)
        return fail_at(y, ev->start_mark, "nested too deeply", e);
    struct yaml_node *n = add_node(y, at, ev, map ? YAML_MAP : YAML_LIST, e);
    if (n == NULL)
        return err_errno(e);
    levels[++*depth] = (struct level){.node = n, .tail = &n->child};
    return 0;
}

// One event. 1: the stream has ended.
static int
take(struct yaml *y, struct level *levels, size_t *depth, size_t *documents, const yaml_event_t *ev,
     struct err *e)
{
    switch (ev->type) {
    case YAML_STREAM_END_EVENT:
        return 1;
    case YAML_DOCUMENT_START_EVENT:
        return ++*documents > 1 ? fail_at(y, ev->start_mark, "a second document", e) : 0;
    case YAML_ALIAS_EVENT:
        return fail_at(y, ev->start_mark, "aliases are not allowed", e);
    case YAML_SCALAR_EVENT:
        return take_scalar(y, &levels[*depth], ev, e);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return take_begin(y, levels, depth, ev, e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        --*depth;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

static int
build(struct yaml *y, yaml_parser_t *parser, struct yaml_node **root, struct err *e)
{
    struct level levels[YAML_DEPTH_MAX + 1] = {{.tail = root}};
    size_t depth = 0;
    size_t documents = 0;
    int r = 0;
    while (r == 0) {
        yaml_event_t ev;
        if (yaml_parser_parse(parser, &ev) == 0)
            return fail_at(y, parser->problem_mark,
                           parser->problem != NULL ? parser->problem : "no YAML", e);
        r = take(y, levels, &depth, &documents, &ev, e);
        yaml_event_delete(&ev);
    }
    return r < 0 ? r : 0;
}

int
yaml_tree_read(const char *name, const void *bytes, size_t n, bool lines, struct yaml **out,
               struct yaml_node **root, struct err *e)
{
    struct yaml *y = calloc(1, sizeof *y);
    if (y == NULL || (y->arena = arena_new(TREE_BYTES_MAX)) == NULL) {
        free(y);
        return err_sys(e, ENOMEM, "read %s", name);
    }
    y->name = name;
    y->lines = lines;
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        yaml_tree_free(y);
        return err_sys(e, ENOMEM, "read %s", name);
    }
    yaml_parser_set_input_string(&parser, bytes, n);
    struct yaml_node *found = NULL;
    int r = check_encoding(y, bytes, n, e);
    if (r == 0)
        r = build(y, &parser, &found, e);
    yaml_parser_delete(&parser);
    if (r < 0) {
        yaml_tree_free(y);
        return r;
    }
    *out = y;
    *root = found;
    return 0;
}
