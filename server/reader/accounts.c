// SPDX-License-Identifier: Apache-2.0
// See accounts.h. A line that is not as in passwd(5) or group(5) is left out.
#include "accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

enum { FIELDS = 7, SYSTEM_MAX = 999, LINES_MAX = 4096, NAME_BYTES_MAX = 64 };

// Fields: 0 name, 2 id; passwd also 3 gid, 5 home, 6 shell.
struct kind {
    const char *file;
    const char *host;
    unsigned fields;
    const char *first; // the sandbox's own, before the host's
    const char *last;
};

static const struct kind kinds[] = {
    {"etc/passwd", "/etc/passwd", 7, "root:x:0:0:root:/root:/bin/bash\n",
     "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "/etc/group", 4, "root:x:0:\n", "agent:x:1000:\nnogroup:x:65534:\n"},
};

static bool
split(char *line, unsigned n, char *field[FIELDS])
{
    for (unsigned i = 0; i < n; i++) {
        field[i] = line;
        char *colon = strchr(line, ':');
        if ((colon == NULL) != (i == n - 1))
            return false;
        if (colon != NULL) {
            *colon = '\0';
            line = colon + 1;
        }
    }
    return true;
}

static bool
id_of(const char *text, unsigned long max, unsigned long *id)
{
    char *end;
    *id = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *id <= max;
}

static bool
is_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n < NAME_BYTES_MAX &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == n;
}

static void
put_line(const struct kind *k, char *line, FILE *out)
{
    char *field[FIELDS];
    unsigned long id, gid;
    line[strcspn(line, "\n")] = '\0';
    for (size_t i = 0; i < FIELDS; i++)
        field[i] = line;
    if (!split(line, k->fields, field) || !is_name(field[0]) || !id_of(field[2], SYSTEM_MAX, &id) ||
        id == 0)
        return;
    if (k->fields == 4)
        (void)fprintf(out, "%s:x:%lu:\n", field[0], id);
    else if (id_of(field[3], 65534, &gid) && (gid <= SYSTEM_MAX || gid == 65534))
        (void)fprintf(out, "%s:x:%lu:%lu::%s:%s\n", field[0], id, gid, field[5], field[6]);
}

static void
put_host(const struct kind *k, FILE *out)
{
    char *auto_free line = NULL;
    size_t size = 0;
    FILE *in = fopen(k->host, "re");
    for (int i = 0; in != NULL && i < LINES_MAX && getline(&line, &size, in) > 0; i++)
        put_line(k, line, out);
    if (in != NULL)
        (void)fclose(in);
}

static int
put_accounts(int root, const struct kind *k, struct err *e)
{
    int fd = openat(root, k->file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "we");
    if (out == NULL)
        return err_sys(e, errno, "create %s", k->file);
    (void)fputs(k->first, out);
    put_host(k, out);
    (void)fputs(k->last, out);
    errno = 0;
    bool good = fflush(out) == 0 && !ferror(out) && fchmod(fd, 0644) == 0;
    int sys = errno != 0 ? errno : EIO;
    good = fclose(out) == 0 && good;
    return good ? 0 : err_sys(e, sys, "write %s", k->file);
}

int
accounts_put(int root, struct err *e)
{
    static const char *const empty[] = {"etc/shadow", "etc/gshadow"};
    int rc = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && rc == 0; i++)
        rc = put_accounts(root, &kinds[i], e);
    for (size_t i = 0; i < sizeof empty / sizeof empty[0] && rc == 0; i++) {
        int auto_close fd =
            openat(root, empty[i], O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        rc = fd < 0 ? err_sys(e, errno, "create %s", empty[i]) : 0;
    }
    return rc;
}
