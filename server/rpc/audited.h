// SPDX-License-Identifier: Apache-2.0
// What the audit log says about calls: that one begins, ends or was refused, by whom, and about which objects.
//
//   changes something, or a stream    AUDIT_PHASE_BEGAN, and the call waits until that is stored; later AUDIT_PHASE_ENDED
//   only reads                        AUDIT_PHASE_ENDED; none for what every caller may read about the broker itself
//   refused                           AUDIT_PHASE_REFUSED
//
// Arguments, environments and contents are not in it, because they may hold secrets: the digest of the request is.
#pragma once

#include "calls.h"

// The fields of a method's request that name objects, as bits by their index.
uint64_t audited_fields(const ProtobufCMessageDescriptor *request);

// Whether the method changes something: its scope is not one of reading.
bool audited_changes(const struct method_rules *rules);

// A call whose checks passed. 0: it may run; 1: `run` follows when the record is stored, or the call has failed until then;
// negative: refused, because the log cannot be written.
int audited_begin(struct call *c, void (*run)(struct call *c), struct err *e);

// A call fails with this error; or it succeeds with this response, whose ids are noted.
void audited_failure(struct call *c, const struct err *e);
void audited_response(struct call *c, const ProtobufCMessage *m);

// The call ends, with c->code.
void audited_end(struct call *c);
