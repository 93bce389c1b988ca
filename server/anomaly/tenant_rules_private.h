// SPDX-License-Identifier: Apache-2.0
// Shared by tenant_rules.c (the table) and tenant_rules_change.c (changes).
#pragma once

#include "tenant_rules.h"

enum { RULE_BUCKETS = 256 };

struct rules_of_tenants {
    struct state *state;
    struct tenant_rules *bucket[RULE_BUCKETS];
    uint32_t n;
    size_t bytes;
    uint8_t key[16]; // of the hash of names, and of the tables
};

struct tenant_rules *tenant_rules_make(struct rules_of_tenants *all, const char *tenant,
                                       struct err *e);
// Frees it if it has neither files nor changes.
void tenant_rules_let_go(struct rules_of_tenants *all, struct tenant_rules *t);

// A file in its place by name.
void tenant_rules_add(struct tenant_rules *t, struct rule_file *f);
void tenant_rules_remove(struct tenant_rules *t, struct rule_file *f); // and frees it
void rule_file_free(struct rule_file *f);

// Reads the files of a tenant, without `without` (NULL: none) and with `with` (NULL: none). *out NULL: there are no rules.
int tenant_rules_read(const struct rules_of_tenants *all, const struct tenant_rules *t,
                      const struct rule_file *without, const struct rule_file *with,
                      struct detect **out, struct err *e);
// These rules are in force from now on. Takes d.
void tenant_rules_use(struct rules_of_tenants *all, struct tenant_rules *t, struct detect *d);
bool rule_file_is_off(const struct rule_file *f, const char *id);

// A rule in a file that a tenant may not write: INVALID_ARGUMENT or ALREADY_EXISTS.
int tenant_rules_allowed(const struct detect *d, const char *file, const struct detect *host,
                         struct err *e);
