// SPDX-License-Identifier: Apache-2.0
// See detect.h: files of rules.
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "arena.h"
#include "config_read.h"
#include "detect_private.h"
#include "yaml_message.h"
#include "yaml_tree.h"

enum { ARENA_MAX = 192 << 20 };

struct reading {
    struct detect *d;
    const struct detect_bounds *bounds;
    struct yaml_node **node; // of each rule
    uint32_t steps[DETECT_KINDS];
    size_t table_bytes;
    uint64_t work; // that is left for all tests
    struct err *e;
};

static int
check_sets(const struct config_reader *f, const Stockade__V1__DetectionDocument *doc,
           struct yaml_node *root)
{
    struct yaml_node *it = detect_node(root, "sets")->child;
    for (size_t i = 0; i < doc->n_sets; i++, it = it->next)
        for (size_t k = 0; k < i; k++)
            if (strcmp(doc->sets[i]->name, doc->sets[k]->name) == 0)
                return config_fail(f, detect_node(it, "name"), "%s is an earlier set of this file",
                                   doc->sets[i]->name);
    return 0;
}

// What the rules may cost is known before the first event.
static int
check_cost(struct reading *r, const struct config_reader *f, const struct detect_rule *rule,
           struct yaml_node *node)
{
    struct detect_table t;
    r->table_bytes += detect_table_size(rule, &t);
    if (r->table_bytes > r->bounds->table_bytes)
        return config_fail(f, node,
                           "its counts need %zu KiB, and those of all rules may need %zu KiB: "
                           "lower keys or the threshold of a distinct count",
                           t.bytes >> 10, r->bounds->table_bytes >> 10);
    for (uint32_t kind = 0; kind < DETECT_KINDS; kind++) {
        bool has = false;
        for (uint32_t i = 0; i < rule->matches_n; i++)
            has = has || (rule->match[i].kinds[kind / 64] >> kind % 64 & 1) != 0;
        r->steps[kind] += has ? rule->steps : 0;
        if (r->steps[kind] > r->bounds->steps)
            return config_fail(f, node,
                               "compares an event up to %u times, and all rules together may do so "
                               "%u times for each kind of event",
                               rule->steps, r->bounds->steps);
    }
    return 0;
}

// What a tripwire must be, with what earlier files say of it.
static int
check_tripwire(const struct config_reader *f, const struct detect_rule *rule,
               struct yaml_node *node)
{
    const char *key = rule->m->n_exceptions > 0 ? "exceptions" : "tests";
    if (rule->m->tripwire && rule->matches_n == 0 && rule->m->n_exceptions + rule->m->n_tests > 0)
        return config_fail(f, detect_node(node, key),
                           "a tripwire of a built-in condition has none: the broker's own code "
                           "decides");
    return 0;
}

static int
add_rule(struct reading *r, const struct config_reader *f,
         const Stockade__V1__DetectionDocument *doc, size_t i, struct yaml_node *node)
{
    struct detect *d = r->d;
    struct detect_rule made, *rule = &made;
    const int earlier = detect_find(d, doc->rules[i]->id);
    const bool again = earlier >= 0 && doc->rules[i]->tripwire && d->rule[earlier].m->tripwire &&
                       d->rule[earlier].file != f->name;
    if (earlier >= 0 && d->rule[earlier].m->tripwire && !doc->rules[i]->tripwire)
        return config_fail(f, detect_node(node, "id"), "%s is the name of a tripwire",
                           doc->rules[i]->id);
    if (earlier >= 0 && !again)
        return config_fail(f, detect_node(node, "id"), "%s is the id of a rule at %s:%u already",
                           doc->rules[i]->id, d->rule[earlier].file, d->rule[earlier].line);
    if (d->rules_n == r->bounds->rules && !again)
        return config_fail(f, node, "more than %u rules", r->bounds->rules);
    int rc = detect_make_rule(f, d->arena, doc, doc->rules[i], node, rule);
    if (rc == 0 && again)
        rc = detect_inherit(f, d->arena, &d->rule[earlier], node, rule);
    if (rc == 0)
        rc = check_tripwire(f, rule, node);
    if (rc == 0)
        rc = detect_check_fields(f, rule, node);
    if (rc == 0)
        rc = check_cost(r, f, rule, node);
    if (rc < 0)
        return rc;
    rule->index = again ? (uint32_t)earlier : d->rules_n;
    (void)detect_table_size(rule, &rule->table);
    if (rule->matches_n > 0 && detect_table_make(rule, d->arena) < 0)
        return err_sys(r->e, ENOMEM, "read the rules");
    d->rule[rule->index] = made;
    r->node[rule->index] = node;
    d->rules_n += !again;
    return 0;
}

static int
read_file(struct reading *r, const struct detect_file *file)
{
    struct detect *d = r->d;
    struct yaml_node *root = NULL;
    ProtobufCMessage *m = NULL;
    const char *name = arena_copy(d->arena, file->name, strlen(file->name));
    if (name == NULL)
        return err_sys(r->e, ENOMEM, "read the rules");
    const struct config_reader f = {name, r->e};
    if (file->n > DETECT_FILE_BYTES_MAX)
        return err_set(r->e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", name,
                       DETECT_FILE_BYTES_MAX);
    int rc = yaml_tree_read(name, file->text, file->n, false, &d->tree[d->trees_n], &root, r->e);
    if (rc < 0)
        return rc;
    d->trees_n++;
    if (root == NULL || (root->kind == YAML_TEXT && root->text[0] == '\0'))
        return 0;
    rc =
        yaml_message(name, root, &stockade__v1__detection_document__descriptor, d->arena, &m, r->e);
    if (rc < 0)
        return rc;
    const Stockade__V1__DetectionDocument *doc = (const Stockade__V1__DetectionDocument *)m;
    rc = check_sets(&f, doc, root);
    struct yaml_node *node = detect_node(root, "rules")->child;
    for (size_t i = 0; i < doc->n_rules && rc == 0; i++, node = node->next)
        rc = add_rule(r, &f, doc, i, node);
    return rc;
}

static int
run_tests(struct reading *r)
{
    struct detect *d = r->d;
    int rc = 0;
    for (uint32_t i = 0; i < d->rules_n && rc == 0; i++) {
        const struct config_reader f = {d->rule[i].file, r->e};
        d->tests_n += (uint32_t)d->rule[i].m->n_tests;
        rc = detect_test_rule(&f, d, &d->rule[i], r->node[i], &r->work);
    }
    d->totals = (struct detect_totals){0, 0};
    return rc;
}

static void
make_digest(struct detect *d, const struct detect_file *files, size_t n)
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, sizeof d->digest);
    for (size_t i = 0; i < n; i++) {
        const uint64_t length = files[i].n;
        (void)crypto_generichash_update(&state, (const uint8_t *)files[i].name,
                                        strlen(files[i].name) + 1);
        (void)crypto_generichash_update(&state, (const uint8_t *)&length, sizeof length);
        if (files[i].n > 0)
            (void)crypto_generichash_update(&state, (const uint8_t *)files[i].text, files[i].n);
    }
    (void)crypto_generichash_final(&state, d->digest, sizeof d->digest);
}

static struct detect *
make(const struct detect_bounds *bounds, const uint8_t seed[16])
{
    struct arena *a = arena_new(ARENA_MAX);
    struct detect *d = a != NULL ? arena_alloc(a, sizeof *d) : NULL;
    if (d == NULL) {
        arena_free(a);
        return NULL;
    }
    d->arena = a;
    memcpy(d->seed, seed, sizeof d->seed);
    d->rule = detect_lines(a, (bounds->rules + 1) * sizeof *d->rule);
    return d;
}

int
detect_read(const struct detect_file *files, size_t n, const struct detect_bounds *bounds,
            const uint8_t seed[16], struct detect **out, struct err *e)
{
    struct reading r = {.d = make(bounds, seed), .bounds = bounds, .work = bounds->work, .e = e};
    int rc = 0;
    if (r.d != NULL)
        r.node = arena_alloc(r.d->arena, (bounds->rules + 1) * sizeof(void *));
    if (r.d == NULL || r.d->rule == NULL || r.node == NULL) {
        detect_free(r.d);
        return err_sys(e, ENOMEM, "read the rules");
    }
    if (n > DETECT_FILES_MAX + 1) // with that of the broker
        rc = err_set(e, ERR_INVALID_ARGUMENT, "more than %d files of rules", DETECT_FILES_MAX);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_file(&r, &files[i]);
    if (rc == 0)
        rc = detect_index(r.d, e);
    if (rc == 0)
        rc = run_tests(&r);
    if (rc == 0 && bounds == &detect_bounds_host && detect_compile(r.d) < 0)
        rc = err_sys(e, ENOMEM, "read the rules");
    if (rc < 0) {
        detect_free(r.d);
        return rc;
    }
    make_digest(r.d, files, n);
    *out = r.d;
    return 0;
}
