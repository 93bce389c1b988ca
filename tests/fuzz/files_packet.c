// SPDX-License-Identifier: Apache-2.0
// Packets of stockade-files, which a job may have replaced: each is read as the broker reads it, and its message unpacked as every
// response of FileService, because the program chooses the bytes and not the method. The input is packets with two bytes of length.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/files/packet.h"
#include "server/files_agent/protocol.h"
#include "stockade/v1/file_service.pb-c.h"
#include "stockade/v1/snapshot_service.pb-c.h"

enum { ARENA_MAX = 512 * 1024 };

static const ProtobufCMessageDescriptor *const responses[] = {
    &stockade__v1__file_service_stat_response__descriptor,
    &stockade__v1__file_service_list_response__descriptor,
    &stockade__v1__file_service_read_response__descriptor,
    &stockade__v1__file_service_open_write_response__descriptor,
    &stockade__v1__file_service_make_dir_response__descriptor,
    &stockade__v1__file_service_move_response__descriptor,
    &stockade__v1__file_service_copy_response__descriptor,
    &stockade__v1__file_service_remove_response__descriptor,
    &stockade__v1__file_service_upload_response__descriptor,
    &stockade__v1__file_service_download_response__descriptor,
    &stockade__v1__file_service_set_mode_response__descriptor,
    &stockade__v1__file_service_watch_response__descriptor,
    &stockade__v1__snapshot_service_diff_response__descriptor,
    &stockade__v1__snapshot_service_diff_file_response__descriptor,
};

static void
unpack(const struct files_packet *p)
{
    for (size_t i = 0; i < sizeof responses / sizeof responses[0]; i++) {
        struct arena *auto_arena a = arena_new(ARENA_MAX);
        ProtobufCMessage *m = NULL;
        struct err e = {0};
        if (a != NULL && wire_unpack(responses[i], p->body, p->body_n, a, &m, &e) < 0)
            assert(e.code != ERR_OK && memchr(e.text, 0, sizeof e.text) != NULL);
    }
}

static void
read_one(const uint8_t *bytes, size_t n)
{
    struct files_packet p;
    struct err e;
    if (files_packet_read(bytes, n, &p, &e) < 0)
        return;
    assert(p.body == bytes + sizeof(struct files_head) &&
           p.body_n == n - sizeof(struct files_head));
    if (p.kind == FILES_MESSAGE)
        unpack(&p);
    if (p.kind != FILES_END || p.succeeded)
        return;
    assert(p.why.code != ERR_OK && memchr(p.why.text, 0, sizeof p.why.text) != NULL &&
           memchr(p.why.reason, 0, sizeof p.why.reason) != NULL &&
           memchr(p.why.hint, 0, sizeof p.why.hint) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    while (n >= 2) {
        size_t one = (size_t)bytes[0] | (size_t)bytes[1] << 8;
        one = one < n - 2 ? one : n - 2;
        uint8_t *copy = malloc(one + 1); // so that a read beyond it is found
        if (copy == NULL)
            return 0;
        memcpy(copy, bytes + 2, one);
        read_one(copy, one);
        free(copy);
        bytes += 2 + one;
        n -= 2 + one;
    }
    return 0;
}
