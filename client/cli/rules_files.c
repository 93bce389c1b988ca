// SPDX-License-Identifier: Apache-2.0
// See rules.h: files and folders of rules.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/config_read.h"
#include "proto/validate.h"
#include "proto/yaml_files.h"
#include "cli.h"
#include "rules.h"

struct files {
    struct detect_file file[DETECT_FILES_MAX + 1]; // first the tripwires of the broker
    size_t n;
};

static int
add_file(void *files, const char *path, struct err *e)
{
    struct files *f = files;
    char *bytes = NULL;
    size_t n = 0;
    if (f->n == DETECT_FILES_MAX + 1)
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

// A tripwire that only these files have.
static int
check_tripwires(const struct detect *d, struct err *e)
{
    struct detect_view v;
    for (uint32_t i = 0; detect_view(d, i, &v); i++)
        if (v.tripwire && !v.builtin && v.rule->match == NULL)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: there is no tripwire %s", v.file,
                           v.line, v.rule->id);
    return 0;
}

struct detect *
rules_read(const struct ruling *r, int *code)
{
    static const uint8_t seed[16] = {0};
    struct files f = {.file = {detect_tripwire_file()}, .n = 1};
    struct detect *d = NULL;
    struct err e = {.code = ERR_OK};
    int rc = validate_init(&e);
    for (int i = 0; i < r->paths_n && rc == 0; i++)
        rc = yaml_files(r->paths[i], add_file, &f, &e);
    if (rc == 0)
        rc = detect_read(f.file, f.n, &detect_bounds_host, seed, &d, &e);
    if (rc == 0 && (rc = check_tripwires(d, &e)) < 0)
        detect_free(d);
    for (size_t i = 1; i < f.n; i++) {
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
