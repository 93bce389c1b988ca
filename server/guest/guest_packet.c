// SPDX-License-Identifier: Apache-2.0
// See guest_packet.h. protobuf-c unpacks into one static heap that is emptied after each packet. Pages of it and of the
// buffer that were never touched cost nothing; those that were are given back after a large packet, and when nobody waits.
#include "guest_packet.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    HEAP_BYTES = 512 * 1024,
    KEPT_BYTES = 2 * PAGE, // of heap and buffer each, between packets
    ALIGN = _Alignof(max_align_t),
    EVENT_BYTES_MAX = 1024,
};

uint8_t guest_area[HEAP_BYTES + GUEST_PACKET_BYTES_MAX + PAGE] GUEST_LAST; // heap and buffer
static size_t heap_used;
static size_t buffer_used;

// From its first whole page on, so that nothing else lies in what is given back.
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

// There is room for one header, and the socket asks for no other kind.
static void
take_fds(struct msghdr *m, struct guest_packet *p)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
        int fd = -1;
        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        if (p->fds_n < GUEST_PACKET_FDS_MAX)
            p->fds[p->fds_n++] = fd;
        else
            (void)close(fd);
    }
}

int
guest_packet_receive(int socket, struct guest_packet *p)
{
    *p = (struct guest_packet){.fds = {-1, -1, -1}};
    union {
        char bytes[CMSG_SPACE(GUEST_PACKET_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = area(HEAP_BYTES), .iov_len = GUEST_PACKET_BYTES_MAX};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do
        n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return 0;
    take_fds(&m, p);
    buffer_used = (size_t)n;
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
        p->request = stockade__guest__request__unpack(&heap_allocator, (size_t)n, area(HEAP_BYTES));
    if (p->request != NULL)
        return 1;
    guest_packet_done(p, true);
    return -EPROTO;
}

void
guest_packet_done(struct guest_packet *p, bool keep)
{
    for (int i = 0; i < GUEST_PACKET_FDS_MAX; i++)
        if (p->fds[i] >= 0) {
            (void)close(p->fds[i]);
            p->fds[i] = -1;
        }
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
    struct iovec iov = {.iov_base = bytes, .iov_len = stockade__guest__event__pack(event, bytes)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}
