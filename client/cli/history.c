// SPDX-License-Identifier: Apache-2.0
// See line.h. One entry per line of the file; a line break in an entry is "\n" there, a backslash "\\".
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/utf8.h"
#include "line.h"

enum { PATH_BYTES = 1024 };

static void
keep(struct history *h, char *entry)
{
    if (h->n == HISTORY_MAX) {
        free(h->entry[0]);
        memmove(h->entry, h->entry + 1, (HISTORY_MAX - 1) * sizeof h->entry[0]);
        h->n--;
    }
    h->entry[h->n++] = entry;
}

static void
decode(char *line)
{
    char *to = line;
    for (const char *from = line; *from != '\0'; from++) {
        if (*from != '\\' || from[1] == '\0') {
            *to++ = *from;
            continue;
        }
        from++;
        *to++ = (char)(*from == 'n' ? '\n' : *from);
    }
    *to = '\0';
}

static bool
is_utf8(const char *text)
{
    for (size_t n; *text != '\0'; text += n)
        if ((n = utf8_decode(text, UTF8_MAX, NULL)) == 0)
            return false;
    return true;
}

static void
read_file(struct history *h)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    int fd = open(h->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (f == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((n = getline(&line, &size, f)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        decode(line);
        char *copy = (size_t)n < LINE_MAX_BYTES && is_utf8(line) ? strdup(line) : NULL;
        if (copy != NULL)
            keep(h, copy);
    }
    free(line);
    (void)fclose(f);
}

void
history_open(struct history *h)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[PATH_BYTES];
    *h = (struct history){0};
    const bool has_state = state != NULL && state[0] == '/';
    if (!has_state && (home == NULL || home[0] != '/'))
        return;
    int n = has_state ? snprintf(path, sizeof path, "%s/stockade/history", state)
                      : snprintf(path, sizeof path, "%s/.local/state/stockade/history", home);
    if (n > 0 && (size_t)n < sizeof path)
        h->path = strdup(path);
    if (h->path != NULL)
        read_file(h);
}

// Makes the folders of a path.
static void
make_folders(const char *path)
{
    char part[PATH_BYTES];
    for (const char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        (void)mkdir(part, 0700);
    }
}

static void
append(const char *path, const char *text)
{
    make_folders(path);
    int auto_close fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    char *line = malloc(strlen(text) * 2 + 2), *to = line;
    for (; line != NULL && *text != '\0'; text++) {
        if (*text == '\n' || *text == '\\')
            *to++ = '\\';
        *to++ = (char)(*text == '\n' ? 'n' : *text);
    }
    if (fd >= 0 && line != NULL) {
        *to++ = '\n';
        (void)!write(fd, line, (size_t)(to - line));
    }
    free(line);
}

void
history_add(struct history *h, const char *text)
{
    if (text[0] == '\0' || (h->n > 0 && strcmp(h->entry[h->n - 1], text) == 0))
        return;
    char *copy = strdup(text);
    if (copy == NULL)
        return;
    keep(h, copy);
    if (h->path != NULL)
        append(h->path, text);
}

void
history_close(struct history *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->entry[i]);
    free(h->path);
    *h = (struct history){0};
}
