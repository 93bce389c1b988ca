// SPDX-License-Identifier: Apache-2.0
// See build_file.h.
#include "build_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/validate.h"
#include "proto/yaml_message.h"
#include "stockade/v1/process_service.pb-c.h"
#include "units.h"

enum { ARENA_BYTES = 1024 * 1024 };

_Static_assert(BUILD_STEPS_MAX == 40, "an error says it");

// NULL: the mapping has no such key.
static const struct yaml_node *
child(const struct yaml_node *map, const char *key)
{
    const struct yaml_node *it = map->child;
    while (it != NULL && strcmp(it->key, key) != 0)
        it = it->next;
    return it;
}

static int
wrong(const char *name, const struct yaml_node *n, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u:%u: %s", name, n != NULL ? n->line : 0,
                   n != NULL ? n->column : 0, what);
}

// What the schema cannot say about a step.
static int
check_step(const char *name, const struct yaml_node *n, const Stockade__V1__TemplateBuildStep *s,
           struct err *e)
{
    uint64_t ms = 0;
    if ((s->run[0] != '\0') == (s->copy != NULL))
        return wrong(name, n, "a step has either run or copy", e);
    if (s->copy != NULL && (s->copy->from[0] == '\0' || s->copy->to[0] == '\0'))
        return wrong(name, n, "copy needs from and to", e);
    if (s->copy != NULL && (s->network != NULL || s->timeout[0] != '\0'))
        return wrong(name, n, "network and timeout are for run", e);
    if (s->timeout[0] != '\0' && (units_duration_ms(s->timeout, &ms) < 0 || ms == 0))
        return wrong(name, child(n, "timeout"), "must be a time, such as 90s or 10m", e);
    return 0;
}

static int
check_limits(const char *name, const struct yaml_node *n,
             const Stockade__V1__TemplateBuildLimits *l, struct err *e)
{
    uint64_t bytes = 0;
    if (l == NULL || n == NULL)
        return 0;
    if (l->memory[0] != '\0' && units_bytes(l->memory, &bytes) < 0)
        return wrong(name, child(n, "memory"), "must be a size, such as 512M or 2G", e);
    if (l->disk[0] != '\0' && units_bytes(l->disk, &bytes) < 0)
        return wrong(name, child(n, "disk"), "must be a size, such as 512M or 2G", e);
    return 0;
}

// The rules for the variables of a job.
static int
check_env(const char *name, const struct yaml_node *env, struct err *e)
{
    for (const struct yaml_node *it = env != NULL ? env->child : NULL; it != NULL; it = it->next) {
        Stockade__V1__EnvironmentVariable variable = STOCKADE__V1__ENVIRONMENT_VARIABLE__INIT;
        struct err why;
        variable.name = it->key;
        if (validate_message(&variable.base, &why) < 0)
            return wrong(name, it, why.text, e);
    }
    return 0;
}

// Before they become messages, whose memory is bounded.
static int
check_steps_n(const char *name, const struct yaml_node *root, struct err *e)
{
    const struct yaml_node *steps = root->kind == YAML_MAP ? child(root, "steps") : NULL;
    unsigned n = 0;
    for (const struct yaml_node *it = steps != NULL ? steps->child : NULL; it != NULL;
         it = it->next)
        if (++n > BUILD_STEPS_MAX)
            return wrong(name, it, "there are more than 40 steps", e);
    return 0;
}

static int
check(const char *name, const struct yaml_node *root, struct build_file *f, struct err *e)
{
    const struct yaml_node *steps = child(root, "steps");
    const struct yaml_node *it = steps == NULL ? NULL : steps->child;
    int rc = check_limits(name, child(root, "limits"), f->definition->limits, e);
    if (rc == 0)
        rc = check_env(name, child(root, "env"), e);
    for (size_t i = 0; rc == 0 && it != NULL && i < BUILD_STEPS_MAX; i++, it = it->next) {
        f->line[i] = it->line;
        rc = check_step(name, it, f->definition->steps[i], e);
    }
    if (rc == 0 && f->definition->n_steps == 0)
        rc = wrong(name, root, "there are no steps", e);
    return rc;
}

int
build_file_parse(const char *name, const void *bytes, size_t n, struct build_file *out,
                 struct err *e)
{
    struct yaml_node *root = NULL;
    ProtobufCMessage *m = NULL;
    out->arena = arena_new(ARENA_BYTES);
    int rc = out->arena == NULL ? err_sys(e, ENOMEM, "read %s", name) : validate_init(e);
    if (rc == 0)
        rc = yaml_tree_read(name, bytes, n, true, &out->tree, &root, e);
    if (rc < 0)
        return rc;
    if (root == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: it is empty", name);
    rc = check_steps_n(name, root, e);
    if (rc == 0)
        rc = yaml_message(name, root, &stockade__v1__template_definition__descriptor, out->arena,
                          &m, e);
    if (rc < 0 || m == NULL)
        return rc;
    out->root = root;
    out->definition = (const Stockade__V1__TemplateDefinition *)m;
    return check(name, root, out, e);
}

const char *
build_file_location(const struct build_file *f, const char *name, const char *key, char *out,
                    size_t n)
{
    const struct yaml_node *it = child(f->root, key);
    if (it != NULL)
        (void)snprintf(out, n, "%s:%u:%u: %s", name, it->line, it->column, key);
    else
        (void)snprintf(out, n, "%s: %s", name, key);
    return out;
}

int
build_file_read(const char *path, struct build_file *out, struct err *e)
{
    struct stat st;
    int auto_close fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > BUILD_FILE_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: no file, or larger than %d KiB", path,
                       BUILD_FILE_MAX / 1024);
    out->bytes = malloc((size_t)st.st_size + 1);
    if (out->bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    ssize_t n = pread(fd, out->bytes, (size_t)st.st_size, 0);
    if (n < 0)
        return err_sys(e, errno, "read %s", path);
    return build_file_parse(path, out->bytes, (size_t)n, out, e);
}

void
build_file_free(struct build_file *f)
{
    yaml_tree_free(f->tree);
    arena_free(f->arena);
    free(f->bytes);
    *f = (struct build_file){0};
}
