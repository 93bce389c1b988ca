// SPDX-License-Identifier: Apache-2.0
// See headers_file.h.
#include "headers_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

static int
check_owner(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "examine %s", path);
    if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: must be a regular file of root or of this account", path);
    if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "%s: others may read or change it", path);
        err_detail(e, NULL, NULL, "chmod 640 the file");
        return r;
    }
    return 0;
}

int
secret_file_read(const char *path, char **out, size_t *out_n, struct err *e)
{
    char text[SECRET_MAX + 1];
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    int r = check_owner(fd, path, e);
    if (r < 0)
        return r;
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0)
        return err_sys(e, errno, "read %s", path);
    if (n > SECRET_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", path, SECRET_MAX);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        n--;
    if (n == 0 || memchr(text, '\0', (size_t)n) != NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: empty, or with a NUL", path);
    char *copy = strndup(text, (size_t)n);
    if (copy == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    *out = copy;
    *out_n = (size_t)n;
    return 0;
}

// A token and a value of visible characters (RFC 9110, 5.1 and 5.5).
static bool
is_header(const char *line)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz";
    const size_t n = strspn(line, token);
    if (n == 0 || line[n] != ':')
        return false;
    for (const char *c = line + n; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' && *c != '\t')
            return false;
    return true;
}

void
headers_file_clear(struct headers_file *h)
{
    free(h->text);
    *h = (struct headers_file){0};
}

static int
read_lines(const char *path, struct headers_file *h, struct err *e)
{
    unsigned number = 0;
    char *rest = h->text;
    for (char *line = NULL; (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '\0' || line[0] == '#')
            continue;
        if (h->n == HEADERS_MAX)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: too many headers", path, number);
        if (!is_header(line))
            return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: must be \"Name: value\"", path, number);
        h->line[h->n++] = line;
    }
    return 0;
}

int
headers_lines_read(const char *name, const char *lines, struct headers_file *out, struct err *e)
{
    *out = (struct headers_file){.text = strdup(lines)};
    if (out->text == NULL)
        return err_sys(e, ENOMEM, "read %s", name);
    int r = read_lines(name, out, e);
    if (r < 0)
        headers_file_clear(out);
    return r;
}

int
headers_file_read(const char *path, struct headers_file *out, struct err *e)
{
    size_t n = 0;
    *out = (struct headers_file){0};
    int r = secret_file_read(path, &out->text, &n, e);
    if (r == 0)
        r = read_lines(path, out, e);
    if (r < 0)
        headers_file_clear(out);
    return r;
}
