// SPDX-License-Identifier: Apache-2.0
// What comes from a sandbox or a caller as a compressed archive: hostile, read in pieces of any size. The bounds of what comes out
// hold, and what was compressed comes back.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/zst.h"

enum { RATIO = 20, PIECE = 4096 };

struct input {
    const uint8_t *bytes;
    size_t n, step;
};

static ssize_t
read_input(void *cookie, void *bytes, size_t n, struct err *e)
{
    struct input *in = cookie;
    (void)e;
    size_t part = in->n < n ? in->n : n;
    part = part < in->step ? part : in->step;
    memcpy(bytes, in->bytes, part);
    in->bytes += part;
    in->n -= part;
    return (ssize_t)part;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static uint8_t piece[PIECE];
    struct err e;
    if (n == 0)
        return 0;
    struct input in = {bytes + 1, n - 1, (size_t)bytes[0] + 1};
    const struct tar_source source = {read_input, &in};
    struct zst_reader *r = zst_reader_new(&source, RATIO, &e);
    assert(r != NULL);
    uint64_t total = 0;
    ssize_t got = 0;
    while ((got = zst_read(r, piece, sizeof piece, &e)) > 0)
        total += (uint64_t)got;
    assert(total <= ZST_RATIO_FREE + (uint64_t)(n + 1) * RATIO + PIECE);
    assert(got == 0 || e.text[0] != '\0');
    zst_reader_free(r);
    return 0;
}
