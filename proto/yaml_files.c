// SPDX-License-Identifier: Apache-2.0
// See yaml_files.h.
#include "yaml_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    return strcmp((*a)->d_name, (*b)->d_name); // whatever the locale
}

static int
files_of_folder(const char *path, yaml_file_fn *take, void *owner, struct err *e)
{
    struct dirent **all = NULL;
    const int n = scandir(path, &all, is_yaml, by_name);
    int r = n < 0 ? err_sys(e, errno, "read %s", path) : 0;
    for (int i = 0; i < n; i++) {
        char file[PATH_MAX + NAME_MAX + 2]; // the path was found, so it is shorter than PATH_MAX
        (void)snprintf(file, sizeof file, "%s/%s", path, all[i]->d_name);
        if (r == 0)
            r = take(owner, file, e);
        free(all[i]);
    }
    free((void *)all);
    return r;
}

int
yaml_files(const char *path, yaml_file_fn *take, void *owner, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "read %s", path);
    return S_ISDIR(st.st_mode) ? files_of_folder(path, take, owner, e) : take(owner, path, e);
}
