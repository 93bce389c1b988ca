// SPDX-License-Identifier: Apache-2.0
// See config.h: the files of policies, those that the configuration names and all "*.yaml" of its folders.
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/config_read.h"
#include "proto/utf8.h"
#include "server/access/policy.h"

struct packing {
    struct arena *a; // borrowed
    Stockade__V1__PolicyFile **file;
    size_t n, bytes;
    struct err *e;
};

static bool
is_utf8(const char *text, size_t n)
{
    for (size_t i = 0, one = 0; i < n; i += one) {
        one = utf8_decode(text + i, n - i, NULL);
        if (one == 0 || text[i] == '\0')
            return false;
    }
    return true;
}

static int
add_file(struct packing *p, const char *path)
{
    char *auto_free bytes = NULL;
    size_t n = 0;
    int r = config_file_up_to(path, POLICY_FILE_MAX, &bytes, &n, p->e);
    if (r < 0)
        return r;
    if (p->n == POLICY_FILES_MAX)
        return err_set(p->e, ERR_INVALID_ARGUMENT, "%s: more than %d files of policies", path,
                       POLICY_FILES_MAX);
    p->bytes += n;
    if (n > POLICY_FILE_MAX || p->bytes > POLICY_BYTES_MAX)
        return err_set(p->e, ERR_INVALID_ARGUMENT,
                       "%s: a file of policies has at most %d bytes, and all together %d", path,
                       POLICY_FILE_MAX, POLICY_BYTES_MAX);
    if (!is_utf8(bytes, n) || !is_utf8(path, strlen(path)))
        return err_set(p->e, ERR_INVALID_ARGUMENT, "%s: not UTF-8", path);
    Stockade__V1__PolicyFile *to = arena_alloc(p->a, sizeof *to);
    if (to == NULL)
        return err_sys(p->e, ENOMEM, "read %s", path);
    stockade__v1__policy_file__init(to);
    to->name = arena_copy(p->a, path, strlen(path));
    to->text = arena_copy(p->a, bytes, n);
    if (to->name == NULL || to->text == NULL)
        return err_sys(p->e, ENOMEM, "read %s", path);
    p->file[p->n++] = to;
    return 0;
}

static int
is_policy(const struct dirent *d)
{
    static const char ending[] = ".yaml";
    const size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > sizeof ending - 1 &&
           strcmp(d->d_name + n - (sizeof ending - 1), ending) == 0;
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); // whatever the locale
}

static int
add_folder(struct packing *p, const char *path)
{
    struct dirent **all = NULL;
    const int n = scandir(path, &all, is_policy, by_name);
    int r = n < 0 ? err_sys(p->e, errno, "read %s", path) : 0;
    for (int i = 0; i < n; i++) {
        char file[SPAWN_PATH_MAX + 256];
        (void)snprintf(file, sizeof file, "%s/%s", path, all[i]->d_name);
        if (r == 0)
            r = add_file(p, file);
        free(all[i]);
    }
    free(all);
    return r;
}

static int
add_path(struct packing *p, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(p->e, errno, "read %s", path);
    return S_ISDIR(st.st_mode) ? add_folder(p, path) : add_file(p, path);
}

int
config_policy_files(const struct config *c, struct arena *a, Stockade__V1__PolicyFiles *out,
                    struct err *e)
{
    struct packing p = {.a = a, .e = e};
    struct stat st;
    int r = 0;
    p.file = arena_alloc(a, POLICY_FILES_MAX * sizeof(void *));
    if (p.file == NULL)
        return err_sys(e, ENOMEM, "read the policies");
    for (uint32_t i = 0; i < c->policy_files.n && r == 0; i++)
        r = add_path(&p, c->policy_files.path[i]);
    if (r == 0 && !c->policy_files.said && stat(CONFIG_POLICY_DEFAULT, &st) == 0)
        r = add_path(&p, CONFIG_POLICY_DEFAULT);
    *out = (Stockade__V1__PolicyFiles)STOCKADE__V1__POLICY_FILES__INIT;
    out->files = p.file;
    out->n_files = p.n;
    return r;
}
