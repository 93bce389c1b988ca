// SPDX-License-Identifier: Apache-2.0
// Templates that callers made from the files of sandboxes.
//
//   create   (seal the files of now) -> a sandbox of the pool, the holder -> it inherits the layers
//   use      a new sandbox inherits the layers of the holder, before its caller gets it (sandbox/image.h)
//   delete   the holder goes; the layers stay as long as a sandbox has them
//
// A layer exists as long as a sandbox has it, so a template has one of its own: the holder, in which nothing ever runs. It belongs
// to no caller: its tenant is not one that a connection can have. The layers' bytes are charged to the caller, as those of forks are.
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/sandbox/image.h"
#include "snapshots.h"

struct made_all;
struct made_op;
struct pool;
struct sandbox;
struct server;
struct template;

enum { MADE_OF_TENANT = 64, MADE_NETWORK = 64 };

struct made_step {
    char *command, *digest; // owned, never NULL
    char **destinations;    // owned
    uint32_t destinations_n;
};
void made_steps_free(struct made_step *steps, uint32_t n);

// Read-only for others.
struct made {
    struct image image; // must be first; its name
    struct list node;   // of all, oldest first
    struct made_all *all;
    uint64_t order;
    char tenant[32];
    const struct template *template; // of the host; stays as long as the holder does
    char made_on[65], sandbox[ID_TEXT_MAX + 1], snapshot[SNAPSHOT_NAME], network[MADE_NETWORK];
    int64_t created_ms; // CLOCK_REALTIME
    uint64_t bytes, inodes;
    struct made_step *steps; // owned
    uint32_t steps_n;
    bool ready;                   // it can be used
    char holder[ID_TEXT_MAX + 1]; // "": it was deleted
    uint32_t layer;               // the holder's
};

struct made_spec {
    const char *name, *snapshot, *workdir; // snapshot "": the files of now
    bool stop;                             // cancel the jobs that run first
    struct template_env *env;              // the caller's
    uint32_t env_n;
    struct made_step *steps; // owned; taken on success
    uint32_t steps_n;
};

// NULL: out of memory.
struct made_all *made_all_new(struct server *s);
// Call it when no sandbox is left. Accepts NULL.
void made_all_free(struct made_all *all);

// Starts to make a template of a sandbox's files. done is called once, perhaps before this returns, unless made_cancel() comes
// before. ALREADY_EXISTS, NOT_FOUND (no such snapshot), FAILED_PRECONDITION, RESOURCE_EXHAUSTED (TEMPLATES, SHARED_BYTES).
typedef void made_done(void *cookie, const struct made *m, const struct err *e);
int made_create(struct made_all *all, struct sandbox *from, struct made_spec *spec, made_done *done,
                void *cookie, struct made_op **out, struct err *e);
void made_cancel(struct made_op *op);

// NULL: the caller has none of this name.
struct made *made_find(const struct made_all *all, const char *tenant, const char *name);
struct list *made_list(struct made_all *all);
void made_delete(struct made *m);
