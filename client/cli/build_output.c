// SPDX-License-Identifier: Apache-2.0
// See build_output.h.
#include "build_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 64 * 1024 };

bool
build_output_init(struct build_output *o, bool live)
{
    *o = (struct build_output){.terminal = isatty(STDERR_FILENO) == 1};
    o->live = live && o->terminal;
    o->bytes = malloc(KEPT);
    return o->bytes != NULL;
}

void
build_output_free(struct build_output *o)
{
    free(o->bytes);
}

void
build_output_clear(struct build_output *o)
{
    o->n = 0;
    o->cut = false;
    o->shown = (struct text_stream){.n = 0};
}

static void
put(struct build_output *o, const void *bytes, size_t n)
{
    if (o->terminal)
        text_put(&o->shown, stderr, bytes, n);
    else
        (void)fwrite(bytes, 1, n, stderr);
}

void
build_output_add(struct build_output *o, const void *bytes, size_t n)
{
    if (o->live)
        put(o, bytes, n);
    if (n > KEPT) {
        bytes = (const char *)bytes + (n - KEPT);
        n = KEPT;
    }
    if (o->n + n > KEPT) {
        const size_t over = o->n + n - KEPT;
        memmove(o->bytes, o->bytes + over, o->n - over);
        o->n -= over;
        o->cut = true;
    }
    memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

void
build_output_show(struct build_output *o)
{
    if (o->live || o->n == 0)
        return;
    if (o->cut)
        (void)fputs("...\n", stderr);
    put(o, o->bytes, o->n);
    if (o->bytes[o->n - 1] != '\n')
        (void)fputc('\n', stderr);
}
