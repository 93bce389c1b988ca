// SPDX-License-Identifier: Apache-2.0
// Calls of FileService, with messages of the schema, for the commands `fs` and `cp`, of SnapshotService for `snapshot diff`, and of
// TemplateService for `template push` and `load`.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <protobuf-c/protobuf-c.h>

#include "client/stockade.h"
#include "proto/arena.h"
#include "stockade/v1/file_service.pb-c.h"
#include "stockade/v1/snapshot_service.pb-c.h"
#include "stockade/v1/template_service.pb-c.h"

#define REMOTE_METHOD(name) "/stockade.v1.FileService/" name

// A unary call. The response is borrowed from the arena; out may be NULL.
int remote_call(struct stockade *s, const char *method, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *response, struct arena *a, ProtobufCMessage **out,
                struct stockade_error *e);

// A stream of messages: each goes to on_message (stockade_request of client/stockade.h).
int remote_watch(struct stockade *s, const char *method, const ProtobufCMessage *request,
                 int (*on_message)(void *cookie, const void *bytes, size_t n), void *cookie,
                 struct stockade_error *e);

// The contents of a file, or another stream of bytes: `data` is called for each piece, and ends the call if it does not
// return 0 (then this returns 1).
struct remote_sink {
    int (*data)(void *cookie, const void *bytes, size_t n);
    int (*about)(void *cookie, const Stockade__V1__File *file); // the first message; may be NULL
    void *cookie;
};
int remote_read(struct stockade *s, const Stockade__V1__FileServiceReadRequest *request,
                const struct remote_sink *sink, struct stockade_error *e);

// The same for an archive. *skipped: files that were left out.
int remote_download(struct stockade *s, const Stockade__V1__FileServiceDownloadRequest *request,
                    const struct remote_sink *sink, uint64_t *skipped, struct stockade_error *e);

// The same for the archive of a template.
int remote_push(struct stockade *s, const Stockade__V1__TemplateServicePushRequest *request,
                const struct remote_sink *sink, struct stockade_error *e);

// The same for the difference of a file as text. *binary: it is no text.
int remote_patch(struct stockade *s, const Stockade__V1__SnapshotServiceDiffFileRequest *request,
                 const struct remote_sink *sink, bool *binary, struct stockade_error *e);

// Where the bytes of a transfer come from. read() is called when fd can be read, and returns the number of bytes, 0 at the end,
// or a negative errno, which gives up the transfer.
struct remote_source {
    ssize_t (*read)(void *cookie, void *bytes, size_t n);
    void *cookie;
    int fd;
    int failed; // the errno of read(); 0: none
};

// read() of a descriptor, which the cookie points to: what is there, at least one byte.
ssize_t remote_read_fd(void *cookie, void *bytes, size_t n);

struct remote_transfer {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response;
};

// Begins a transfer, sends all bytes of the source with several calls at a time, and returns the last message, borrowed
// from the arena. CANCELLED, with source->failed set: the source failed.
int remote_send(struct stockade *s, const struct remote_transfer *transfer,
                struct remote_source *source, struct arena *a, ProtobufCMessage **out,
                struct stockade_error *e);
