// SPDX-License-Identifier: Apache-2.0
// Compares a configuration that was read again with the one in use, and applies it.
//
// Limits, quotas, times to live and to drain, and templates apply to later requests. Existing sandboxes keep their
// root and the limits that they were created with. All changes are applied or none: a file that changes something
// that needs a restart (listening addresses, ids, rpc, telemetry) is refused as a whole.
//
// Sandboxes point to their template, so a template keeps its index in the table, and a removed one stays there until
// no sandbox uses it. If its paths or host name change, the spawner gets a new root for it.
#pragma once

#include "proto/err.h"
#include "config.h"

struct config_change {
    uint32_t at[TEMPLATES_OF_FILE]; // index in `now` of each template of `next`
    bool is_new[TEMPLATES_OF_FILE]; // it gets an unused index
    uint32_t roots;                 // bits: templates of `next` that need a new root
    // After it was applied:
    uint32_t given_up[TEMPLATES_MAX]; // roots that no template uses any more
    uint32_t given_up_n;
    char host[1024];               // changed keys outside of templates; "": none
    char what[TEMPLATES_MAX][512]; // by index: "added", "removed", the changed keys, or ""
};

// Whether a sandbox uses the template at this index.
struct config_users {
    bool (*any)(void *cookie, uint32_t index);
    void *cookie;
};

// Compares `next` with `now`, without changing anything. FAILED_PRECONDITION names a key that needs a restart.
// RESOURCE_EXHAUSTED: too many removed templates are still in use.
int config_change_plan(const struct config *now, const struct config *next,
                       const struct config_users *users, struct config_change *out, struct err *e);

// Applies `next` as planned. root[i]: root of template i of `next`, if c->roots has its bit. The caller frees `next`.
void config_change_apply(struct config *now, struct config *next, const uint32_t *root,
                         struct config_change *c);
