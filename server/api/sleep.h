// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SandboxService.Sleep and Wake, and what other methods say of a sandbox that is asleep.
#pragma once

#include "server/rpc/call.h"

call_handler sandbox_sleep, sandbox_wake;

// dispatch_gate, with the struct server: a call about a sandbox that is asleep waits until it is awake. One whose token is not for this
// method, sandbox or template is refused, and wakes nothing.
int sleep_gate(void *server, struct call *c, const char *name, struct err *e);

// Replies with a message of one field, the sandbox, if it is asleep. False: it is not.
bool sleep_reply(const struct server *s, struct call *c, const char *id,
                 const ProtobufCMessageDescriptor *answer);

// Delete: removes what is left of an earlier sleep, and then what is here, with `delete_box`.
void sleep_delete(struct server *s, struct call *c, const char *id,
                  void (*delete_box)(struct server *s, struct call *c, const char *id));
