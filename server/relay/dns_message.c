// SPDX-License-Identifier: Apache-2.0
// See dns_message.h. The decoder reads through a cursor that knows its end, and fails at the first byte that is not
// allowed.
#include "dns_message.h"

#include <errno.h>
#include <string.h>

enum {
    FLAG_QR = 0x8000,
    FLAG_TC = 0x0200,
    FLAG_RD = 0x0100,
    FLAG_RA = 0x0080,
    OPCODE = 0x7800,
    LABEL_MAX = 63,
    NAME_WIRE_MAX = 255,
    POINTER_TO_QUESTION = 0xc00c,
    OPT_FIXED = 11, // root name, type, class, ttl, length
};

struct cursor {
    const uint8_t *at, *end;
};

static bool
read_u16(struct cursor *c, uint16_t *out)
{
    if (c->end - c->at < 2)
        return false;
    *out = (uint16_t)(c->at[0] << 8 | c->at[1]);
    c->at += 2;
    return true;
}

// The byte in lower case; 0: not allowed in a host name.
static char
name_byte(uint8_t b)
{
    if (b >= 'A' && b <= 'Z')
        b |= 0x20;
    bool fine = (b >= 'a' && b <= 'z') || (b >= '0' && b <= '9') || b == '-' || b == '_';
    if (!fine)
        return 0;
    return (char)b;
}

// Converts labels to text. False: compressed, too long, truncated, or other bytes.
static bool
read_name(struct cursor *c, char *out)
{
    const uint8_t *begin = c->at;
    size_t n = 0;
    for (;;) {
        if (c->at == c->end)
            return false;
        uint8_t label = *c->at++;
        if (label == 0)
            break;
        if (label > LABEL_MAX || c->end - c->at < label ||
            c->at + label - begin > NAME_WIRE_MAX - 1)
            return false;
        if (n > 0)
            out[n++] = '.';
        for (uint8_t i = 0; i < label; i++) {
            out[n] = name_byte(*c->at++);
            if (out[n++] == '\0')
                return false;
        }
    }
    out[n] = '\0';
    return true;
}

// After the question only one OPT record may follow, which ends the message.
static int
read_additional(struct cursor *c, uint16_t count, struct dns_query *q)
{
    uint16_t type = 0;
    uint16_t size = 0;
    uint16_t version = 0;
    uint16_t flags = 0;
    uint16_t n = 0;
    if (count == 0)
        return c->at == c->end ? DNS_NOERROR : DNS_FORMERR;
    if (count > 1 || c->end - c->at < OPT_FIXED || *c->at++ != 0)
        return DNS_FORMERR;
    if (!read_u16(c, &type) || !read_u16(c, &size) || !read_u16(c, &version) ||
        !read_u16(c, &flags) || !read_u16(c, &n) || type != DNS_OPT || c->end - c->at != n)
        return DNS_FORMERR;
    q->edns = true;
    return (version & 0xff) == 0 ? DNS_NOERROR : DNS_BADVERS;
}

int
dns_decode(const uint8_t *bytes, size_t n, struct dns_query *q)
{
    struct cursor c = {bytes, bytes + n};
    uint16_t flags = 0;
    uint16_t counts[4] = {0};
    memset(q, 0, sizeof *q);
    if (n < DNS_HEADER || n > DNS_QUERY_MAX)
        return -EBADMSG;
    (void)read_u16(&c, &q->id);
    (void)read_u16(&c, &flags);
    for (size_t i = 0; i < 4; i++)
        (void)read_u16(&c, &counts[i]);
    if ((flags & FLAG_QR) != 0)
        return -EBADMSG;
    q->recursion = (flags & FLAG_RD) != 0;
    if ((flags & OPCODE) != 0)
        return DNS_NOTIMP;
    if ((flags & FLAG_TC) != 0 || counts[0] != 1 || counts[1] != 0 || counts[2] != 0)
        return DNS_FORMERR;
    const uint8_t *question = c.at;
    if (!read_name(&c, q->name) || !read_u16(&c, &q->type) || !read_u16(&c, &q->class)) {
        q->name[0] = '\0';
        return DNS_FORMERR;
    }
    q->question_n = (uint16_t)(c.at - question);
    memcpy(q->question, question, q->question_n);
    int rcode = read_additional(&c, counts[3], q);
    return rcode == DNS_NOERROR && q->class != DNS_IN ? DNS_REFUSED : rcode;
}

struct writer {
    uint8_t *at;
};

static void
write_u16(struct writer *w, unsigned v)
{
    *w->at++ = (uint8_t)(v >> 8);
    *w->at++ = (uint8_t)v;
}

static void
write_bytes(struct writer *w, const void *bytes, size_t n)
{
    memcpy(w->at, bytes, n);
    w->at += n;
}

size_t
dns_answer(const struct dns_query *q, enum dns_rcode rcode, const uint8_t *address, uint8_t *out)
{
    struct writer w = {out};
    unsigned n = q->type == DNS_AAAA ? 16 : 4;
    write_u16(&w, q->id);
    write_u16(&w, FLAG_QR | FLAG_RA | (q->recursion ? FLAG_RD : 0U) | ((unsigned)rcode & 0xf));
    write_u16(&w, q->question_n > 0);
    write_u16(&w, address != NULL);
    write_u16(&w, 0);
    write_u16(&w, q->edns);
    write_bytes(&w, q->question, q->question_n);
    if (address != NULL) {
        write_u16(&w, POINTER_TO_QUESTION);
        write_u16(&w, q->type);
        write_u16(&w, DNS_IN);
        write_u16(&w, 0);
        write_u16(&w, DNS_TTL_S);
        write_u16(&w, n);
        write_bytes(&w, address, n);
    }
    if (q->edns) {
        *w.at++ = 0;
        write_u16(&w, DNS_OPT);
        write_u16(&w, DNS_QUERY_MAX);
        write_u16(&w, (unsigned)rcode >> 4 << 8);
        write_u16(&w, 0);
        write_u16(&w, 0);
    }
    return (size_t)(w.at - out);
}
