// SPDX-License-Identifier: Apache-2.0
// Detection rules of tenants: files that RulesService sets, in the database, and compared with events of the tenant's sandboxes.
//
//   Set, Delete, switch --> all files of the tenant are read --> the database --> in force       tenant_rules_change.c
//                            | refused: nothing changes
//
// The changes of a tenant are made one after the other, each on top of what is in force. What a tenant may have is bounded
// (detect_bounds_tenant, and below), and so is the memory of all tenants together. Comparing takes a share of the loop's time at
// most: beyond it, events of the rest of that second are skipped, counted, and reported. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/detect.h"
#include "proto/err.h"
#include "server/base/list.h"

struct state;
struct rules_of_tenants;

enum {
    RULE_FILE_NAME = 41,
    RULE_ID = 41,
    RULE_FILES_MAX = 16, // of a tenant
    RULE_FILE_BYTES_MAX = 32 * 1024,
    RULE_TEXT_BYTES_MAX = 128 * 1024, // of a tenant
    RULE_OFF_MAX = 32,
    RULE_TENANTS_MAX = 1024,
    RULE_BYTES_MAX = 128 << 20, // of all tenants, in memory
    RULE_SECOND_NS = 20 * 1000 * 1000,
};
#define RULE_OVER_BUDGET "rules-over-budget"
#define RULE_EVENTS_LOST "rules-events-lost"

// Read-only for others.
struct rule_file {
    struct list node; // by name
    char name[RULE_FILE_NAME];
    char *text;
    size_t n;
    int64_t created_ms, updated_ms; // CLOCK_REALTIME
    uint32_t off_n;
    char off[RULE_OFF_MAX][RULE_ID]; // rules that were switched off
    char error[256];                 // why it is not in force; "": it is
    bool forgotten;                  // its data key was forgotten, so nobody can read its text
};

// The rules of a tenant. Read-only for others.
struct tenant_rules {
    struct tenant_rules *next;
    char tenant[32];
    struct list files;
    uint32_t files_n;
    size_t text_bytes;
    struct detect *rules; // NULL: none
    size_t bytes;         // of memory
    struct rule_change *first, *last;
    // What comparing has taken in this second.
    uint64_t second, spent_ns, reported_ns;
    uint64_t skipped;
};

// Reads the files of all tenants, before state_start(). A file that cannot be read any more is kept with its error, and logged.
int rules_of_tenants_new(struct state *state, struct rules_of_tenants **out, struct err *e);
// The database must be closed before. Accepts NULL.
void rules_of_tenants_free(struct rules_of_tenants *all);

// Forgets the texts of a tenant, whose data key was forgotten: its rules are not in force any more, and its files say why.
void rules_of_tenants_forget(struct rules_of_tenants *all, const char *tenant);

// NULL: the tenant has no rules. all NULL: nobody has.
struct tenant_rules *tenant_rules_find(const struct rules_of_tenants *all, const char *tenant);
const struct rule_file *tenant_rules_file(const struct tenant_rules *t, const char *name);

// Whether the tenant (NULL: any) has a rule of this id.
bool tenant_rules_have(const struct rules_of_tenants *all, const char *tenant, const char *id);

// Whether there is time left in this second to compare an event. *report: there is not, and that is to be reported.
bool tenant_rules_may_compare(struct tenant_rules *t, uint64_t now_ns, bool *report);

// Reads a text as the tenant's file of this name, with its other files. NAME NULL: the text alone. host: rules of the host, whose ids
// are refused. Free *out with detect_free().
int tenant_rules_check(const struct rules_of_tenants *all, const char *tenant, const char *name,
                       const char *text, const struct detect *host, struct detect **out,
                       struct err *e);

// Reads the tenant's files again, so that counts of the rules in force do not change. NOT_FOUND: it has no rules. Free *out.
int tenant_rules_again(const struct rules_of_tenants *all, const char *tenant, struct detect **out,
                       struct err *e);

// A change is on the disk and in force; t NULL: the tenant has no rules any more. Or it failed.
typedef void rules_changed(void *cookie, struct tenant_rules *t, const struct err *e);
struct rule_change;

// What is wanted. Borrowed until the function returns.
struct rules_wanted {
    const char *tenant;
    enum { RULES_SET, RULES_DELETE, RULES_SWITCH } what;
    const char *name; // of the file; SWITCH: the id of the rule
    const char *text; // SET
    size_t n;
    bool on; // SWITCH
};

// Begins a change. `done` is called once, later, unless rules_unwait() was called before: then the change is made all the same. Refused
// here or in `done`: INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND, FAILED_PRECONDITION, RESOURCE_EXHAUSTED. host: must live until `done`.
int rules_change(struct rules_of_tenants *all, const struct rules_wanted *w,
                 struct detect *const *host, rules_changed *done, void *cookie,
                 struct rule_change **out, struct err *e);
void rules_unwait(struct rule_change *c);
