// SPDX-License-Identifier: Apache-2.0
// From a frame to a handler: the table of methods, and what is checked for each before its handler runs.
#pragma once

#include "call.h"

struct dispatch;
struct server;

// An empty table that hands `s` to the handlers. Owned: dispatch_free(). NULL without memory.
struct dispatch *dispatch_new(struct server *s);
void dispatch_free(struct dispatch *d);

// Adds a service's methods (ended by {0}); the table is borrowed for ever. Fails when a path has no rules in the
// descriptor set, or is there already.
int dispatch_add(struct dispatch *d, const struct call_method *methods, struct err *e);

// Fails when a method of the descriptor set has no handler: the start-up self-test. Call it after the last add.
int dispatch_complete(const struct dispatch *d, struct err *e);
