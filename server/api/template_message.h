// SPDX-License-Identifier: Apache-2.0
// Templates as messages, for template.c, template_push.c and template_load.c.
#pragma once

#include <stdint.h>

#include "proto/arena.h"
#include "server/rpc/call.h"
#include "server/snapshot/archives.h"
#include "server/snapshot/made.h"
#include "stockade/v1/template_service.pb-c.h"

enum { TEMPLATE_STEPS_MAX = 1024, TEMPLATE_ARCHIVE_VERSION = 1 };
#define TEMPLATE_ARCHIVE_FILE  "stockade-template"
#define TEMPLATE_ARCHIVE_LAYER "layers/"

// A template; `whole`: with its steps. NULL: out of memory.
Stockade__V1__SandboxTemplate *template_message(struct arena *a, const struct made *from,
                                                bool whole);

// The steps of one layer, as the elements of a message: an array in the arena. NULL: out of memory.
Stockade__V1__TemplateStep **template_steps(struct arena *a, const struct made *from,
                                            uint32_t layer, size_t *n);

// The methods, and what FileService does with the bytes of a load: false if there is no such one.
call_handler template_push, template_load;
bool template_send(struct server *s, struct call *c, const ProtobufCMessage *req);
bool template_finish(struct server *s, struct call *c, const ProtobufCMessage *req);

// What an archive says, unpacked and checked. INVALID_ARGUMENT (ARCHIVE_REFUSED), FAILED_PRECONDITION (ARCHIVE_NEWER).
int template_archive_read(const uint8_t *bytes, size_t n, struct arena *a,
                          Stockade__V1__TemplateArchive **out, struct err *e);

// How the files came about, as bytes for the record of a new template: what the archive says, and who loads it. NULL: *e.
uint8_t *template_archive_about(const Stockade__V1__TemplateArchive *of, const char *loaded_by,
                                size_t *n, struct err *e);
