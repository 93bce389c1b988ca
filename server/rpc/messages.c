// SPDX-License-Identifier: Apache-2.0
// See messages.h.
#include "messages.h"

#include <assert.h>
#include <string.h>

_Static_assert((int)SP_HELLO_BYTES == (int)MESSAGES_LENGTH_BYTES,
               "`head` holds the one or the other");

void
messages_in_init(struct messages_in *m)
{
    *m = (struct messages_in){.head_n = SP_HELLO_BYTES};
    sp_hello(m->head, SP_PROTO_REQ);
}

bool
messages_in_empty(const struct messages_in *m)
{
    return m->head_at == m->head_n && m->body_at == m->body_n;
}

void
messages_in_put(struct messages_in *m, const uint8_t *body, size_t n)
{
    assert(messages_in_empty(m));
    *m = (struct messages_in){.body = body, .body_n = n};
    m->head_n = sp_header(m->head, false, n);
}

size_t
messages_in_read(struct messages_in *m, uint8_t *buf, size_t room)
{
    size_t head = m->head_n - m->head_at < room ? m->head_n - m->head_at : room;
    memcpy(buf, m->head + m->head_at, head);
    m->head_at += head;
    size_t body = m->body_n - m->body_at < room - head ? m->body_n - m->body_at : room - head;
    if (body > 0)
        memcpy(buf + head, m->body + m->body_at, body);
    m->body_at += body;
    return head + body;
}

bool
messages_out_whole(const struct messages_out *m)
{
    return m->body != NULL && m->body_at == m->body_n;
}

void
messages_out_next(struct messages_out *m)
{
    *m = (struct messages_out){.greeted = true};
}

// The hello or a length is complete. False: out of memory.
static bool
take_length(struct messages_out *m, uint8_t *(*alloc)(void *cookie, size_t n), void *cookie)
{
    uint64_t n = 0;
    m->length_n = 0;
    if (!m->greeted) {
        m->greeted = true;
        return true;
    }
    int found = sp_header_read(m->length, sizeof m->length, false, &n);
    assert(found == 1);
    m->body = alloc(cookie, (size_t)n);
    m->body_n = (size_t)n;
    m->body_at = 0;
    return m->body != NULL;
}

ptrdiff_t
messages_out_take(struct messages_out *m, const uint8_t *p, size_t n,
                  uint8_t *(*alloc)(void *cookie, size_t n), void *cookie)
{
    size_t at = 0;
    while (at < n && !messages_out_whole(m)) {
        if (m->body == NULL) {
            m->length[m->length_n++] = p[at++];
            if (m->length_n == sizeof m->length && !take_length(m, alloc, cookie))
                return -1;
            continue;
        }
        size_t left = m->body_n - m->body_at;
        size_t more = n - at < left ? n - at : left;
        memcpy(m->body + m->body_at, p + at, more);
        m->body_at += more;
        at += more;
    }
    return (ptrdiff_t)at;
}
