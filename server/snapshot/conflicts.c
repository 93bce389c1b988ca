// SPDX-License-Identifier: Apache-2.0
// See conflicts.h.
#include "conflicts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"

enum { PAGE_CHANGES = 500 };

enum { MINE, THEIRS, RESULT, LISTS_N };

// One of the three. Its page is a copy: records of two bytes of length, one that says whether it hides changes, and the path.
struct changes {
    struct conflicts *all;
    const char *sandbox;
    uint32_t from, to;
    struct compare *asked; // NULL: not waiting
    uint8_t *page;         // owned
    size_t n, at;
    uint8_t after[COMPARE_PATH_MAX]; // the last path of the page
    size_t after_n;
    bool last; // there is no further page
};

struct path {
    const uint8_t *bytes; // NULL: the end
    size_t n;
    bool hides;
};

struct conflicts {
    struct server *srv;
    char tenant[32], inside[ID_TEXT_MAX + 1], outside[ID_TEXT_MAX + 1];
    struct changes list[LISTS_N];
    struct conflict_list found;
    size_t found_bytes;
    conflicts_done *done;
    void *cookie;
};

void
conflict_list_clear(struct conflict_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        free(l->path[i].bytes);
    l->n = 0;
}

void
conflicts_drop(struct conflicts *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < LISTS_N; i++) {
        compare_drop(c->list[i].asked);
        free(c->list[i].page);
    }
    conflict_list_clear(&c->found);
    free(c);
}

static void
end(struct conflicts *c, const struct err *e)
{
    if (e != NULL)
        conflict_list_clear(&c->found);
    c->done(c->cookie, &c->found, e);
    conflicts_drop(c);
}

// ---- paths

enum { RECORD_HEAD = 3 };

static struct path
next(const struct changes *l)
{
    if (l->at >= l->n)
        return (struct path){.bytes = NULL};
    const uint8_t *r = l->page + l->at;
    return (struct path){r + RECORD_HEAD, (size_t)r[0] | (size_t)r[1] << 8, r[2] != 0};
}

static void
advance(struct changes *l)
{
    l->at += RECORD_HEAD + next(l).n;
}

// As the lists are sorted: component by component.
static int
order(const struct path *a, const struct path *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (a->bytes[i] == b->bytes[i])
            continue;
        const int x = a->bytes[i] == '/' ? 0 : a->bytes[i],
                  y = b->bytes[i] == '/' ? 0 : b->bytes[i];
        return x < y ? -1 : 1;
    }
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

// ---- pages

// A folder that cannot be looked into may hold any change.
static bool
hides(const Stockade__V1__Change *m)
{
    const int folder = STOCKADE__V1__FILE_TYPE__FILE_TYPE_FOLDER;
    return m->unreadable && ((m->before != NULL && (int)m->before->type == folder) ||
                             (m->after != NULL && (int)m->after->type == folder));
}

static int
keep_page(struct changes *l, const Stockade__V1__SnapshotServiceDiffResponse *m, struct err *e)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < m->n_changes; i++)
        n += RECORD_HEAD + m->changes[i]->path.len;
    free(l->page);
    l->page = malloc(n + 1);
    l->n = l->at = 0;
    if (l->page == NULL)
        return err_sys(e, ENOMEM, "compare files");
    for (size_t i = 0; i < m->n_changes; i++) {
        const ProtobufCBinaryData *p = &m->changes[i]->path;
        l->page[at++] = (uint8_t)p->len;
        l->page[at++] = (uint8_t)(p->len >> 8);
        l->page[at++] = hides(m->changes[i]);
        if (p->len > 0)
            memcpy(l->page + at, p->data, p->len);
        at += p->len;
    }
    l->n = n;
    l->last = m->next_page_token.len == 0;
    l->after_n = m->next_page_token.len;
    if (l->after_n > 0)
        memcpy(l->after, m->next_page_token.data, l->after_n);
    return 0;
}

// A program inside a sandbox that says "there is more" without a change would be asked forever.
static int
check_page(const struct changes *l, const Stockade__V1__SnapshotServiceDiffResponse *m,
           struct err *e)
{
    const struct path before = {l->after, l->after_n, false};
    struct path last = before;
    for (size_t i = 0; i < m->n_changes; i++) {
        const struct path p = {m->changes[i]->path.data, m->changes[i]->path.len, false};
        if (p.n == 0 || (last.n > 0 && order(&last, &p) >= 0))
            return err_set(e, ERR_INTERNAL, "stockade-files sent changes in a wrong order");
        last = p;
    }
    if (m->next_page_token.len > 0 && m->n_changes == 0)
        return err_set(e, ERR_INTERNAL, "stockade-files sent an empty page");
    return 0;
}

static void walk(struct conflicts *c);

static void
on_page(void *cookie, const struct compare_page *page, const struct err *failed)
{
    struct changes *l = cookie;
    struct err e;
    l->asked = NULL;
    if (failed != NULL)
        e = *failed;
    else if (check_page(l, page->message, &e) == 0 && keep_page(l, page->message, &e) == 0) {
        walk(l->all);
        return;
    }
    end(l->all, &e);
}

// 1: there is a next change, or the end; 0: it comes later.
static int
fetch(struct changes *l, struct err *e)
{
    if (l->at < l->n || l->last)
        return 1;
    const struct compare_want want = {.from = l->from,
                                      .to = l->to,
                                      .after = l->after,
                                      .after_n = l->after_n,
                                      .changes_max = PAGE_CHANGES};
    struct sandbox *s = sandbox_find(l->all->srv->sandboxes, l->all->tenant, l->sandbox, e);
    if (s == NULL)
        return err_errno(e);
    return compare_begin(s, &want, on_page, l, &l->asked, e);
}

// ---- the walk

static int
add(struct conflicts *c, const struct path *p, struct err *e)
{
    uint8_t *copy = malloc(p->n + 1);
    if (copy == NULL)
        return err_sys(e, ENOMEM, "compare files");
    memcpy(copy, p->bytes, p->n);
    c->found.path[c->found.n++] = (struct conflict_path){copy, p->n};
    c->found_bytes += p->n;
    return 0;
}

// Takes the smallest path of the three lists. 1: all have ended, or enough was found.
static int
step(struct conflicts *c, struct err *e)
{
    struct path at[LISTS_N], least = {.bytes = NULL};
    bool in[LISTS_N], hidden = false;
    for (int i = 0; i < LISTS_N; i++) {
        at[i] = next(&c->list[i]);
        if (at[i].bytes != NULL && (least.bytes == NULL || order(&at[i], &least) < 0))
            least = at[i];
    }
    if (least.bytes == NULL)
        return 1;
    for (int i = 0; i < LISTS_N; i++) {
        in[i] = at[i].bytes != NULL && order(&at[i], &least) == 0;
        hidden |= in[i] && at[i].hides;
    }
    const bool conflict = (in[MINE] && in[THEIRS]) || (in[RESULT] && !in[MINE]) || hidden;
    int r = conflict ? add(c, &least, e) : 0;
    for (int i = 0; i < LISTS_N; i++)
        if (in[i])
            advance(&c->list[i]);
    const bool enough = c->found.n == CONFLICTS_MAX || c->found_bytes > CONFLICTS_BYTES_MAX;
    return r < 0 ? r : enough;
}

static void
walk(struct conflicts *c)
{
    struct err e;
    int r = 0;
    while (r == 0) {
        for (int i = 0; i < LISTS_N; i++) {
            r = fetch(&c->list[i], &e);
            if (r == 0)
                return;
            if (r < 0)
                break;
        }
        r = r < 0 ? r : step(c, &e);
    }
    end(c, r < 0 ? &e : NULL);
}

int
conflicts_begin(struct server *srv, const struct conflicts_want *want, conflicts_done *done,
                void *cookie, struct conflicts **out, struct err *e)
{
    struct conflicts *c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_sys(e, ENOMEM, "compare files");
    c->srv = srv;
    c->done = done;
    c->cookie = cookie;
    (void)snprintf(c->tenant, sizeof c->tenant, "%s", want->tenant);
    (void)snprintf(c->inside, sizeof c->inside, "%s", want->inside);
    (void)snprintf(c->outside, sizeof c->outside, "%s", want->outside);
    const uint32_t layers[LISTS_N][2] = {{want->begin_inside, want->end_inside},
                                         {want->begin_outside, want->end_outside},
                                         {want->end_outside, want->result}};
    for (int i = 0; i < LISTS_N; i++) {
        c->list[i].all = c;
        c->list[i].sandbox = i == MINE ? c->inside : c->outside;
        c->list[i].from = layers[i][0];
        c->list[i].to = layers[i][1];
    }
    int r = fetch(&c->list[MINE], e); // the first page of the first list always comes later
    if (r < 0) {
        conflicts_drop(c);
        return r;
    }
    *out = c;
    return 0;
}
