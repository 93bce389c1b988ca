// SPDX-License-Identifier: Apache-2.0
// See files.h.
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/base/log.h"

enum { FILE_PATH_MAX = SPAWN_PATH_MAX + 128 };

static void
path_of(const char *state_dir, const char *template, const char *suffix, char out[FILE_PATH_MAX])
{
    (void)snprintf(out, FILE_PATH_MAX, "%s/" ANOMALY_FOLDER "/%s.profile%s", state_dir, template,
                   suffix);
}

static int
read_all(const char *path, uint8_t **out, size_t *n, struct err *e)
{
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > IMAGE_BYTES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not a profile file", path);
    uint8_t *auto_free bytes = malloc((size_t)st.st_size + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    size_t got = 0;
    while (got < (size_t)st.st_size) {
        ssize_t more = read(fd, bytes + got, (size_t)st.st_size - got);
        if (more <= 0)
            return err_sys(e, more < 0 ? errno : EIO, "read %s", path);
        got += (size_t)more;
    }
    *n = got;
    *out = take_ptr(bytes);
    return 0;
}

void
anomaly_load(const char *state_dir, struct profiles *p, uint32_t template)
{
    char path[FILE_PATH_MAX];
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct err e;
    path_of(state_dir, p->set[template].template, "", path);
    int r = read_all(path, &bytes, &n, &e);
    if (r == -ENOENT)
        return;
    if (r == 0)
        r = profiles_import(p, template, bytes, n, true, &e);
    free(bytes);
    if (r < 0) {
        (void)err_wrap(&e, "%s", path);
        log_err(LOG_WARNING, "profile", &e);
        return;
    }
    log_event(LOG_INFO, "profile", "template %s: %s, version %u, %u runs",
              p->set[template].template,
              p->set[template].state == PROFILES_FROZEN ? "frozen" : "learning",
              p->set[template].version, p->set[template].runs);
}

static int
write_all(const char *path, const uint8_t *bytes, size_t n, struct err *e)
{
    int auto_close fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    size_t done = 0;
    while (done < n) {
        ssize_t more = write(fd, bytes + done, n - done);
        if (more < 0)
            return err_sys(e, errno, "write %s", path);
        done += (size_t)more;
    }
    return 0;
}

// No fsync: the sum detects a file that a crash truncated, and losing it costs only a few runs of learning.
int
anomaly_store(const char *state_dir, struct profiles *p, uint32_t template, struct err *e)
{
    char path[FILE_PATH_MAX];
    char fresh[FILE_PATH_MAX];
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct profile_set *s = &p->set[template];
    path_of(state_dir, s->template, "", path);
    path_of(state_dir, s->template, ".new", fresh);
    int r = profiles_export(p, template, &bytes, &n, e);
    if (r < 0 && e->code == ERR_FAILED_PRECONDITION) { // nothing to save
        s->changed = false;
        return unlink(path) < 0 && errno != ENOENT ? err_sys(e, errno, "remove %s", path) : 0;
    }
    if (r == 0)
        r = write_all(fresh, bytes, n, e);
    free(bytes);
    if (r == 0 && rename(fresh, path) < 0)
        r = err_sys(e, errno, "rename %s", fresh);
    s->changed = s->changed && r < 0;
    return r < 0 ? err_wrap(e, "keep the profiles of template %s", s->template) : 0;
}
