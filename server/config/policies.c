// SPDX-License-Identifier: Apache-2.0
// See config.h: the files of policies and of detection rules, those that the configuration names and all "*.yaml" of its folders.
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/config_read.h"
#include "proto/detect.h"
#include "proto/utf8.h"
#include "proto/yaml_files.h"
#include "server/access/policy.h"

struct packing {
    struct arena *a; // borrowed
    Stockade__V1__PolicyFile **file;
    size_t n, bytes, bytes_max;
    const char *what; // "policies" or "rules"
    struct err *e;
};

static int
add_text(struct packing *p, const char *path, const char *bytes, size_t n, bool configuration)
{
    if (p->n == POLICY_FILES_MAX)
        return err_set(p->e, ERR_INVALID_ARGUMENT, "%s: more than %d files of %s", path,
                       POLICY_FILES_MAX, p->what);
    p->bytes += n;
    if (n > POLICY_FILE_MAX || p->bytes > p->bytes_max)
        return err_set(p->e, ERR_INVALID_ARGUMENT,
                       "%s: a file of %s has at most %d bytes, and all together %zu", path, p->what,
                       POLICY_FILE_MAX, p->bytes_max);
    if (!utf8_is_text(bytes, n) || !utf8_is_text(path, strlen(path)))
        return err_set(p->e, ERR_INVALID_ARGUMENT, "%s: not UTF-8", path);
    p->file[p->n] = policy_file(p->a, path, bytes, n, configuration);
    if (p->file[p->n] == NULL)
        return err_sys(p->e, ENOMEM, "read %s", path);
    p->n++;
    return 0;
}

static int
add_file(void *packing, const char *path, struct err *e)
{
    char *auto_free bytes = NULL;
    size_t n = 0;
    int r = config_file_up_to(path, POLICY_FILE_MAX, &bytes, &n, e);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
    return r == 0 ? add_text(packing, path, bytes, n, false) : r;
}

static int
add_path(struct packing *p, const char *path)
{
    return yaml_files(path, add_file, p, p->e);
}

static int
begin(struct packing *p)
{
    p->file = arena_alloc(p->a, POLICY_FILES_MAX * sizeof(void *));
    return p->file != NULL ? 0 : err_sys(p->e, ENOMEM, "read the %s", p->what);
}

// What the package has installed.
static int
pack_shipped(struct packing *p)
{
    struct stat st;
    return stat(CONFIG_RULES_SHIPPED, &st) == 0 ? add_path(p, CONFIG_RULES_SHIPPED) : 0;
}

// The files of one list, or those of the default folder if there is no list.
static int
pack_list(struct packing *p, const struct policy_paths *paths, const char *usual)
{
    struct stat st;
    int r = 0;
    for (uint32_t i = 0; i < paths->n && r == 0; i++)
        r = add_path(p, paths->path[i]);
    if (r == 0 && !paths->said && stat(usual, &st) == 0)
        r = add_path(p, usual);
    return r;
}

int
config_policy_files(const struct config *c, struct arena *a, Stockade__V1__PolicyFiles *out,
                    struct err *e)
{
    struct packing p = {.a = a, .e = e, .bytes_max = POLICY_BYTES_MAX, .what = "policies"};
    struct packing rules = {.a = a, .e = e, .bytes_max = DETECT_FILE_BYTES_MAX, .what = "rules"};
    int r = begin(&p);
    if (r == 0)
        r = begin(&rules);
    if (r == 0)
        r = pack_list(&p, &c->policy_files, CONFIG_POLICY_DEFAULT);
    if (r == 0)
        r = pack_shipped(&rules);
    if (r == 0)
        r = pack_list(&rules, &c->rules_files, CONFIG_RULES_DEFAULT);
    if (r == 0 && c->text != NULL)
        r = add_text(&p, c->text_name, c->text, strlen(c->text), true);
    *out = (Stockade__V1__PolicyFiles)STOCKADE__V1__POLICY_FILES__INIT;
    out->files = p.file;
    out->n_files = p.n;
    out->rules = rules.file;
    out->n_rules = rules.n;
    return r;
}
