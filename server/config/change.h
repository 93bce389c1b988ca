// SPDX-License-Identifier: Apache-2.0
// The configuration was read again: what of it the broker that runs may take over.
//
// Limits, quotas, times to live and to drain, and templates hold from then on, for what is asked for from then on; sandboxes
// that are there keep the root and the limits that they were made with. All of it or nothing: a file that changes what only a
// start can set up (where the broker listens, ids, rpc, telemetry) is refused as a whole.
//
// Sandboxes point to their template, so a template keeps its place in the table; one that is removed stays there until no
// sandbox has it. What shows the host, paths and host name, is a root of the spawner's, which is made anew.
#pragma once

#include "proto/err.h"
#include "config.h"

struct config_change {
    uint32_t at[TEMPLATES_OF_FILE]; // place in `now` of each template of `next`
    bool is_new[TEMPLATES_OF_FILE]; // nobody's place before
    uint32_t roots;                 // bits: templates of `next` that need a root made
    // Once it is applied:
    uint32_t given_up[TEMPLATES_MAX]; // roots that no template has any more
    uint32_t given_up_n;
    char host[160];                // keys that are different, beside templates; "": none
    char what[TEMPLATES_MAX][160]; // of each place: "added", "removed", keys, or ""
};

// Is there a sandbox of the template at this place?
struct config_users {
    bool (*any)(void *cookie, uint32_t place);
    void *cookie;
};

// What `next` means for `now`. FAILED_PRECONDITION names the key that takes a restart, RESOURCE_EXHAUSTED: too many
// templates that were removed are still in use. Nothing has changed yet.
int config_change_plan(const struct config *now, const struct config *next,
                       const struct config_users *users, struct config_change *out, struct err *e);

// Takes `next` over, as planned. root[i]: of template i of `next`, where c->roots has its bit. `next` is the caller's to
// free.
void config_change_apply(struct config *now, struct config *next, const uint32_t *root,
                         struct config_change *c);
