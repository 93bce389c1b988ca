// SPDX-License-Identifier: Apache-2.0
// Calls that a program does not wait for (stockade_poll.h): stockade_pump() passes their messages on.
#pragma once

#include "stockade.h"

struct call_spec;

// Ends every call that was begun, with a last on_end: the handle is being closed. Lock held; releases it meanwhile.
void async_end_all(struct stockade *s);

// Copies the program's options; INVALID_ARGUMENT: no on_end.
int async_options(struct stockade_async *to, const struct stockade_async *from,
                  struct stockade_error *e);

// Begins a call that stockade_pump() passes on, and stores its id. On success the sink's cookie is the sink's until on_end.
int async_begin(struct stockade *s, struct call_spec *spec, const struct stockade_async *a,
                uint64_t *id, struct stockade_error *e);

// Calls on_end of the program.
void async_end(const struct stockade_async *a, uint64_t id, int rc,
               const struct stockade_error *error, const struct stockade_result *result,
               const struct stockade_bytes *response);
