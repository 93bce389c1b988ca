// SPDX-License-Identifier: Apache-2.0
// See policy.h: what differs between two policies. Layers and rules are found again by their names; those that both have are compared as
// packed messages, and the order of the rules that both have counts, because the first that matches decides.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy_private.h"
#include "proto/auto.h"

#define CHANGE(name) STOCKADE__V1__POLICY_CHANGE__POLICY_CHANGE_##name

struct comparing {
    policy_difference_fn *each;
    void *cookie;
    struct err *e;
};

static int
no_memory(const struct comparing *c)
{
    return err_sys(c->e, ENOMEM, "compare policies");
}

// 1: they say the same; 0: they do not; negative: out of memory.
static int
same(const struct comparing *c, const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    const size_t n = protobuf_c_message_get_packed_size(a);
    if (n != protobuf_c_message_get_packed_size(b))
        return 0;
    uint8_t *auto_free x = malloc(n + 1), *auto_free y = malloc(n + 1);
    if (x == NULL || y == NULL)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return no_memory(c);
    (void)protobuf_c_message_pack(a, x);
    (void)protobuf_c_message_pack(b, y);
    return memcmp(x, y, n) == 0;
}

static const struct policy_layer *
find_layer(const struct policy *p, const char *name)
{
    for (uint32_t i = 0; p != NULL && i < p->layers_n; i++)
        if (strcmp(p->layers[i].m->name, name) == 0)
            return &p->layers[i];
    return NULL;
}

static const struct policy_rule *
find_rule(const struct policy_layer *l, const char *id)
{
    for (uint32_t i = 0; i < l->rules_n; i++)
        if (strcmp(l->rules[i].m->id, id) == 0)
            return &l->rules[i];
    return NULL;
}

static void
layer_differs(const struct comparing *c, Stockade__V1__PolicyChange change,
              const struct policy_layer *before, const struct policy_layer *after)
{
    const struct policy_layer *at = after != NULL ? after : before;
    const struct policy_difference d = {.change = change,
                                        .layer = at->m->name,
                                        .rule = "",
                                        .file = at->file,
                                        .line = at->line,
                                        .before = before != NULL ? &before->m->base : NULL,
                                        .after = after != NULL ? &after->m->base : NULL};
    c->each(c->cookie, &d);
}

static void
rule_differs(const struct comparing *c, Stockade__V1__PolicyChange change,
             const struct policy_layer *l, const struct policy_rule *before,
             const struct policy_rule *after)
{
    const struct policy_rule *at = after != NULL ? after : before;
    const struct policy_difference d = {.change = change,
                                        .layer = l->m->name,
                                        .rule = at->m->id,
                                        .file = l->file,
                                        .line = at->line,
                                        .before = before != NULL ? &before->m->base : NULL,
                                        .after = after != NULL ? &after->m->base : NULL};
    c->each(c->cookie, &d);
}

// The layers without their rules: these are compared one by one.
static int
compare_heads(const struct comparing *c, const struct policy_layer *before,
              const struct policy_layer *after)
{
    Stockade__V1__PolicyLayer a = *before->m, b = *after->m;
    a.n_rules = b.n_rules = 0;
    const int r = same(c, &a.base, &b.base);
    if (r == 0) {
        const struct policy_difference d = {.change = CHANGE(CHANGED),
                                            .layer = after->m->name,
                                            .rule = "",
                                            .file = after->file,
                                            .line = after->line,
                                            .before = &a.base,
                                            .after = &b.base};
        c->each(c->cookie, &d);
    }
    return r < 0 ? r : 0;
}

// The next rule from *i on that the other layer has, too; NULL: none.
static const struct policy_rule *
next_common(const struct policy_layer *l, const struct policy_layer *other, uint32_t *i)
{
    while (*i < l->rules_n) {
        const struct policy_rule *r = &l->rules[(*i)++];
        if (find_rule(other, r->m->id) != NULL)
            return r;
    }
    return NULL;
}

// before: with the same id. The place of rules both have is compared among those alone, so a new rule moves no other.
static int
compare_rule(const struct comparing *c, const struct policy_layer *l,
             const struct policy_rule *before, const struct policy_rule *after, bool moved)
{
    const int r = same(c, &before->m->base, &after->m->base);
    if (r == 0)
        rule_differs(c, CHANGE(CHANGED), l, before, after);
    else if (r > 0 && moved)
        rule_differs(c, CHANGE(MOVED), l, before, after);
    return r < 0 ? r : 0;
}

static int
compare_layers(const struct comparing *c, const struct policy_layer *before,
               const struct policy_layer *after)
{
    uint32_t at = 0;
    int r = compare_heads(c, before, after);
    for (uint32_t i = 0; i < after->rules_n && r == 0; i++) {
        const struct policy_rule *is = &after->rules[i], *was = find_rule(before, is->m->id);
        if (was == NULL) {
            rule_differs(c, CHANGE(ADDED), after, NULL, is);
            continue;
        }
        const struct policy_rule *there = next_common(before, after, &at);
        r = compare_rule(c, after, was, is, there != was);
    }
    for (uint32_t i = 0; i < before->rules_n && r == 0; i++)
        if (find_rule(after, before->rules[i].m->id) == NULL)
            rule_differs(c, CHANGE(REMOVED), before, &before->rules[i], NULL);
    return r;
}

int
policy_diff(const struct policy *before, const struct policy *after, policy_difference_fn *each,
            void *cookie, struct err *e)
{
    const struct comparing c = {each, cookie, e};
    int r = 0;
    for (uint32_t i = 0; after != NULL && i < after->layers_n && r == 0; i++) {
        const struct policy_layer *is = &after->layers[i], *was = find_layer(before, is->m->name);
        if (was == NULL)
            layer_differs(&c, CHANGE(ADDED), NULL, is);
        else
            r = compare_layers(&c, was, is);
    }
    for (uint32_t i = 0; before != NULL && i < before->layers_n && r == 0; i++)
        if (find_layer(after, before->layers[i].m->name) == NULL)
            layer_differs(&c, CHANGE(REMOVED), &before->layers[i], NULL);
    return r;
}
