// SPDX-License-Identifier: Apache-2.0
// The command `policy`: policies about calls (stockade-policy(5)). Files are read, tested and asked with the broker's own code
// (server/access/policy.h), so no broker is needed for that.
#pragma once

#include "cli.h"
#include "commands.h"
#include "proto/arena.h"
#include "server/access/policy.h"

enum { POLICIES_ARENA = 24 * 1024 * 1024 };

// An action that is being carried out; its own words follow its name.
struct policing {
    const struct command *c;
    const struct options *o;
    const char *const *words;
    int words_n;
};

// Reports an error of ours, or that there is no memory. Returns the exit code.
int policies_fail(const struct policing *p, const struct err *why);
int policies_no_memory(const struct policing *p);

// Reads files, and the "*.yaml" of folders in the order of their names, with their texts in the arena. configuration: files with the key
// `templates` are read as configurations, whose templates have policies.
int policies_files(const char *const *paths, int n, struct arena *a, Stockade__V1__PolicyFiles *out,
                   struct err *e);

// The same, read and tested. Free it with policy_free().
int policies_read(const char *const *paths, int n, bool tested, struct policy **out, struct err *e);

// Opens the broker and makes a call of PolicyService ("Show"). The answer is in the arena. False: the failure was reported.
bool policies_call(const struct policing *p, const char *method, const ProtobufCMessage *request,
                   const ProtobufCMessageDescriptor *response, struct arena *a,
                   ProtobufCMessage **out, int *code);

// Prints a message as JSON, in one line.
int policies_json(const ProtobufCMessage *m);

// "allow" and so on.
const char *policies_verdict(Stockade__V1__PolicyVerdict v);

// --learn of run and exec: writes a policy from what the process did. Returns the exit code.
int policies_learn_job(const struct command *c, const struct options *o, struct stockade *s,
                       const char *process);

// The actions. Each returns the exit code.
int policies_check(const struct policing *p);
int policies_test(const struct policing *p);
int policies_explain(const struct policing *p);
int policies_show(const struct policing *p);
int policies_diff(const struct policing *p);
int policies_reload(const struct policing *p);
int policies_sets(const struct policing *p); // sets.c
int policies_learn(const struct policing *p);
