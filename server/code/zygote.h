// SPDX-License-Identifier: Apache-2.0
// Zygotes: interpreters that were started before anyone needed them, from which the interpreters of contexts are forked.
//
//   pool makes a sandbox --> zygote starts, imports what the template lists, runs cells of each kind
//                               | forks (and again after each one that was taken)
//                               v
//                            spare --the guest adopts it: a cgroup job-N of its own--> the sandbox is ready and warm
//                               | zygote_start_job()
//                               v
//                            interpreter of a context: a job like any other, which has run nothing yet
//
// Each sandbox has its own zygote, under the jobs' uid, with their filter and limits; no process is shared by two sandboxes.
// So that no fork and no move between cgroups happens while a caller waits, one spare is always ready. It has its own random
// seeds and pid; it shares the zygote's address layout and hash seed, as all processes that fork without exec do.
//
// Zygote and spare are agents (agent.h). What runs in a context has the same uid and may kill them, but not open their
// memory (PR_SET_DUMPABLE): a context without a spare starts an interpreter as usual.
// Loop thread only.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

struct job;
struct job_spec;
struct language;
struct sandbox;
struct server;
struct zygotes;

// Creates the table of the broker. Registers itself with srv->pool, which must exist. NULL: out of memory, or descriptors.
struct zygotes *zygotes_new(struct server *srv);
// When no sandbox is left. Accepts NULL.
void zygotes_free(struct zygotes *all);

// Whether a job of this language with this specification can get the spare of its sandbox: there is one, and it has the
// limits, the network mode and the environment that it would have been started with.
bool zygote_has(const struct sandbox *s, const struct language *l, const struct job_spec *spec);

// Starts a job with the spare as its process; spec->link is the interpreter's link (kernel.h). The caller sends `setup` first.
// As job_start(). `again`: the zygote is to fork another one.
int zygote_start_job(struct sandbox *s, struct job_spec *spec, bool again, struct job **out,
                     struct err *e);
