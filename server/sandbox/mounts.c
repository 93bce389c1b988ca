// SPDX-License-Identifier: Apache-2.0
// See mounts.h.
#include "mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template.h"

struct mounts *
mounts_new(void)
{
    struct mounts *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->refs = 1;
    return m;
}

struct mounts *
mounts_ref(struct mounts *m)
{
    if (m != NULL)
        m->refs++;
    return m;
}

void
mounts_unref(struct mounts *m)
{
    if (m != NULL && --m->refs == 0)
        free(m);
}

struct mounts *
mounts_read_only(const struct mounts *m)
{
    struct mounts *copy = mounts_new();
    if (copy == NULL)
        return NULL;
    copy->n = m->n;
    for (uint32_t i = 0; i < m->n; i++) {
        copy->mount[i] = m->mount[i];
        copy->mount[i].read_only = true;
    }
    return copy;
}

// FNV-1a, from two bases. The paths are root's own, and the spawner refuses two folders with one id.
void
mounts_host_id(const char *path, uint8_t id[16])
{
    for (size_t half = 0; half < 2; half++) {
        uint64_t sum = UINT64_C(0xcbf29ce484222325) + half;
        for (const char *c = path; *c != '\0'; c++)
            sum = (sum ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
        memcpy(id + 8 * half, &sum, sizeof sum);
    }
}

static int
refuse(struct err *e, const struct template *t, const struct mount *wanted, const char *allowed)
{
    int r = err_set(e, ERR_PERMISSION_DENIED, "template %s does not allow to mount %.150s%s",
                    t->name, wanted->name, wanted->read_only ? "" : ", or not for writing");
    err_detail(e, "HOST_MOUNT", wanted->name,
               "the administrator adds it to templates[].mounts of the broker's configuration");
    err_rule(e, "mounts", allowed);
    return r;
}

// What the template has, in words.
static void
list(const struct template *t, char *out, size_t n)
{
    size_t used = 0;
    (void)snprintf(out, n, "no folder of the host");
    for (uint32_t i = 0; i < t->hosts_n && used < n; i++)
        used += (size_t)snprintf(out + used, n - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 t->host[i].path, t->host[i].writable ? "writable" : "read-only");
}

int
mounts_add_host(struct mounts *m, const struct template *t, const struct mount *wanted,
                struct err *e)
{
    char allowed[160];
    const struct template_host *found = NULL;
    for (uint32_t i = 0; i < t->hosts_n; i++)
        if (strcmp(t->host[i].path, wanted->name) == 0)
            found = &t->host[i];
    if (found == NULL || (!found->writable && !wanted->read_only)) {
        list(t, allowed, sizeof allowed);
        return refuse(e, t, wanted, allowed);
    }
    m->mount[m->n] = *wanted;
    m->mount[m->n].host = true;
    mounts_host_id(found->path, m->mount[m->n].volume);
    m->n++;
    return 0;
}
