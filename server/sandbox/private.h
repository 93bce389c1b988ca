// SPDX-License-Identifier: Apache-2.0
// The table of sandboxes and common functions, as shared by sandbox.c, change.c and table.c.
#pragma once

#include "observers.h"
#include "sandbox.h"

struct sandboxes {
    struct server *srv;
    const struct sandbox_settings *settings;
    struct observers observers;
    const struct sandbox_networks *networks;
    const struct sandbox_mounters *mounters; // NULL: none registered
    const struct sandbox_jobs *jobs;         // NULL: none registered
    struct lists lists;
    struct idtable table;
    struct list owned; // sandboxes with an owner, oldest first
    uint64_t taken;    // number of sandboxes that were ever taken
    bool (*absent_has_name)(void *cookie, const char *tenant, const char *name); // NULL: none
    void *absent_cookie;
    void (*none_left)(void *cookie);
    void *none_left_cookie;
};

// The reason of sandbox_destroy(), for who waits for the sandbox: CANCELLED would mean that their own callers cancelled them.
struct err sandbox_gone_err(const struct err *why);

// Changes the state. A change that the picture in sandbox.h does not contain is a bug of the broker and aborts.
void sandbox_move(struct sandbox *s, enum sandbox_state to);

// Calls all waiters for this, each once. e NULL: success. s may be freed when this returns, since a callback may
// destroy it, but never during the calls.
void sandbox_notify(struct sandbox *s, enum sandbox_wait what, const struct err *e);

// Frees a DELETING sandbox if nothing of it is left, here and at the spawner. Call it at the end of each function that
// decreases `pending`. s may be freed when this returns.
void sandbox_settle(struct sandbox *s);

// lists_watch.c (see lists.h): it has folders that come from several layers from now on. It gets layers of `from` (NULL: of the state
// directory). Nothing of it is left.
void lists_watch(struct sandbox *s);
void lists_inherit(struct sandbox *s, const struct sandbox *from);
void lists_forget(struct sandbox *s);

// copy.c: it is being deleted. And: a copy for which nobody waits ends soon.
void sandbox_copy_stop(struct sandbox *s);
void sandbox_copy_make_way(struct sandbox *s);

// unseal.c: the next layer of those that the sandbox adopts. `done` is called later, unless the sandbox is being deleted then; after a
// failure nothing of the layer is left. Nobody asks for two.
typedef void unseal_done(struct sandbox *s, uint32_t layer, const struct err *e);
int unseal_begin(struct sandbox *s, const struct sandbox_adoption *a, unseal_done *done,
                 struct err *e);
void unseal_stop(struct sandbox *s); // it is being deleted

// swap.c: an agent has ended. The swap that waits for that goes on.
void swap_agent_ended(struct sandbox *s);

// Removes it from the table and the list.
void sandbox_table_remove(struct sandbox *s);

// Calls none_left if there is no sandbox any more.
void sandbox_table_settle(struct sandboxes *all);
