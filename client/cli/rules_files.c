// SPDX-License-Identifier: Apache-2.0
// See rules.h: files and folders of rules.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/config_read.h"
#include "proto/validate.h"
#include "cli.h"
#include "rules.h"

enum { NAME_MAX_BYTES = 4096 };

struct files {
    struct detect_file file[DETECT_FILES_MAX];
    size_t n;
};

static int
add_file(struct files *f, const char *path, struct err *e)
{
    char *bytes = NULL;
    size_t n = 0;
    if (f->n == DETECT_FILES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "more than %d files of rules", DETECT_FILES_MAX);
    char *name = strdup(path);
    const int r = name != NULL ? config_file_up_to(path, DETECT_FILE_BYTES_MAX, &bytes, &n, e)
                               : err_sys(e, ENOMEM, "read %s", path);
    if (r < 0) {
        free(name);
        return r;
    }
    f->file[f->n++] = (struct detect_file){name, bytes, n};
    return 0;
}

static int
is_yaml(const struct dirent *d)
{
    static const char ending[] = ".yaml";
    const size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > sizeof ending - 1 &&
           strcmp(d->d_name + n - (sizeof ending - 1), ending) == 0;
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int
add_folder(struct files *f, const char *path, struct err *e)
{
    struct dirent **all = NULL;
    const int n = scandir(path, &all, is_yaml, by_name);
    int r = n < 0 ? err_sys(e, errno, "read %s", path) : 0;
    for (int i = 0; i < n; i++) {
        char file[NAME_MAX_BYTES + 256];
        (void)snprintf(file, sizeof file, "%s/%s", path, all[i]->d_name);
        if (r == 0)
            r = add_file(f, file, e);
        free(all[i]);
    }
    free((void *)all);
    return r;
}

static int
add_path(struct files *f, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "read %s", path);
    return S_ISDIR(st.st_mode) ? add_folder(f, path, e) : add_file(f, path, e);
}

struct detect *
rules_read(const struct ruling *r, int *code)
{
    static const uint8_t seed[16] = {0};
    struct files f = {.n = 0};
    struct detect *d = NULL;
    struct err e = {.code = ERR_OK};
    int rc = validate_init(&e);
    for (int i = 0; i < r->paths_n && rc == 0; i++)
        rc = add_path(&f, r->paths[i], &e);
    if (rc == 0)
        rc = detect_read(f.file, f.n, &detect_bounds_host, seed, &d, &e);
    for (size_t i = 0; i < f.n; i++) {
        free((void *)(uintptr_t)f.file[i].name);
        free((void *)(uintptr_t)f.file[i].text);
    }
    if (rc < 0) {
        struct stockade_error why = {.code = e.code};
        (void)snprintf(why.text, sizeof why.text, "%s", e.text);
        *code = cli_fail(r->c, "", &why);
        return NULL;
    }
    return d;
}
