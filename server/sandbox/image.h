// SPDX-License-Identifier: Apache-2.0
// Files that a new sandbox begins with, besides those of its template in the configuration: a template that was made from work. A
// layer above owns them (snapshot/made.h); a request for a sandbox refers to one. Like struct network, it is counted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

struct sandbox;
struct sandbox_swap;
struct template_env;

struct image {
    uint32_t refs;
    char name[65];
    char workdir[1024];       // of jobs; "": the template's
    struct template_env *env; // owned, after the template's
    uint32_t env_n;
    // Starts to give the files to a sandbox that was taken and has no job yet, as sandbox_inherit() does: the swap's waiter is
    // called, unless sandbox_unwait() comes before. NOT_FOUND: it was deleted.
    int (*begin)(struct image *i, struct sandbox *s, struct sandbox_swap *w, struct err *e);
    // On success, in the callback.
    int (*end)(struct image *i, struct sandbox *s, const struct sandbox_swap *w, struct err *e);
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
