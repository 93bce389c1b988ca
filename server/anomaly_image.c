// SPDX-License-Identifier: Apache-2.0
// See anomaly_image.h.
#include "anomaly_image.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The last byte is the version. 1 had no `runs` and `surprise`, without which thresholds would be another profile's.
static const uint8_t magic[8] = {'S', 'T', 'K', 'P', 'R', 'O', 'F', 2};

enum { SUM_BYTES = 32, WORDS = WATCH_PROFILE_BITS / 64, FORM_DISTANCES = 0, FORM_BITS = 1 };

// ---- reading

struct reader {
    const uint8_t *p, *end;
    const uint8_t *start;
    struct err *e;
};

static int
wrong(const struct reader *r, const char *what)
{
    return err_set(r->e, ERR_INVALID_ARGUMENT, "no profile that can be used: %s at byte %zu", what,
                   (size_t)(r->p - r->start));
}

// A number of n bytes. 0, or wrong.
static int
number(struct reader *r, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    if ((size_t)(r->end - r->p) < n)
        return wrong(r, "it ends too early");
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)r->p[i] << (8 * i);
    r->p += n;
    *out = v;
    return 0;
}

static int
number32(struct reader *r, uint32_t *out)
{
    uint64_t v = 0;
    int err = number(r, 4, &v);
    *out = (uint32_t)v;
    return err;
}

// A length of n bytes and the text behind it, which has no NUL. max: with the NUL that is put behind it.
static int
text(struct reader *r, size_t length_bytes, char *out, size_t max)
{
    uint64_t len = 0;
    int err = number(r, length_bytes, &len);
    if (err < 0)
        return err;
    if (len >= max || len > (uint64_t)(r->end - r->p) || memchr(r->p, 0, len) != NULL)
        return wrong(r, "a text that is too long or has a NUL");
    memcpy(out, r->p, len);
    memset(out + len, 0, max - len);
    r->p += len;
    return 0;
}

static bool
is_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    return *s != '\0' && *s != '.' && *s != '-' && s[strspn(s, letters)] == '\0';
}

static int
read_head(struct reader *r, struct image_head *h)
{
    if ((size_t)(r->end - r->p) < sizeof magic || memcmp(r->p, magic, sizeof magic - 1) != 0)
        return wrong(r, "another kind of file");
    if (r->p[sizeof magic - 1] != magic[sizeof magic - 1])
        return wrong(r, "a profile of another version: reset the template, and teach it anew");
    r->p += sizeof magic;
    int err = number32(r, &h->flags);
    if (err == 0)
        err = number32(r, &h->runs);
    if (err == 0)
        err = number32(r, &h->version);
    if (err == 0)
        err = number32(r, &h->exes);
    if (err == 0)
        err = number(r, 8, &h->frozen_s);
    if (err == 0)
        err = text(r, 1, h->template, sizeof h->template);
    if (err < 0)
        return err;
    if ((h->flags & ~(uint32_t)(IMAGE_FROZEN | IMAGE_OWN_FILES)) != 0)
        return wrong(r, "flags of a later version");
    if (h->exes > IMAGE_EXES_MAX)
        return wrong(r, "more executables than there may be");
    // 253402300799: the last second that a Timestamp can tell.
    if (!is_name(h->template) || h->frozen_s > 253402300799ULL)
        return wrong(r, "a name or time that cannot be");
    return 0;
}

// The distance from the bit before, at least 1.
static int
distance(struct reader *r, uint64_t *out)
{
    uint64_t v = 0;
    for (int i = 0; i < 3; i++) { // 21 bits
        uint64_t byte = 0;
        int err = number(r, 1, &byte);
        if (err < 0)
            return err;
        v |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = v;
            return v > 0 ? 0 : wrong(r, "the same bit twice");
        }
    }
    return wrong(r, "a distance that is too long");
}

static int
read_distances(struct reader *r, uint32_t n, struct watch_profile *bits)
{
    uint64_t at = 0; // the bit before, counted from 1
    for (uint32_t i = 0; i < n; i++) {
        uint64_t d = 0;
        int err = distance(r, &d);
        if (err < 0)
            return err;
        at += d;
        if (at > WATCH_PROFILE_BITS)
            return wrong(r, "a bit beyond the last");
        bits->bits[(at - 1) / 64] |= UINT64_C(1) << ((at - 1) % 64);
    }
    return 0;
}

static int
read_bits(struct reader *r, struct image_exe *x, struct watch_profile *bits)
{
    uint64_t form = 0;
    int err = number32(r, &x->bits_n);
    if (err == 0)
        err = number(r, 1, &form);
    if (err < 0)
        return err;
    memset(bits, 0, sizeof *bits);
    if (x->bits_n > WATCH_PROFILE_BITS || form > FORM_BITS)
        return wrong(r, "a set of bits that cannot be");
    if (form == FORM_DISTANCES)
        return read_distances(r, x->bits_n, bits);
    for (size_t i = 0; i < WORDS && err == 0; i++) {
        uint64_t word = 0;
        err = number(r, 8, &word);
        bits->bits[i] = word;
    }
    if (err == 0 && image_count(bits) != x->bits_n)
        return wrong(r, "another number of bits than it says");
    return err;
}

static int
read_exe(struct reader *r, struct image_exe *x, struct watch_profile *bits)
{
    uint64_t v[3] = {0};
    *x = (struct image_exe){0};
    int err = 0;
    for (int i = 0; i < 3 && err == 0; i++)
        err = number(r, 8, &v[i]);
    x->key.inode = v[0];
    x->key.size = v[1];
    x->key.magic = v[2];
    if (err == 0)
        err = number32(r, &x->key.owner);
    if (err == 0)
        err = number(r, 8, &x->execs);
    if (err == 0)
        err = number32(r, &x->runs);
    if (err == 0)
        err = number32(r, &x->surprise);
    if (err == 0 && x->surprise > WATCH_WINDOW)
        return wrong(r, "more surprises than calls");
    if (err == 0)
        err = text(r, 2, x->path, sizeof x->path);
    return err == 0 ? read_bits(r, x, bits) : err;
}

// One walk over the executables. keys: those seen so far.
static int
walk(struct reader *r, const struct image_head *h, struct watch_exe_key *keys,
     struct watch_profile *bits,
     void (*fn)(void *cookie, const struct image_exe *exe, const struct watch_profile *bits),
     void *cookie)
{
    for (uint32_t i = 0; i < h->exes; i++) {
        struct image_exe x;
        int err = read_exe(r, &x, bits);
        if (err < 0)
            return err;
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(&keys[k], &x.key, sizeof x.key) == 0)
                return wrong(r, "the same executable twice");
        keys[i] = x.key;
        if (fn != NULL)
            fn(cookie, &x, bits);
    }
    return r->p == r->end ? 0 : wrong(r, "more than there should be");
}

static int
check_sum(const struct reader *r, size_t n)
{
    uint8_t sum[SUM_BYTES];
    (void)crypto_generichash(sum, sizeof sum, r->start, n - SUM_BYTES, NULL, 0);
    return memcmp(sum, r->start + n - SUM_BYTES, SUM_BYTES) == 0
               ? 0
               : wrong(r, "its sum is wrong, it was changed or cut");
}

int
image_read(const uint8_t *bytes, size_t n, struct image_head *head,
           void (*fn)(void *cookie, const struct image_exe *exe, const struct watch_profile *bits),
           void *cookie, struct err *e)
{
    struct reader r = {.p = bytes, .start = bytes, .end = bytes, .e = e};
    struct image_head h = {0};
    if (n > IMAGE_BYTES_MAX || n < SUM_BYTES)
        return wrong(&r, n < SUM_BYTES ? "it ends too early" : "it is too long");
    r.end = bytes + n - SUM_BYTES;
    int err = read_head(&r, &h);
    if (err == 0)
        err = check_sum(&r, n);
    if (err < 0)
        return err;
    struct watch_profile *bits = malloc(sizeof *bits);
    struct watch_exe_key *keys = calloc(IMAGE_EXES_MAX, sizeof *keys);
    const uint8_t *exes = r.p;
    if (bits == NULL || keys == NULL)
        err = err_sys(e, ENOMEM, "read a profile");
    else
        err = walk(&r, &h, keys, bits, NULL, NULL);
    if (err == 0 && fn != NULL) {
        r.p = exes;
        err = walk(&r, &h, keys, bits, fn, cookie);
    }
    if (err == 0)
        *head = h;
    free(bits);
    free(keys);
    return err;
}

// ---- writing

static int
put(struct image_writer *w, const void *bytes, size_t n, struct err *e)
{
    if (n > IMAGE_BYTES_MAX - w->n) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the profiles are larger than %d bytes",
                        IMAGE_BYTES_MAX);
        err_detail(e, "PROFILE_TOO_LARGE", NULL, "reset the template, and teach it less");
        return r;
    }
    if (w->n + n > w->room) {
        size_t room = w->room == 0 ? 65536 : w->room * 2;
        room = room < w->n + n ? w->n + n : room;
        uint8_t *more = realloc(w->bytes, room);
        if (more == NULL)
            return err_sys(e, ENOMEM, "write a profile");
        w->bytes = more;
        w->room = room;
    }
    memcpy(w->bytes + w->n, bytes, n);
    w->n += n;
    return 0;
}

static int
put_number(struct image_writer *w, uint64_t v, size_t n, struct err *e)
{
    uint8_t b[8];
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    return put(w, b, n, e);
}

static int
put_text(struct image_writer *w, const char *s, size_t length_bytes, struct err *e)
{
    size_t n = strlen(s);
    int r = put_number(w, n, length_bytes, e);
    return r == 0 ? put(w, s, n, e) : r;
}

int
image_begin(struct image_writer *w, const struct image_head *head, struct err *e)
{
    *w = (struct image_writer){0};
    const uint32_t numbers[] = {head->flags, head->runs, head->version, head->exes};
    int r = put(w, magic, sizeof magic, e);
    for (size_t i = 0; i < 4 && r == 0; i++)
        r = put_number(w, numbers[i], 4, e);
    if (r == 0)
        r = put_number(w, head->frozen_s, 8, e);
    return r == 0 ? put_text(w, head->template, 1, e) : r;
}

static int
put_distances(struct image_writer *w, const struct watch_profile *bits, struct err *e)
{
    uint64_t before = 0;
    int r = 0;
    for (size_t i = 0; i < WORDS && r == 0; i++) {
        for (uint64_t left = bits->bits[i]; left != 0 && r == 0; left &= left - 1) {
            uint64_t at = i * 64 + (uint64_t)__builtin_ctzll(left) + 1;
            uint64_t d = at - before;
            before = at;
            for (; d >= 0x80 && r == 0; d >>= 7)
                r = put_number(w, (d & 0x7f) | 0x80, 1, e);
            if (r == 0)
                r = put_number(w, d, 1, e);
        }
    }
    return r;
}

int
image_add(struct image_writer *w, const struct image_exe *exe, const struct watch_profile *bits,
          struct err *e)
{
    uint32_t n = image_count(bits);
    bool whole = n > sizeof *bits / 2; // distances could take two bytes each
    const uint64_t numbers[] = {exe->key.inode, exe->key.size, exe->key.magic};
    int r = 0;
    for (size_t i = 0; i < 3 && r == 0; i++)
        r = put_number(w, numbers[i], 8, e);
    if (r == 0)
        r = put_number(w, exe->key.owner, 4, e);
    if (r == 0)
        r = put_number(w, exe->execs, 8, e);
    if (r == 0)
        r = put_number(w, exe->runs, 4, e);
    if (r == 0)
        r = put_number(w, exe->surprise, 4, e);
    if (r == 0)
        r = put_text(w, exe->path, 2, e);
    if (r == 0)
        r = put_number(w, n, 4, e);
    if (r == 0)
        r = put_number(w, whole ? FORM_BITS : FORM_DISTANCES, 1, e);
    if (r == 0 && !whole)
        return put_distances(w, bits, e);
    for (size_t i = 0; i < WORDS && r == 0 && whole; i++)
        r = put_number(w, bits->bits[i], 8, e);
    return r;
}

int
image_end(struct image_writer *w, struct err *e)
{
    uint8_t sum[SUM_BYTES];
    (void)crypto_generichash(sum, sizeof sum, w->bytes, w->n, NULL, 0);
    return put(w, sum, sizeof sum, e);
}

uint32_t
image_count(const struct watch_profile *bits)
{
    uint32_t n = 0;
    for (size_t i = 0; i < WORDS; i++)
        n += (uint32_t)__builtin_popcountll(bits->bits[i]);
    return n;
}
