// SPDX-License-Identifier: Apache-2.0
// See names.h.
#include "names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct growing {
    char *text;
    size_t used, size, n;
};

static int
add(struct growing *g, const char *name, struct err *e)
{
    size_t n = strlen(name) + 1;
    if (g->n == NAMES_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "a folder has more than %d files", NAMES_MAX);
    if (g->used + n > g->size) {
        size_t size = g->size * 2 + 4096;
        char *bigger = realloc(g->text, size);
        if (bigger == NULL)
            return err_sys(e, ENOMEM, "list a folder");
        g->text = bigger;
        g->size = size;
    }
    memcpy(g->text + g->used, name, n);
    g->used += n;
    g->n++;
    return 0;
}

static int
sort(struct names *out, struct err *e)
{
    out->name = calloc(out->n + 1, sizeof *out->name);
    if (out->name == NULL)
        return err_sys(e, ENOMEM, "list a folder");
    char *at = out->text;
    for (size_t i = 0; i < out->n; i++, at += strlen(at) + 1)
        out->name[i] = at;
    if (out->n > 0)
        qsort(out->name, out->n, sizeof *out->name, compare);
    return 0;
}

int
names_read(int folder, struct names *out, struct err *e)
{
    struct growing g = {0};
    int own = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    if (d == NULL) {
        int r = err_sys(e, errno, "list a folder");
        if (own >= 0)
            (void)close(own);
        return r;
    }
    rewinddir(d); // the offset is shared with the caller's descriptor
    int r = 0;
    for (struct dirent *it = NULL; r == 0 && (it = readdir(d)) != NULL;)
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
            r = add(&g, it->d_name, e);
    (void)closedir(d);
    *out = (struct names){.text = g.text, .n = g.n};
    if (r == 0)
        r = sort(out, e);
    if (r < 0)
        names_free(out);
    return r;
}

void
names_free(struct names *all)
{
    free(all->text);
    free(all->name);
    *all = (struct names){0};
}
