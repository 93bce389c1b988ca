// SPDX-License-Identifier: Apache-2.0
// Converts the core's plain structs to messages. The results are allocated in an arena; NULL means that it is full.
#pragma once

#include <stdint.h>

#include "proto/wire.h"
#include "proto/err.h"
#include "server/rpc/call.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum {
    CONVERT_ARENA_MAX = 8 * 1024 * 1024,
};

Google__Protobuf__Timestamp *convert_wall(struct arena *a, int64_t ms); // CLOCK_REALTIME

Stockade__V1__Sandbox *convert_sandbox(struct arena *a, const struct sandbox *s);

// Reads the description of a new sandbox from a tenant's request, and checks it against the template: the host's, or one that the
// tenant made. Labels are set by
// convert_label(). INVALID_ARGUMENT, NOT_FOUND (template), FAILED_PRECONDITION (network). On success *out owns
// memory: sandbox_spec_clear().
int convert_spec(const struct server *s, const char *tenant, const char *template,
                 const Stockade__V1__Limits *limits, const Stockade__V1__NetworkPolicy *network,
                 struct sandbox_spec *out, struct err *e);

// What a sandbox has mounted: the template's own volumes and folders of the host, then the request's. NOT_FOUND: the tenant has
// no such volume. PERMISSION_DENIED (HOST_MOUNT): the template does not list that folder, or as read-only.
int convert_mounts(const struct server *s, const char *tenant, size_t n,
                   Stockade__V1__VolumeMount *const *m, struct sandbox_spec *spec, struct err *e);

// One of them: of a volume, or of a folder of the host, whose name is its path.
int convert_mount(const struct server *s, const char *tenant, const char *name, const char *at,
                  bool read_only, struct sandbox_spec *spec, struct err *e);

// The policy of a request for a sandbox of a template; *out is one reference. Errors as above.
int convert_network(const struct server *s, const struct template *t,
                    const Stockade__V1__NetworkPolicy *m, struct network **out, struct err *e);

// A policy as a message; NULL means no network.
Stockade__V1__NetworkPolicy *convert_policy(struct arena *a, const struct network *n);

// Makes room for n labels, and then adds one at a time. The entries of maps have a separate type in each message.
int convert_labels_begin(struct sandbox_spec *spec, size_t n, struct err *e);
void convert_label(struct sandbox_spec *spec, const char *key, const char *value);

// NOT_FOUND, TEMPLATE_UNKNOWN. Returns its negative errno.
int convert_no_template(const char *name, struct err *e);

// INVALID_ARGUMENT: a request wants both to stop the jobs that run and to copy their files.
int convert_check_copy(bool copy, bool stop, struct err *e);

// Fails a call because there is no memory for its response.
void convert_no_memory(struct call *c);

// Unpacks what a program inside a sandbox sent as a response. a may be NULL. INTERNAL: it is not valid.
int convert_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n,
                   struct arena *a, ProtobufCMessage **out, struct err *e);

// The program has ended its work, for this reason (NULL: it is done): ends the call. A call of one response fails, because it had none.
void convert_end(struct call *c, bool stream, const struct err *why);
