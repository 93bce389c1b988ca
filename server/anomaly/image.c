// SPDX-License-Identifier: Apache-2.0
// See image.h.
#include "image.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "profile.pb-c.h"

enum {
    VERSION = 3,          // versions 1 and 2 were not protobuf messages
    VERSION_TAG = 1 << 3, // the first byte of each file
    SUM_BYTES = 32,
    SUM_TAG = 15 << 3 | 2,
    SUM_FIELD_BYTES = 2 + SUM_BYTES, // tag, length and sum at the end of each file
    WORDS = WATCH_PROFILE_BITS / 64,
    DISTANCE_BYTES_MAX = 3, // 21 bits
    ARENA_MAX = 8 << 20,    // for reading; for writing, room for distances that turn out shorter
    WRITE_ARENA_MAX = 16 << 20,
};

// ---- reading

struct reader {
    const Stockade__Profile__Profile *m;
    size_t at; // the current executable
    struct err *e;
};

static int
wrong(struct err *e, const char *what)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "not a valid profile: %s", what);
}

static int
wrong_exe(const struct reader *r, const char *what)
{
    return err_set(r->e, ERR_INVALID_ARGUMENT, "not a valid profile: executable %zu: %s", r->at,
                   what);
}

static bool
is_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    return *s != '\0' && *s != '.' && *s != '-' && s[strspn(s, letters)] == '\0';
}

// Checks the fixed parts before the message itself.
static int
check_file(const uint8_t *bytes, size_t n, struct err *e)
{
    static const char old[] = "STKPROF";
    uint8_t sum[SUM_BYTES];
    if (n > IMAGE_BYTES_MAX)
        return wrong(e, "it is too long");
    if (n >= sizeof old - 1 && memcmp(bytes, old, sizeof old - 1) == 0)
        return wrong(e, "a profile of another version: reset the template and learn again");
    if (n == 0 || bytes[0] != VERSION_TAG)
        return err_set(e, ERR_INVALID_ARGUMENT, "this file is not a profile");
    if (n < SUM_FIELD_BYTES)
        return wrong(e, "it is truncated");
    const uint8_t *field = bytes + n - SUM_FIELD_BYTES;
    (void)crypto_generichash(sum, sizeof sum, bytes, n - SUM_BYTES, NULL, 0);
    if (field[0] != SUM_TAG || field[1] != SUM_BYTES || memcmp(field + 2, sum, sizeof sum) != 0)
        return wrong(e, "it is damaged: its checksum is wrong");
    return 0;
}

static int
check_head(const Stockade__Profile__Profile *m, struct err *e)
{
    struct image_head h;
    if (m->version != VERSION)
        return wrong(e, "a profile of another version: reset the template and learn again");
    if (m->n_executables > IMAGE_EXES_MAX)
        return wrong(e, "too many executables");
    // 253402300799: the last second of a Timestamp.
    if (!is_name(m->template_) || strlen(m->template_) >= sizeof h.template ||
        m->frozen_s > 253402300799ULL)
        return wrong(e, "an invalid name or time");
    return 0;
}

// Reads the distance from the previous bit, at least 1. 0: there is none.
static uint64_t
take_distance(const uint8_t **p, const uint8_t *end)
{
    uint64_t v = 0;
    for (int i = 0; i < DISTANCE_BYTES_MAX && *p < end; i++) {
        const uint8_t byte = *(*p)++;
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return v;
    }
    return 0;
}

static int
read_distances(const struct reader *r, const ProtobufCBinaryData *from, struct watch_profile *bits)
{
    const uint8_t *p = from->data;
    const uint8_t *end = p + from->len;
    uint64_t at = 0; // the previous bit, counted from 1
    while (p < end) {
        const uint64_t d = take_distance(&p, end);
        at += d;
        if (d == 0 || at > WATCH_PROFILE_BITS)
            return wrong_exe(r, "an invalid distance between bits");
        bits->bits[(at - 1) / 64] |= UINT64_C(1) << ((at - 1) % 64);
    }
    return 0;
}

static int
read_bits(const struct reader *r, const Stockade__Profile__Executable *m,
          struct watch_profile *bits)
{
    memset(bits, 0, sizeof *bits);
    if (m->bits.len == 0)
        return read_distances(r, &m->distances, bits);
    if (m->bits.len != sizeof *bits || m->distances.len > 0)
        return wrong_exe(r, "an invalid set of bits");
    for (size_t i = 0; i < m->bits.len; i++)
        bits->bits[i / 8] |= (uint64_t)m->bits.data[i] << (8 * (i % 8));
    return 0;
}

static int
read_exe(const struct reader *r, struct image_exe *x)
{
    const Stockade__Profile__Executable *m = r->m->executables[r->at];
    *x = (struct image_exe){
        .key = {.inode = m->inode, .size = m->size, .magic = m->magic, .owner = m->owner},
        .execs = m->execs,
        .runs = m->runs,
        .surprise = m->surprise,
    };
    if (x->surprise > WATCH_WINDOW)
        return wrong_exe(r, "more surprises than calls");
    if (m->path.len >= sizeof x->path ||
        (m->path.len > 0 && memchr(m->path.data, 0, m->path.len) != NULL))
        return wrong_exe(r, "a path that is too long or has a NUL");
    if (m->path.len > 0)
        memcpy(x->path, m->path.data, m->path.len);
    for (size_t k = 0; k < r->at; k++) {
        const Stockade__Profile__Executable *o = r->m->executables[k];
        if (o->inode == m->inode && o->size == m->size && o->magic == m->magic &&
            o->owner == m->owner)
            return wrong_exe(r, "is there twice");
    }
    return 0;
}

// One pass over the executables.
static int
walk(const Stockade__Profile__Profile *m, struct watch_profile *bits,
     void (*fn)(void *cookie, const struct image_exe *exe, const struct watch_profile *bits),
     void *cookie, struct err *e)
{
    struct reader r = {.m = m, .e = e};
    for (; r.at < m->n_executables; r.at++) {
        struct image_exe x;
        int rc = read_exe(&r, &x);
        if (rc == 0)
            rc = read_bits(&r, m->executables[r.at], bits);
        if (rc < 0)
            return rc;
        if (fn != NULL)
            fn(cookie, &x, bits);
    }
    return 0;
}

static void
give_head(const Stockade__Profile__Profile *m, struct image_head *h)
{
    *h = (struct image_head){.runs = m->runs,
                             .version = m->revision,
                             .exes = (uint32_t)m->n_executables,
                             .frozen = m->frozen,
                             .own_files = m->own_files,
                             .frozen_s = m->frozen_s};
    memcpy(h->template, m->template_, strlen(m->template_));
}

int
image_read(const uint8_t *bytes, size_t n, struct image_head *head,
           void (*fn)(void *cookie, const struct image_exe *exe, const struct watch_profile *bits),
           void *cookie, struct err *e)
{
    int r = check_file(bytes, n, e);
    if (r < 0)
        return r;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    struct watch_profile *auto_free bits = malloc(sizeof *bits);
    if (a == NULL || bits == NULL)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return err_sys(e, ENOMEM, "read a profile");
    ProtobufCMessage *unpacked = NULL;
    r = wire_unpack(&stockade__profile__profile__descriptor, bytes, n, a, &unpacked, e);
    if (r < 0)
        return err_wrap(e, "not a valid profile");
    const Stockade__Profile__Profile *m = (const Stockade__Profile__Profile *)unpacked;
    r = check_head(m, e);
    if (r == 0)
        r = walk(m, bits, NULL, NULL, e);
    if (r == 0 && fn != NULL)
        r = walk(m, bits, fn, cookie, e);
    if (r == 0)
        give_head(m, head);
    return r;
}

// ---- writing

struct image_writer {
    struct arena *arena;
    Stockade__Profile__Profile m;
    uint32_t room; // number of executables that still fit
};

static int
too_large(struct err *e)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the profiles are larger than %d bytes",
                    IMAGE_BYTES_MAX);
    err_detail(e, "PROFILE_TOO_LARGE", NULL, "reset the template, and learn from fewer runs");
    return r;
}

struct image_writer *
image_begin(const struct image_head *head, struct err *e)
{
    struct image_writer *w = calloc(1, sizeof *w);
    if (w != NULL)
        w->arena = arena_new(WRITE_ARENA_MAX);
    char *name = w == NULL || w->arena == NULL
                     ? NULL
                     : arena_copy(w->arena, head->template, strlen(head->template));
    Stockade__Profile__Executable **room =
        name == NULL ? NULL : arena_alloc(w->arena, head->exes * sizeof(void *));
    if (name == NULL || (room == NULL && head->exes > 0)) {
        (void)err_sys(e, ENOMEM, "write a profile");
        image_free(w);
        return NULL;
    }
    w->m = (Stockade__Profile__Profile)STOCKADE__PROFILE__PROFILE__INIT;
    w->m.version = VERSION;
    w->m.template_ = name;
    w->m.frozen = head->frozen;
    w->m.own_files = head->own_files;
    w->m.runs = head->runs;
    w->m.revision = head->version;
    w->m.frozen_s = head->frozen_s;
    w->m.executables = room;
    w->room = head->exes;
    return w;
}

static int
put_distances(struct arena *a, const struct watch_profile *bits, uint32_t n,
              Stockade__Profile__Executable *m)
{
    uint8_t *p = arena_alloc(a, (size_t)n * DISTANCE_BYTES_MAX + 1);
    uint64_t before = 0;
    if (p == NULL)
        return -ENOMEM;
    m->distances.data = p;
    for (size_t i = 0; i < WORDS; i++) {
        for (uint64_t left = bits->bits[i]; left != 0; left &= left - 1) {
            const uint64_t at = i * 64 + (uint64_t)__builtin_ctzll(left) + 1;
            uint64_t d = at - before;
            before = at;
            for (; d >= 0x80; d >>= 7)
                *p++ = (uint8_t)(d | 0x80);
            *p++ = (uint8_t)d;
        }
    }
    m->distances.len = (size_t)(p - m->distances.data);
    return 0;
}

static int
put_bits(struct arena *a, const struct watch_profile *bits, Stockade__Profile__Executable *m)
{
    const uint32_t n = image_count(bits);
    if (n <= sizeof *bits / 2) // distances take at most about two bytes each
        return put_distances(a, bits, n, m);
    m->bits.data = arena_alloc(a, sizeof *bits);
    if (m->bits.data == NULL)
        return -ENOMEM;
    m->bits.len = sizeof *bits;
    for (size_t i = 0; i < sizeof *bits; i++)
        m->bits.data[i] = (uint8_t)(bits->bits[i / 8] >> (8 * (i % 8)));
    return 0;
}

int
image_add(struct image_writer *w, const struct image_exe *exe, const struct watch_profile *bits,
          struct err *e)
{
    Stockade__Profile__Executable *m =
        wire_make(w->arena, &stockade__profile__executable__descriptor);
    if (w->m.n_executables == w->room || m == NULL)
        return too_large(e);
    m->inode = exe->key.inode;
    m->size = exe->key.size;
    m->magic = exe->key.magic;
    m->owner = exe->key.owner;
    m->execs = exe->execs;
    m->runs = exe->runs;
    m->surprise = exe->surprise;
    m->path.len = strlen(exe->path);
    m->path.data = (uint8_t *)arena_copy(w->arena, exe->path, m->path.len);
    if (m->path.data == NULL || put_bits(w->arena, bits, m) < 0)
        return too_large(e);
    w->m.executables[w->m.n_executables++] = m;
    return 0;
}

int
image_end(struct image_writer *w, uint8_t **bytes, size_t *n, struct err *e)
{
    uint8_t empty[SUM_BYTES] = {0};
    w->m.sum = (ProtobufCBinaryData){sizeof empty, empty};
    const size_t packed = stockade__profile__profile__get_packed_size(&w->m);
    if (packed > IMAGE_BYTES_MAX)
        return too_large(e);
    uint8_t *out = malloc(packed);
    if (out == NULL)
        return err_sys(e, ENOMEM, "write a profile");
    (void)stockade__profile__profile__pack(&w->m, out);
    (void)crypto_generichash(out + packed - SUM_BYTES, SUM_BYTES, out, packed - SUM_BYTES, NULL, 0);
    *bytes = out;
    *n = packed;
    return 0;
}

void
image_free(struct image_writer *w)
{
    if (w != NULL)
        arena_free(w->arena);
    free(w);
}

uint32_t
image_count(const struct watch_profile *bits)
{
    uint32_t n = 0;
    for (size_t i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcountll(bits->bits[i]);
    return n;
}
