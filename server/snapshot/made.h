// SPDX-License-Identifier: Apache-2.0
// Templates that callers made from the files of sandboxes.
//
//   create   (seal the files of now) -> kept_begin(): layers and a record on the disk, which says how the files came about
//   replace  the same, and then the record of the old one goes; after a crash in between the start removes it
//   start    the records of the store
//   use      kept_lay(): a new sandbox shows the layers, before its caller gets it (sandbox/image.h)
//   delete   the record goes; a layer stays as long as a sandbox shows it or another record has it
//
// Of the record, `about` is a message of proto/work.proto. A template names its host's template, which must be in the configuration
// while it is used. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/sandbox/image.h"
#include "server/store/store.h"
#include "snapshots.h"

struct made_all;
struct made_op;
struct sandbox;
struct server;
struct spool;
struct template;
struct work;

enum { MADE_OF_TENANT = 64, MADE_NETWORK = 64, MADE_ENV_BYTES = 40 * 1024 };

// Read-only for others.
struct made {
    struct image image; // must be first; its name
    struct list node;   // of all, oldest first
    struct made_all *all;
    uint64_t order;
    char tenant[32], principal[32], loaded_by[32]; // "": it was made here
    char host_template[64];
    char made_on[65], sandbox[ID_TEXT_MAX + 1], snapshot[SNAPSHOT_NAME], network[MADE_NETWORK];
    int64_t created_ms; // CLOCK_REALTIME
    uint64_t bytes, inodes;
    char digest[STORE_DIGEST_TEXT];
    bool ready;                   // it can be used
    char record[ID_TEXT_MAX + 1]; // "": it was deleted, or is being made
    uint32_t layers_n;            // the lowest first
    uint8_t layer[STORE_LAYERS_MAX][SPAWN_DIGEST_BYTES];
    struct work *work[STORE_LAYERS_MAX]; // owned
};

struct made_spec {
    const char *name, *snapshot, *workdir; // snapshot "": the files of now
    bool stop;                             // cancel the jobs that run first
    bool replace;                          // one of this name
    const struct template_env *env;        // the caller's
    uint32_t env_n;
};

// NULL: out of memory.
struct made_all *made_all_new(struct server *s);
// Once, after the store: those of its records. One that cannot be read is logged, and stays in the store.
void made_load(struct made_all *all);
// Call it when no sandbox is left. Accepts NULL.
void made_all_free(struct made_all *all);

// Starts to make a template of a sandbox's files. done is called once, after this has returned, unless made_unwait() comes before:
// then no template is left. ALREADY_EXISTS, NOT_FOUND (no such snapshot), FAILED_PRECONDITION, RESOURCE_EXHAUSTED (TEMPLATES,
// TEMPLATE_ENV), and what kept_begin() says.
typedef void made_done(void *cookie, const struct made *m, const struct err *e);
int made_create(struct made_all *all, struct sandbox *from, const struct made_spec *spec,
                made_done *done, void *cookie, struct made_op **out, struct err *e);

// Starts to make one of the streams of a spool, which is borrowed until done. `about`: its description, which says who loaded it. Failures as
// of made_create() and store_keep().
struct made_foreign {
    const char *tenant, *name;
    bool replace; // one of this name
    const struct template *on;
    const uint8_t *about;
    size_t about_n;
    struct spool *from;
};
int made_take(struct made_all *all, const struct made_foreign *f, made_done *done, void *cookie,
              struct made_op **out, struct err *e);
// Whether the tenant may have one more, of this name, or instead of this one. ALREADY_EXISTS, RESOURCE_EXHAUSTED (TEMPLATES).
int made_may_add(const struct made_all *all, const char *tenant, const char *name, bool replace,
                 struct err *e);

// Starts to write its layers to an empty spool (store_export()).
int made_export(const struct made *m, struct spool *to, store_done *done, void *cookie,
                struct store_exporting **out, struct err *e);

// The archives on their way (archives.h), and the number of this broker in ids.
struct list *made_archives(struct made_all *all);
const char *made_node(const struct made_all *all);

// Starts to delete one, which is not found from now on. done's m is NULL, and done may be; made_unwait() only forgets who waits.
int made_delete(struct made *m, made_done *done, void *cookie, struct made_op **out, struct err *e);

void made_unwait(struct made_op *op);

// NULL: the caller has none of this name.
struct made *made_find(const struct made_all *all, const char *tenant, const char *name);
struct list *made_list(struct made_all *all);

// Where its record is. NULL: this broker cannot keep files.
const struct store *made_store(const struct made *m);

// Its template of the host. NULL: the configuration has none of this name any more.
const struct template *made_template(const struct made *m);
