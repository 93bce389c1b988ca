// SPDX-License-Identifier: Apache-2.0
// The broker's end of a SOCK_SEQPACKET socket to a process that is not trusted: packets out within bounds (packets.h),
// packets in, one at a time, and its end reported once.
//
// It lies first in the struct of its owner, who describes it by a kind: callbacks and bounds. It may be freed at any moment,
// also inside a callback; then it is freed when that returns. Loop thread only.
//
//   packet_link_new() -> kind->packet() ... -> kind->gone() once -> packet_link_free()
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "packets.h"
#include "proto/err.h"

enum { PACKET_LINK_IN_MAX = 8 * 1024 }; // of a packet that comes in

struct packet_link_kind {
    const char *process; // "the guest": what speaks there, for texts
    const char *peer;    // "the sandbox": what does not read, for texts
    enum err_code ended; // the code of its orderly end
    // Out: of one packet, and what waits when the socket takes no more.
    size_t packet_max, queue_max, queue_bytes_max;
    size_t in_max;             // of a packet that comes in, at most PACKET_LINK_IN_MAX
    unsigned packets_per_turn; // that are read before others get their turn
    bool takes_fd;             // a packet may bring one descriptor
    // One packet that came in, aligned for any type. *fd is -1, or a descriptor that the callee may take with take_fd().
    // Negative: it breaks the protocol, *e says how, and the link ends.
    int (*packet)(void *owner, const void *bytes, size_t n, int *fd, struct err *e);
    // The socket ended or the other end broke the protocol; nothing more comes. Once at most.
    void (*gone)(void *owner, const struct err *why);
};

struct packet_link {
    const struct packet_link_kind *kind;
    int fd;
    struct loop_poll *poll; // NULL: it has ended
    struct packets out;
    bool freed, busy; // to be freed; inside a callback
};

// An owner of so many bytes, zero but for the link at its front. Takes fd (*owned* by the link, also on failure). NULL without
// memory, *e says so.
void *packet_link_new(size_t owner_bytes, uv_loop_t *loop, int fd,
                      const struct packet_link_kind *kind, struct err *e);

// Closes everything and frees the owner, at once or when the callback that runs returns. gone() is not called any more.
void packet_link_free(struct packet_link *l);

// Takes the packet, also on failure. As packets_send().
int packet_link_send(struct packet_link *l, struct packet *p, struct err *e);

// Ends it as if the socket had: gone() is called before this returns. Nothing when it has ended already, or inside a
// callback.
void packet_link_end(struct packet_link *l, const struct err *why);

// Ends it later, from the loop, as if the process had ended.
void packet_link_cut(const struct packet_link *l);
