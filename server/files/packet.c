// SPDX-License-Identifier: Apache-2.0
// See packet.h.
#include "packet.h"

#include <string.h>

#include "server/files_agent/protocol.h"

static int
read_end(struct files_packet *p, struct err *e)
{
    if (p->body_n != sizeof p->why)
        return err_set(e, ERR_INTERNAL, "an END of %zu bytes", p->body_n);
    memcpy(&p->why, p->body, sizeof p->why);
    p->succeeded = p->why.code == ERR_OK;
    err_sanitize(&p->why);
    return 0;
}

int
files_packet_read(const void *bytes, size_t n, struct files_packet *out, struct err *e)
{
    struct files_head head;
    if (n < sizeof head)
        return err_set(e, ERR_INTERNAL, "a packet of %zu bytes", n);
    memcpy(&head, bytes, sizeof head);
    *out = (struct files_packet){
        .kind = head.kind, .body = (const uint8_t *)bytes + sizeof head, .body_n = n - sizeof head};
    switch (head.kind) {
    case FILES_MESSAGE:
    case FILES_DATA:
    case FILES_BUSY:
        return 0;
    case FILES_END:
        return read_end(out, e);
    default:
        return err_set(e, ERR_INTERNAL, "a packet of kind %u", head.kind);
    }
}
