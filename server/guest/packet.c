// SPDX-License-Identifier: Apache-2.0
// See packet.h. protobuf-c unpacks into one static heap, which is emptied after each packet. Pages of the heap and
// the buffer that were never used cost nothing. Used ones are returned to the kernel after a large packet, and when
// nobody waits.
#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "proto/fdpass.h"

enum {
    PAGE = 4096,
    HEAP_BYTES = 512 * 1024,
    KEPT_BYTES = 2 * PAGE, // bytes of heap and of buffer that stay between packets
    ALIGN = _Alignof(max_align_t),
    EVENT_BYTES_MAX = 1024,
};

uint8_t guest_area[HEAP_BYTES + GUEST_PACKET_BYTES_MAX + PAGE] GUEST_LAST; // heap and buffer
static size_t heap_used;
static size_t buffer_used;

// Starts at its first whole page, so that returning its pages affects nothing else.
static uint8_t *
area(size_t at)
{
    return guest_area + (size_t)(-(uintptr_t)guest_area % PAGE) + at;
}

static void
give_back(size_t from, size_t to)
{
    (void)madvise(area(from), to - from, MADV_DONTNEED);
}

static void *
heap_alloc(void *data, size_t n)
{
    (void)data;
    if (n > HEAP_BYTES - heap_used)
        return NULL;
    size_t rounded = (n + ALIGN - 1) / ALIGN * ALIGN;
    void *p = area(heap_used);
    heap_used += rounded <= HEAP_BYTES - heap_used ? rounded : HEAP_BYTES - heap_used;
    return p;
}

static void
heap_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

static ProtobufCAllocator heap_allocator = {.alloc = heap_alloc, .free = heap_free};

int
guest_packet_receive(int socket, struct guest_packet *p)
{
    *p = (struct guest_packet){.fds = {-1, -1, -1, -1}};
    struct fdpass m = {.bytes = area(HEAP_BYTES),
                       .n = GUEST_PACKET_BYTES_MAX,
                       .fds = p->fds,
                       .fds_n = GUEST_PACKET_FDS_MAX};
    int r = fdpass_receive(socket, &m, 0);
    if (r == 0 || (r < 0 && m.n == 0))
        return 0;
    p->fds_n = (int)m.fds_n;
    buffer_used = m.n;
    if (r > 0)
        p->request = stockade__guest__request__unpack(&heap_allocator, m.n, area(HEAP_BYTES));
    if (p->request != NULL)
        return 1;
    guest_packet_done(p, true);
    return -EPROTO;
}

void
guest_packet_done(struct guest_packet *p, bool keep)
{
    fdpass_close(p->fds, GUEST_PACKET_FDS_MAX);
    if (!keep)
        give_back(0, HEAP_BYTES + GUEST_PACKET_BYTES_MAX);
    if (keep && heap_used > KEPT_BYTES)
        give_back(KEPT_BYTES, HEAP_BYTES);
    if (keep && buffer_used > KEPT_BYTES)
        give_back(HEAP_BYTES + KEPT_BYTES, HEAP_BYTES + GUEST_PACKET_BYTES_MAX);
    heap_used = buffer_used = 0;
    p->request = NULL;
}

int
guest_packet_send(int socket, const Stockade__Guest__Event *event, int fd)
{
    uint8_t bytes[EVENT_BYTES_MAX];
    if (stockade__guest__event__get_packed_size(event) > sizeof bytes)
        return -EMSGSIZE;
    const struct fdpass m = {.bytes = bytes,
                             .n = stockade__guest__event__pack(event, bytes),
                             .fds = &fd,
                             .fds_n = fd >= 0};
    return fdpass_send(socket, &m, 0);
}
