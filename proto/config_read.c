// SPDX-License-Identifier: Apache-2.0
// See config_read.h.
#include "config_read.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auto.h"
#include "words.h"

enum { KEYS_MAX = 64 }; // of one section

int
config_fail(const struct config_reader *r, const struct yaml_node *n, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    (void)err_set(r->e, ERR_INVALID_ARGUMENT, "%s:%u:%u: %s%s%s", r->name, n->line, n->column,
                  n->key != NULL ? n->key : "", n->key != NULL ? ": " : "", what);
    return -EINVAL;
}

// "a, b or c"
static void
list_words(const char *const *words, char *out, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; words[i] != NULL && used < n; i++) {
        const char *between = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        used += (size_t)snprintf(out + used, n - used, "%s%s", between, words[i]);
    }
}

int
config_word(const struct config_reader *r, const struct yaml_node *n, const char *const *words,
            uint32_t *out)
{
    char all[128];
    for (uint32_t i = 0; n->kind == YAML_TEXT && words[i] != NULL; i++)
        if (strcmp(n->text, words[i]) == 0) {
            *out = i;
            return 0;
        }
    list_words(words, all, sizeof all);
    return config_fail(r, n, "must be %s", all);
}

void *
config_field(const struct config_key *k, void *to)
{
    assert(to != NULL);
    return (char *)to + k->offset;
}

int
config_no_such(const struct config_reader *r, const struct yaml_node *n, const char *what,
               const char *const *names, size_t names_n)
{
    const char *near = words_nearest(n->key, names, names_n);
    return near != NULL ? config_fail(r, n, "there is no such %s; did you mean %s?", what, near)
                        : config_fail(r, n, "there is no such %s", what);
}

static int
no_such_key(const struct config_reader *r, const struct config_key *keys, const struct yaml_node *n)
{
    const char *names[KEYS_MAX];
    size_t names_n = 0;
    for (; keys[names_n].name != NULL && names_n < KEYS_MAX; names_n++)
        names[names_n] = keys[names_n].name;
    return config_no_such(r, n, "key", names, names_n);
}

int
config_read_map(const struct config_reader *r, const struct config_key *keys, struct yaml_node *map,
                void *to)
{
    if (map->kind != YAML_MAP)
        return config_fail(r, map, "must be a mapping of keys to values");
    for (struct yaml_node *n = map->child; n != NULL; n = n->next) {
        const struct config_key *k = keys;
        while (k->name != NULL && strcmp(k->name, n->key) != 0)
            k++;
        if (k->name == NULL)
            return no_such_key(r, keys, n);
        int err = k->read(r, k, n, to);
        if (err < 0)
            return err;
    }
    return 0;
}

int
config_read_section(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                    void *to)
{
    return config_read_map(r, k->keys, n, config_field(k, to));
}

int
config_read_text(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    if (n->kind != YAML_TEXT)
        return config_fail(r, n, "must be one value");
    if (strlen(n->text) >= k->size)
        return config_fail(r, n, "longer than %zu bytes", k->size - 1);
    (void)snprintf(config_field(k, to), k->size, "%s", n->text);
    return 0;
}

bool
config_clean_path(const char *path, char *out, size_t n)
{
    size_t used = 0;
    if (path[0] != '/' || strlen(path) >= n)
        return false;
    for (const char *part = path; *part != '\0';) {
        part += strspn(part, "/");
        size_t length = strcspn(part, "/");
        if ((length == 1 && part[0] == '.') || (length == 2 && memcmp(part, "..", 2) == 0))
            return false;
        if (length > 0)
            used += (size_t)snprintf(out + used, n - used, "/%.*s", (int)length, part);
        part += length;
    }
    if (used == 0)
        (void)snprintf(out, n, "/");
    return true;
}

int
config_read_path(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    char clean[PATH_MAX];
    if (n->kind != YAML_TEXT || !config_clean_path(n->text, clean, sizeof clean))
        return config_fail(r, n, "must be an absolute path without \".\" and \"..\"");
    struct yaml_node path = *n;
    path.text = clean;
    return config_read_text(r, k, &path, to);
}

// Letters, digits, '.', '_' and '-', as template names and host names have them.
int
config_read_name(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    if (n->kind != YAML_TEXT || n->text[0] == '\0' || n->text[0] == '-' || n->text[0] == '.' ||
        n->text[strspn(n->text, allowed)] != '\0')
        return config_fail(r, n, "must be lower-case letters, digits, '.', '_' and '-'");
    return config_read_text(r, k, n, to);
}

int
config_number(const struct config_reader *r, const struct yaml_node *n,
              const struct quantity_unit *units, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    char least[QUANTITY_TEXT], most[QUANTITY_TEXT];
    int err = n->kind == YAML_TEXT ? quantity_read(n->text, units, &v) : -EINVAL;
    if (err == -EINVAL)
        return config_fail(r, n, "must be %s", quantity_forms(units));
    if (err < 0 || v < min || v > max)
        return config_fail(r, n, "must be from %s to %s", quantity_write(min, units, least),
                           quantity_write(max, units, most));
    *out = v;
    return 0;
}

void
config_store(const struct config_key *k, void *to, uint64_t v)
{
    assert(k->size == 1 || k->size == 4 || k->size == 8);
    if (k->size == 1)
        *(bool *)config_field(k, to) = v != 0;
    else if (k->size == 4)
        *(uint32_t *)config_field(k, to) = (uint32_t)v;
    else
        *(uint64_t *)config_field(k, to) = v;
}

int
config_read_word(const struct config_reader *r, const struct config_key *k,
                 const struct yaml_node *n, void *to, const char *const *words, uint32_t first)
{
    uint32_t i = 0;
    int err = config_word(r, n, words, &i);
    if (err == 0)
        config_store(k, to, first + i);
    return err;
}

int
config_read_bool(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    static const char *const words[] = {"true", "false", NULL};
    uint32_t i = 0;
    int err = config_word(r, n, words, &i);
    if (err == 0)
        config_store(k, to, i == 0);
    return err;
}

static int
read_number(const struct config_reader *r, const struct config_key *k, const struct yaml_node *n,
            void *to, const struct quantity_unit *units)
{
    uint64_t v = 0;
    int err = config_number(r, n, units, k->min, k->max, &v);
    if (err == 0)
        config_store(k, to, v);
    return err;
}

int
config_read_count(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                  void *to)
{
    return read_number(r, k, n, to, quantity_count);
}

int
config_read_size(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    return read_number(r, k, n, to, quantity_bytes);
}

int
config_read_ms(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
               void *to)
{
    return read_number(r, k, n, to, quantity_time_ms);
}

static int
check_file(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "read %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not a regular file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "%s: owned by uid %u, must belong to root", path,
                       st.st_uid);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(e, ERR_PERMISSION_DENIED,
                       "%s: must be writable only by its owner (chmod go-w)", path);
    return 0;
}

int
config_file(const char *path, char **out, size_t *out_n, struct err *e)
{
    return config_file_up_to(path, CONFIG_FILE_MAX, out, out_n, e);
}

int
config_file_up_to(const char *path, size_t most, char **out, size_t *out_n, struct err *e)
{
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    int r = check_file(fd, path, e);
    if (r < 0)
        return r;
    char *auto_free bytes = malloc(most + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    size_t n = 0;
    while (n <= most) {
        ssize_t got = read(fd, bytes + n, most + 1 - n);
        if (got < 0)
            return err_sys(e, errno, "read %s", path);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out = take_ptr(bytes);
    *out_n = n;
    return 0;
}
