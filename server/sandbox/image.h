// SPDX-License-Identifier: Apache-2.0
// Files that a new sandbox begins with, besides those of its template in the configuration: a template that was made from work. A
// layer above owns them (snapshot/made.h); a request for a sandbox refers to one. Like struct network, it is counted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

struct sandbox;
struct template_env;

// s NULL: it was deleted meanwhile, and failed says so.
typedef void image_done(void *cookie, struct sandbox *s, const struct err *failed);

struct image {
    uint32_t refs;
    char name[65];
    char workdir[1024];       // of jobs; "": the template's
    struct template_env *env; // owned, after the template's
    uint32_t env_n;
    // Starts to give the files to a sandbox that was taken and has no job yet. done is called later, unless unwait() comes before, which
    // gets *op. NOT_FOUND: the template was deleted. ABORTED: it was replaced by one of another template of the host.
    int (*begin)(struct image *i, struct sandbox *s, image_done *done, void *cookie, void **op,
                 struct err *e);
    void (*unwait)(void *op);
    // What has its place now: itself, or what replaced it. Borrowed. NULL: it was deleted. May be NULL: nothing replaces it.
    struct image *(*current)(struct image *i);
    void (*free)(struct image *i);
};

static inline struct image *
image_ref(struct image *i)
{
    if (i != NULL)
        i->refs++;
    return i;
}

// Accepts NULL.
static inline void
image_unref(struct image *i)
{
    if (i != NULL && --i->refs == 0)
        i->free(i);
}
