// SPDX-License-Identifier: Apache-2.0
// See policy.h: files of policies, from YAML to layers with an index of their rules by method.
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy_private.h"
#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/config_read.h"
#include "proto/glob.h"
#include "proto/yaml_message.h"
#include "proto/yaml_tree.h"

enum {
    ARENA_MAX = 64 * 1024 * 1024,
    REQUEST_ARENA_MAX = 2 * 1024 * 1024,
    LAYER_NAME_MAX = 40,
};

// A layer of a file, before the layers of all files are sorted.
struct found {
    const Stockade__V1__PolicyLayer *m;
    struct yaml_node *node;
    const char *file;
    bool is_inline;
};

struct reading {
    struct policy *p;
    struct found found[POLICY_LAYERS_MAX];
    struct err *e;
};

static int
no_memory(struct err *e)
{
    return err_sys(e, ENOMEM, "read a policy");
}

// ---- files

static struct yaml_node *
find(struct yaml_node *n, const char *key)
{
    for (struct yaml_node *it = n->child; it != NULL; it = it->next)
        if (strcmp(it->key, key) == 0)
            return it;
    return n;
}

static int
add_layer(struct reading *r, const struct found *from)
{
    const struct config_reader f = {from->file, r->e};
    const Stockade__V1__PolicyLayer *m = from->m;
    struct yaml_node *node = from->node;
    struct policy *p = r->p;
    for (uint32_t i = 0; i < p->layers_n; i++) {
        assert(r->found[i].m != NULL);
        if (strcmp(r->found[i].m->name, m->name) == 0)
            return config_fail(&f, find(node, "name"), "%s is a layer of %s already", m->name,
                               r->found[i].file);
    }
    if (p->layers_n == POLICY_LAYERS_MAX)
        return config_fail(&f, node, "more than %d layers", POLICY_LAYERS_MAX);
    if (p->rules_n + m->n_rules > POLICY_RULES_MAX)
        return config_fail(&f, node, "more than %d rules in all layers", POLICY_RULES_MAX);
    if (m->otherwise > STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_DENY)
        return config_fail(&f, find(node, "otherwise"), "must be allow or deny");
    p->rules_n += (uint32_t)m->n_rules;
    r->found[p->layers_n++] = *from;
    return 0;
}

// The policy of a template, as a layer.
static int
add_inline(struct reading *r, const char *file, const char *template, struct yaml_node *node)
{
    ProtobufCMessage *m = NULL;
    char name[LAYER_NAME_MAX + 1];
    struct arena *a = r->p->arena;
    int rc = yaml_message(file, node, &stockade__v1__policy_inline__descriptor, a, &m, r->e);
    if (rc < 0)
        return rc;
    const Stockade__V1__PolicyInline *from = (const Stockade__V1__PolicyInline *)m;
    Stockade__V1__PolicyLayer *l = arena_alloc(a, sizeof *l);
    const char **templates = arena_alloc(a, sizeof *templates);
    (void)snprintf(name, sizeof name, "template.%.*s", LAYER_NAME_MAX - 9, template);
    const char *kept = arena_copy(a, name, strlen(name));
    if (l == NULL || templates == NULL || kept == NULL)
        return no_memory(r->e);
    stockade__v1__policy_layer__init(l);
    templates[0] = template;
    l->name = kept;
    l->templates = templates;
    l->n_templates = 1;
    l->otherwise = from->otherwise;
    l->reason = from->reason;
    l->rules = from->rules;
    l->n_rules = from->n_rules;
    return add_layer(r, &(struct found){l, node, file, true});
}

// A configuration has passed its own checks: here only `policy` of its templates matters. A name has no '*' in it.
static int
read_configuration(struct reading *r, const char *file, struct yaml_node *root)
{
    struct yaml_node *all = root->kind == YAML_MAP ? find(root, "templates") : root;
    int rc = 0;
    if (all == root || all->kind != YAML_LIST)
        return 0;
    for (struct yaml_node *t = all->child; t != NULL && rc == 0; t = t->next) {
        struct yaml_node *name = t->kind == YAML_MAP ? find(t, "name") : t;
        struct yaml_node *policy = t->kind == YAML_MAP ? find(t, "policy") : t;
        if (name != t && policy != t && name->kind == YAML_TEXT)
            rc = add_inline(r, file, name->text, policy);
    }
    return rc;
}

static int
read_file(struct reading *r, const Stockade__V1__PolicyFile *file, struct yaml **tree)
{
    struct yaml_node *root = NULL, *node = NULL;
    ProtobufCMessage *m = NULL;
    const size_t n = strlen(file->text);
    if (n > POLICY_FILE_MAX)
        return err_set(r->e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", file->name,
                       POLICY_FILE_MAX);
    int rc = yaml_tree_read(file->name, file->text, n, false, tree, &root, r->e);
    if (rc < 0 || root == NULL || (root->kind == YAML_TEXT && root->text[0] == '\0'))
        return rc;
    if (file->configuration)
        return read_configuration(r, file->name, root);
    rc = yaml_message(file->name, root, &stockade__v1__policy_document__descriptor, r->p->arena, &m,
                      r->e);
    if (rc < 0 || m == NULL)
        return rc;
    const Stockade__V1__PolicyDocument *d = (const Stockade__V1__PolicyDocument *)m;
    node = find(root, "layers")->child;
    for (size_t i = 0; i < d->n_layers && node != NULL && rc == 0; i++, node = node->next)
        rc = add_layer(r, &(struct found){d->layers[i], node, file->name, false});
    return rc;
}

Stockade__V1__PolicyFile *
policy_file(struct arena *a, const char *name, const char *text, size_t n, bool configuration)
{
    Stockade__V1__PolicyFile *to = arena_alloc(a, sizeof *to);
    if (to == NULL)
        return NULL;
    stockade__v1__policy_file__init(to);
    to->name = arena_copy(a, name, strlen(name));
    to->text = arena_copy(a, text, n);
    to->configuration = configuration;
    return to->name != NULL && to->text != NULL ? to : NULL;
}

static int
copy_files(struct policy *p, const Stockade__V1__PolicyFiles *files, struct err *e)
{
    size_t bytes = 0;
    if (files->n_files > POLICY_FILES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "more than %d files of policies", POLICY_FILES_MAX);
    p->files.files = arena_alloc(p->arena, (files->n_files + 1) * sizeof(void *));
    for (size_t i = 0; i < files->n_files && p->files.files != NULL; i++) {
        const Stockade__V1__PolicyFile *from = files->files[i];
        const size_t n = strlen(from->text);
        bytes += n;
        if (bytes > POLICY_BYTES_MAX)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: the policies are larger than %d bytes",
                           from->name, POLICY_BYTES_MAX);
        Stockade__V1__PolicyFile *to =
            policy_file(p->arena, from->name, from->text, n, from->configuration);
        if (to == NULL)
            return no_memory(e);
        p->files.files[p->files.n_files++] = to;
    }
    return p->files.files != NULL ? 0 : no_memory(e);
}

// Of a configuration only its policies count, which have layers of their own.
static int
make_digest(struct policy *p, struct err *e)
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, sizeof p->digest);
    for (uint32_t i = 0; i < p->layers_n; i++) {
        const Stockade__V1__PolicyLayer *m = p->layers[i].m;
        const size_t n = stockade__v1__policy_layer__get_packed_size(m);
        if (!p->layers[i].is_inline)
            continue;
        uint8_t *auto_free bytes = malloc(n + 1);
        if (bytes == NULL)
            return no_memory(e);
        (void)stockade__v1__policy_layer__pack(m, bytes);
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        (void)crypto_generichash_update(&state, bytes, n);
    }
    for (size_t i = 0; i < p->files.n_files; i++) {
        const Stockade__V1__PolicyFile *f = p->files.files[i];
        if (f->configuration)
            continue;
        (void)crypto_generichash_update(&state, (const uint8_t *)f->name, strlen(f->name) + 1);
        (void)crypto_generichash_update(&state, (const uint8_t *)f->text, strlen(f->text) + 1);
    }
    (void)crypto_generichash_final(&state, p->digest, sizeof p->digest);
    return 0;
}

// ---- the index

static bool
is_of_method(const struct policy_rule *r, const char *method)
{
    const size_t n = strlen(method);
    for (size_t i = 0; i < r->match->n_methods; i++)
        if (glob_match(r->match->methods[i], method, n))
            return true;
    return r->match->n_methods == 0;
}

// How many candidates a rule is: one for each program that it names, or one for all.
static size_t
programs_of(const struct policy_rule *r)
{
    for (size_t i = 0; i < r->commands_n; i++)
        if (r->commands[i].program == 0)
            return 1;
    return r->commands_n > 0 ? r->commands_n : 1;
}

static size_t
add_candidates(const struct policy_rule *r, uint32_t index, struct policy_candidate *to)
{
    const size_t n = programs_of(r);
    if (n == 1) {
        *to = (struct policy_candidate){r->commands_n == 1 ? r->commands[0].program : 0, index};
        return 1;
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < used && !known; k++)
            known = to[k].program == r->commands[i].program;
        if (!known)
            to[used++] = (struct policy_candidate){r->commands[i].program, index};
    }
    return used;
}

static int
make_index(struct policy *p, struct policy_layer *l, struct err *e)
{
    const char *name = NULL;
    uint32_t method = 0;
    size_t most = 0, room = 0;
    for (uint32_t i = 0; i < l->rules_n; i++)
        most += programs_of(&l->rules[i]);
    for (uint32_t i = 0; policy_method_name(i) != NULL; i++)
        for (uint32_t k = 0; k < l->rules_n; k++)
            room +=
                is_of_method(&l->rules[k], policy_method_name(i)) ? programs_of(&l->rules[k]) : 0;
    l->candidates = arena_alloc(p->arena, (room + 1) * sizeof *l->candidates);
    if (l->candidates == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: its %zu commands are too many for rules without a method", l->m->name,
                       most);
    for (size_t used = 0; (name = policy_method_name(method)) != NULL; method++) {
        l->first[method] = (uint32_t)used;
        for (uint32_t i = 0; i < l->rules_n; i++)
            if (is_of_method(&l->rules[i], name))
                used += add_candidates(&l->rules[i], i, &l->candidates[used]);
        l->first[method + 1] = (uint32_t)used;
    }
    return 0;
}

// ---- layers

static int
check_id(const struct config_reader *f, const struct policy_layer *l, struct yaml_node *node)
{
    const char *id = l->m->rules[l->rules_n]->id;
    for (uint32_t i = 0; i < l->rules_n; i++)
        if (strcmp(l->m->rules[i]->id, id) == 0)
            return config_fail(f, find(node, "id"), "%s is the id of an earlier rule", id);
    return 0;
}

static int
make_layer(struct reading *r, const struct found *from, struct policy_layer *l)
{
    const struct config_reader f = {from->file, r->e};
    const Stockade__V1__PolicyLayer *m = from->m;
    struct yaml_node *node = find(from->node, "rules")->child;
    int rc = 0;
    l->m = m;
    l->file = from->file;
    l->line = from->node->line;
    l->is_inline = from->is_inline;
    l->kind = m->n_templates > 0 ? "template" : m->n_tenants > 0 ? "tenant" : "host";
    l->otherwise = m->otherwise == STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_DENY ? POLICY_DENY
                                                                                     : POLICY_ALLOW;
    l->rules = arena_alloc(r->p->arena, (m->n_rules + 1) * sizeof *l->rules);
    if (l->rules == NULL)
        return no_memory(r->e);
    for (size_t i = 0; i < m->n_rules && rc == 0; i++, node = node->next) {
        rc = check_id(&f, l, node);
        if (rc == 0)
            rc = policy_make_rule(&f, r->p->arena, m->name, m->rules[i], node, &l->rules[i]);
        l->rules_n++; // also a part of a rule has to be freed
    }
    return rc == 0 ? make_index(r->p, l, r->e) : rc;
}

static unsigned
order_of(const Stockade__V1__PolicyLayer *m)
{
    assert(m != NULL);
    return m->n_templates > 0 ? 2 : m->n_tenants > 0 ? 1 : 0;
}

// Host, tenant, template; among these in the order of the files.
static int
make_layers(struct reading *r)
{
    struct policy *p = r->p;
    const uint32_t n = p->layers_n;
    int rc = 0;
    p->layers = arena_alloc(p->arena, (n + 1) * sizeof *p->layers);
    p->layers_n = 0;
    if (p->layers == NULL)
        return no_memory(r->e);
    for (unsigned order = 0; order < 3; order++)
        for (uint32_t i = 0; i < n && rc == 0; i++)
            if (order_of(r->found[i].m) == order)
                rc = make_layer(r, &r->found[i], &p->layers[p->layers_n++]);
    return rc;
}

// ---- all

int
policy_read_untested(const Stockade__V1__PolicyFiles *files, struct policy **out, struct err *e)
{
    static struct reading r;
    struct policy *p = calloc(1, sizeof *p);
    if (p == NULL)
        return no_memory(e);
    r = (struct reading){.p = p, .e = e};
    p->arena = arena_new(ARENA_MAX);
    p->files = (Stockade__V1__PolicyFiles)STOCKADE__V1__POLICY_FILES__INIT;
    int rc = p->arena != NULL ? copy_files(p, files, e) : no_memory(e);
    for (size_t i = 0; i < p->files.n_files && rc == 0; i++)
        rc = read_file(&r, p->files.files[i], &p->tree[i]);
    if (rc == 0)
        rc = make_layers(&r);
    if (rc < 0) {
        policy_free(p);
        return rc;
    }
    for (uint32_t l = 0; l < p->layers_n; l++)
        for (uint32_t i = 0; i < p->layers[l].rules_n; i++)
            p->tests_n += (uint32_t)p->layers[l].rules[i].m->n_tests;
    rc = make_digest(p, e);
    if (rc < 0)
        policy_free(p);
    else
        *out = p;
    return rc;
}

// ---- the policy of a request

static int
check_request(const Stockade__V1__PolicyInline *m, struct err *e)
{
    if (m->n_rules > POLICY_REQUEST_RULES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "policy: the policy of a request has at most %d rules",
                       POLICY_REQUEST_RULES_MAX);
    for (size_t i = 0; i < m->n_rules; i++) {
        const Stockade__V1__PolicyRule *r = m->rules[i];
        if ((r->match != NULL && r->match->history != NULL) ||
            (r->limit != NULL && r->limit->rate != NULL))
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "policy: rule %s: the policy of a request has no rate and no history",
                           r->id);
    }
    return 0;
}

static int
read_request(struct reading *r, const char *text)
{
    static const char file[] = "policy";
    struct policy *p = r->p;
    struct yaml_node *root = NULL;
    ProtobufCMessage *m = NULL;
    int rc = yaml_tree_read(file, text, strlen(text), true, &p->request, &root, r->e);
    if (rc < 0)
        return rc;
    if (root == NULL)
        return err_set(r->e, ERR_INVALID_ARGUMENT, "policy: it is empty");
    rc = yaml_message(file, root, &stockade__v1__policy_inline__descriptor, p->arena, &m, r->e);
    if (rc < 0)
        return rc;
    const Stockade__V1__PolicyInline *from = (const Stockade__V1__PolicyInline *)m;
    Stockade__V1__PolicyLayer *l = arena_alloc(p->arena, sizeof *l);
    if (l == NULL)
        return no_memory(r->e);
    stockade__v1__policy_layer__init(l);
    l->name = "request";
    l->otherwise = from->otherwise;
    l->reason = from->reason;
    l->rules = from->rules;
    l->n_rules = from->n_rules;
    rc = check_request(from, r->e);
    if (rc == 0)
        rc = add_layer(r, &(struct found){l, root, file, true});
    if (rc == 0)
        rc = make_layers(r);
    if (rc == 0)
        p->layers[0].kind = "request";
    return rc;
}

int
policy_read_request(const char *text, struct policy **out, struct err *e)
{
    static struct reading r;
    struct policy *p = calloc(1, sizeof *p);
    if (p == NULL)
        return no_memory(e);
    r = (struct reading){.p = p, .e = e};
    p->arena = arena_new(REQUEST_ARENA_MAX);
    p->files = (Stockade__V1__PolicyFiles)STOCKADE__V1__POLICY_FILES__INIT;
    int rc = p->arena != NULL ? read_request(&r, text) : no_memory(e);
    if (rc == 0)
        rc = policy_run_tests(p, NULL, NULL, e);
    if (rc < 0)
        policy_free(p);
    else
        *out = p;
    return rc;
}

// ---- all, with their tests

int
policy_read(const Stockade__V1__PolicyFiles *files, struct policy **out, struct err *e)
{
    struct policy *p = NULL;
    int r = policy_read_untested(files, &p, e);
    if (r == 0)
        r = policy_run_tests(p, NULL, NULL, e);
    if (r < 0)
        policy_free(p);
    else
        *out = p;
    return r;
}

void
policy_free(struct policy *p)
{
    if (p == NULL)
        return;
    for (uint32_t l = 0; l < p->layers_n && p->layers != NULL; l++)
        for (uint32_t i = 0; i < p->layers[l].rules_n; i++)
            network_unref(p->layers[l].rules[i].destinations);
    for (size_t i = 0; i < POLICY_FILES_MAX; i++)
        yaml_tree_free(p->tree[i]);
    yaml_tree_free(p->request);
    arena_free(p->arena);
    free(p);
}

bool
policy_has_layers(const struct policy *p)
{
    return p != NULL && p->layers_n > 0;
}

void
policy_view(const struct policy *p, struct policy_view *out)
{
    static const Stockade__V1__PolicyFiles none = STOCKADE__V1__POLICY_FILES__INIT;
    *out = (struct policy_view){.files = &none};
    if (p == NULL)
        return;
    *out = (struct policy_view){&p->files, p->layers_n, p->rules_n, p->tests_n, {0}};
    memcpy(out->digest, p->digest, sizeof out->digest);
}

bool
policy_layer_at(const struct policy *p, uint32_t i, struct policy_layer_view *out)
{
    if (p == NULL || i >= p->layers_n)
        return false;
    const struct policy_layer *l = &p->layers[i];
    *out = (struct policy_layer_view){l->kind, l->file, l->line, l->m};
    return true;
}

uint32_t
policy_rule_line(const struct policy *p, uint32_t layer, uint32_t rule)
{
    return p->layers[layer].rules[rule].line;
}
