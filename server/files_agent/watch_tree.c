// SPDX-License-Identifier: Apache-2.0
// See watch_tree.h.
#include "watch_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define EVENTS                                                                                     \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |                 \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

static struct watched **
bucket_of_wd(struct watch_tree *t, int wd)
{
    return &t->by_wd[(unsigned)wd % WATCH_BUCKETS];
}

static uint32_t
hash(const struct watched *parent, const char *name)
{
    uint32_t h = 2166136261u ^ (uint32_t)parent->wd; // FNV-1a
    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return h % WATCH_BUCKETS;
}

static void
free_all(struct watch_tree *t)
{
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        struct watched *w = t->by_wd[i];
        while (w != NULL) {
            struct watched *next = w->same_wd;
            free(w);
            w = next;
        }
        t->by_wd[i] = t->by_name[i] = NULL;
    }
    t->root = NULL;
    t->n = 0;
}

int
watch_tree_begin(struct watch_tree *t)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return -errno;
    watch_tree_end(t);
    t->inotify = fd;
    return 0;
}

void
watch_tree_end(struct watch_tree *t)
{
    if (t->inotify >= 0)
        (void)close(t->inotify); // the kernel ends its watches
    t->inotify = -1;
    free_all(t);
}

// ---- locations

static void
link_in(struct watch_tree *t, struct watched *w, struct watched *parent)
{
    w->parent = parent;
    if (parent == NULL) {
        t->root = w;
        return;
    }
    struct watched **bucket = &t->by_name[hash(parent, w->name)];
    w->next = parent->children;
    parent->children = w;
    w->same_name = *bucket;
    *bucket = w;
}

static void
link_out(struct watch_tree *t, struct watched *w)
{
    if (w->parent == NULL) {
        t->root = NULL;
        return;
    }
    struct watched **at = &w->parent->children;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    at = &t->by_name[hash(w->parent, w->name)];
    while (*at != w)
        at = &(*at)->same_name;
    *at = w->same_name;
}

static void
forget_wd(struct watch_tree *t, const struct watched *w)
{
    struct watched **at = bucket_of_wd(t, w->wd);
    while (*at != w)
        at = &(*at)->same_wd;
    *at = w->same_wd;
}

static struct watched *
make(const struct watched *like, const char *name)
{
    size_t n = strlen(name) + 1;
    struct watched *w = malloc(sizeof *w + n);
    if (w == NULL)
        return NULL;
    *w = *like;
    memcpy(w->name, name, n);
    return w;
}

// ---- the tree

struct watched *
watch_tree_by_wd(const struct watch_tree *t, int wd)
{
    struct watched *w = t->by_wd[(unsigned)wd % WATCH_BUCKETS];
    while (w != NULL && w->wd != wd)
        w = w->same_wd;
    return w;
}

struct watched *
watch_tree_child(const struct watch_tree *t, const struct watched *parent, const char *name)
{
    struct watched *w = t->by_name[hash(parent, name)];
    while (w != NULL && (w->parent != parent || strcmp(w->name, name) != 0))
        w = w->same_name;
    return w;
}

int
watch_tree_add(struct watch_tree *t, struct watched *parent, const char *name, struct watched **out)
{
    int wd = inotify_add_watch(t->inotify, ".", EVENTS);
    if (wd < 0)
        return -errno;
    struct watched *known = watch_tree_by_wd(t, wd);
    *out = known;
    if (known != NULL)
        return parent != NULL && known != t->root ? watch_tree_move(t, known, parent, name) : 0;
    struct watched like = {.wd = wd};
    struct watched *w = t->n < WATCHES_MAX ? make(&like, name != NULL ? name : "") : NULL;
    if (w == NULL) {
        (void)inotify_rm_watch(t->inotify, wd);
        return t->n < WATCHES_MAX ? -ENOMEM : -ENOSPC;
    }
    link_in(t, w, parent);
    w->same_wd = *bucket_of_wd(t, wd);
    *bucket_of_wd(t, wd) = w;
    t->n++;
    *out = w;
    return 1;
}

void
watch_tree_drop(struct watch_tree *t, struct watched *w)
{
    struct watched *at = w;
    for (bool last = false; !last;) { // the deepest first: no recursion
        while (at->children != NULL)
            at = at->children;
        last = at == w;
        struct watched *parent = at->parent;
        link_out(t, at);
        forget_wd(t, at);
        (void)inotify_rm_watch(t->inotify, at->wd); // fails if the folder is gone
        free(at);
        t->n--;
        at = parent;
    }
}

static bool
is_below(const struct watched *w, const struct watched *top)
{
    while (w != NULL && w != top)
        w = w->parent;
    return w != NULL;
}

int
watch_tree_move(struct watch_tree *t, struct watched *w, struct watched *parent, const char *name)
{
    struct watched *other = watch_tree_child(t, parent, name);
    if (other == w)
        return 0;
    if (other != NULL && !is_below(parent, other) && !is_below(w, other)) // replaced
        watch_tree_drop(t, other);
    struct watched *moved = is_below(parent, w) ? NULL : make(w, name);
    if (moved == NULL) {
        watch_tree_drop(t, w);
        return -ENOMEM;
    }
    link_out(t, w);
    forget_wd(t, w);
    moved->same_wd = *bucket_of_wd(t, moved->wd);
    *bucket_of_wd(t, moved->wd) = moved;
    link_in(t, moved, parent);
    for (struct watched *child = moved->children; child != NULL; child = child->next)
        child->parent = moved; // the hash of their names has the number of the watch: unchanged
    free(w);
    return 0;
}

bool
watch_tree_path(const struct watched *w, const char *name, char *out, size_t size)
{
    size_t at = size - 1; // from the end
    const char *part = name;
    out[at] = '\0';
    for (; w != NULL; part = w->name, w = w->parent) {
        size_t n = strlen(part);
        size_t slash = out[at] != '\0' && n > 0;
        if (n + slash > at)
            return false;
        if (slash != 0)
            out[--at] = '/';
        at -= n;
        memcpy(out + at, part, n);
    }
    memmove(out, out + at, size - at);
    return true;
}
