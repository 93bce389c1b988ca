// SPDX-License-Identifier: Apache-2.0
// See pages.h.
#include "pages.h"

#include <stdio.h>

enum { PAGES_MAX = 1000, TOKEN_BYTES = 33 };

// The request, and the receiver of each page's elements.
struct walk {
    struct stockade *s;
    const struct stockade_pair *labels;
    size_t labels_n;
    const char *sandbox;
    pages_sandbox *each_sandbox;
    pages_process *each_process;
    void *cookie;
    char token[TOKEN_BYTES]; // of the next page; "": none
    bool more;               // the receiver wants more elements
};

static int
page_of_sandboxes(struct walk *w, struct stockade_error *e)
{
    const struct stockade_sandboxes *page = NULL;
    int rc = stockade_list(w->s, w->labels, w->labels_n, w->token, &page, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < page->n && w->more; i++)
        w->more = w->each_sandbox(w->cookie, &page->items[i]);
    (void)snprintf(w->token, sizeof w->token, "%s", page->next_page);
    stockade_free(page);
    return 0;
}

static int
page_of_processes(struct walk *w, struct stockade_error *e)
{
    const struct stockade_processes *page = NULL;
    int rc = stockade_processes(w->s, w->sandbox, w->token, &page, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < page->n && w->more; i++)
        w->more = w->each_process(w->cookie, &page->items[i]);
    (void)snprintf(w->token, sizeof w->token, "%s", page->next_page);
    stockade_free(page);
    return 0;
}

static int
walk(struct walk *w, int (*page)(struct walk *w, struct stockade_error *e),
     struct stockade_error *e)
{
    int rc = 0;
    w->more = true;
    for (unsigned i = 0; i < PAGES_MAX && rc == 0; i++) {
        rc = page(w, e);
        if (!w->more || w->token[0] == '\0')
            break;
    }
    return rc;
}

int
pages_sandboxes(struct stockade *s, const struct stockade_pair *labels, size_t labels_n,
                pages_sandbox *each, void *cookie, struct stockade_error *e)
{
    struct walk w = {
        .s = s, .labels = labels, .labels_n = labels_n, .each_sandbox = each, .cookie = cookie};
    return walk(&w, page_of_sandboxes, e);
}

int
pages_processes(struct stockade *s, const char *sandbox, pages_process *each, void *cookie,
                struct stockade_error *e)
{
    struct walk w = {.s = s, .sandbox = sandbox, .each_process = each, .cookie = cookie};
    return walk(&w, page_of_processes, e);
}
