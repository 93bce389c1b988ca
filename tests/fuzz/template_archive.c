// SPDX-License-Identifier: Apache-2.0
// Archives of templates: the files of a tar archive, in pieces of any size, come out whole and in order however it was cut; and
// the first of them is a message that is refused or within its bounds.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tar.h"
#include "proto/validate.h"
#include "server/api/template_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

struct seen {
    uint64_t left, files, bytes;
    uint32_t sum;
};

static int
on_begin(void *cookie, const char *name, uint64_t size, struct err *e)
{
    struct seen *s = cookie;
    (void)e;
    assert(s->left == 0 && strlen(name) < TAR_NAME_MAX);
    s->left = size;
    s->files++;
    return 0;
}

static int
on_data(void *cookie, const uint8_t *bytes, size_t n, struct err *e)
{
    struct seen *s = cookie;
    (void)e;
    assert(n > 0 && n <= s->left);
    s->left -= n;
    s->bytes += n;
    for (size_t i = 0; i < n; i++)
        s->sum = s->sum * 31 + bytes[i];
    return 0;
}

static int
on_end(void *cookie, struct err *e)
{
    const struct seen *s = cookie;
    (void)e;
    assert(s->left == 0);
    return 0;
}

static int
feed(const uint8_t *bytes, size_t n, size_t piece, struct seen *seen)
{
    static const struct tar_feed_events events = {on_begin, on_data, on_end};
    struct tar_feed f = {.files = 0};
    struct err e;
    int rc = 0;
    *seen = (struct seen){0};
    for (size_t at = 0; rc == 0 && at < n; at += piece)
        rc = tar_feed(&f, bytes + at, n - at < piece ? n - at : piece, &events, seen, &e);
    return rc == 0 ? tar_feed_end(&f, &e) : rc;
}

static void
read_about(const uint8_t *bytes, size_t n)
{
    struct arena *auto_arena a = arena_new(4 << 20);
    Stockade__V1__TemplateArchive *m = NULL;
    struct err e;
    size_t packed = 0;
    assert(a != NULL);
    if (template_archive_read(bytes, n, a, &m, &e) < 0) {
        assert(e.code == ERR_INVALID_ARGUMENT || e.code == ERR_FAILED_PRECONDITION);
        return;
    }
    assert(m->n_layers > 0 && m->n_layers <= STORE_LAYERS_MAX && m->template_ != NULL);
    uint8_t *about = template_archive_about(m, "uid:1", &packed, &e);
    assert(about != NULL ? packed <= STORE_ABOUT_MAX : e.code == ERR_RESOURCE_EXHAUSTED);
    free(about);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static bool ready;
    struct seen whole, cut;
    struct err e;
    if (!ready)
        assert(validate_init(&e) == 0);
    ready = true;
    const int rc = feed(bytes, n, n + 1, &whole);
    assert(feed(bytes, n, 7, &cut) == rc);
    assert(rc < 0 ||
           (whole.files == cut.files && whole.bytes == cut.bytes && whole.sum == cut.sum));
    read_about(bytes, n);
    return 0;
}
