// SPDX-License-Identifier: Apache-2.0
// See policies.h: files and folders of policies, read as the broker reads them.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policies.h"
#include "proto/auto.h"
#include "proto/utf8.h"
#include "proto/yaml_files.h"
#include "proto/yaml_tree.h"

struct packing {
    struct arena *a;
    Stockade__V1__PolicyFiles *to;
};

static ssize_t
read_all(int fd, char *to, size_t room)
{
    size_t n = 0;
    while (n < room) {
        const ssize_t got = read(fd, to + n, room - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

// A configuration has templates, and a file of policies has none.
static bool
is_configuration(const char *name, const char *text, size_t n)
{
    struct yaml *y = NULL;
    struct yaml_node *root = NULL;
    struct err unused;
    bool found = false;
    if (yaml_tree_read(name, text, n, false, &y, &root, &unused) < 0)
        return false;
    for (const struct yaml_node *k = root != NULL && root->kind == YAML_MAP ? root->child : NULL;
         k != NULL; k = k->next)
        found = found || strcmp(k->key, "templates") == 0;
    yaml_tree_free(y);
    return found;
}

static int
add_file(void *packing, const char *path, struct err *e)
{
    struct packing *p = packing;
    char *auto_free text = calloc(1, POLICY_FILE_MAX + 2);
    const bool from_stdin = strcmp(path, "-") == 0;
    int auto_close fd =
        from_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
    if (text == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    const ssize_t n = fd >= 0 ? read_all(fd, text, POLICY_FILE_MAX + 1) : -errno;
    if (n < 0)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return err_sys(e, (int)-n, "read %s", path);
    if (n > POLICY_FILE_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", path, POLICY_FILE_MAX);
    if (!utf8_is_text(text, (size_t)n))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not UTF-8", path);
    if (p->to->n_files == POLICY_FILES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: more than %d files of policies", path,
                       POLICY_FILES_MAX);
    const bool configuration = is_configuration(path, text, (size_t)n);
    Stockade__V1__PolicyFile *to = policy_file(p->a, path, text, (size_t)n, configuration);
    if (to == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    p->to->files[p->to->n_files++] = to;
    return 0;
}

int
policies_files(const char *const *paths, int n, struct arena *a, Stockade__V1__PolicyFiles *out,
               struct err *e)
{
    struct packing p = {a, out};
    int r = 0;
    *out = (Stockade__V1__PolicyFiles)STOCKADE__V1__POLICY_FILES__INIT;
    out->files = arena_alloc(a, POLICY_FILES_MAX * sizeof(void *));
    if (out->files == NULL)
        return err_sys(e, ENOMEM, "read policies");
    for (int i = 0; i < n && r == 0; i++) {
        const bool from_stdin = strcmp(paths[i], "-") == 0;
        r = from_stdin ? add_file(&p, paths[i], e) : yaml_files(paths[i], add_file, &p, e);
    }
    return r;
}

int
policies_read(const char *const *paths, int n, bool tested, struct policy **out, struct err *e)
{
    struct arena *auto_arena a = arena_new(POLICIES_ARENA);
    Stockade__V1__PolicyFiles files;
    int r =
        a != NULL ? policies_files(paths, n, a, &files, e) : err_sys(e, ENOMEM, "read policies");
    if (r < 0)
        return r;
    return tested ? policy_read(&files, out, e) : policy_read_untested(&files, out, e);
}
