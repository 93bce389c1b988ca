// SPDX-License-Identifier: Apache-2.0
// See page.h.
#include "page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

enum {
    PAGE_USUAL = 100,
    PAGE_BYTES = 2 * 1024 * 1024, // maximum size of a page, because a frame has at most 4 MiB
};

static int
read_token(const char *token, uint64_t *order, struct err *e)
{
    if (token[0] == '\0')
        return 0;
    if (strlen(token) != PAGE_TOKEN_BYTES - 1 ||
        strspn(token, "0123456789abcdef") != PAGE_TOKEN_BYTES - 1)
        return err_field(e, "page_token", "not a token of a previous page");
    *order = strtoull(token, NULL, 16);
    return 0;
}

int
page_begin(struct page *p, uint32_t size, const char *token, struct err *e)
{
    struct page new = {.most = size != 0 ? size : PAGE_USUAL};
    int r = read_token(token, &new.last, e);
    if (r < 0)
        return r;
    new.arena = arena_new(CONVERT_ARENA_MAX);
    new.elements = new.arena != NULL ? arena_alloc(new.arena, new.most * sizeof(void *)) : NULL;
    new.no_memory = new.elements == NULL;
    *p = new;
    return 0;
}

bool
page_open(struct page *p, struct call *c, uint32_t size, const char *token)
{
    struct err e;
    if (page_begin(p, size, token, &e) == 0)
        return true;
    call_fail(c, &e);
    return false;
}

bool
page_has_room(struct page *p)
{
    if (p->no_memory)
        return false;
    p->full = p->n == p->most || arena_used(p->arena) > PAGE_BYTES;
    if (p->full)
        (void)snprintf(p->token, sizeof p->token, "%016" PRIx64, p->last);
    return !p->full;
}

bool
page_add(struct page *p, uint64_t order, void *element)
{
    p->no_memory = p->no_memory || element == NULL;
    if (p->no_memory)
        return false;
    ((void **)p->elements)[p->n++] = element;
    p->last = order;
    return true;
}

void
page_reply(const struct page *p, struct call *c, const ProtobufCMessage *response)
{
    if (p->no_memory)
        convert_no_memory(c);
    else
        call_reply(c, response);
}

void
page_free(struct page *p)
{
    arena_free(p->arena);
    *p = (struct page){0};
}
