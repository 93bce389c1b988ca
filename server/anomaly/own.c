// SPDX-License-Identifier: Apache-2.0
// A job was not given a credential that it made: a password file for a database that it started, a key, a .env. Opening it is no theft,
// as long as it is a file that the job created, under any name: editors and git write another file, and give it the name. A file that a
// client or a snapshot put in its place is another file. Files that are executed, or that list who may log in, are not excused.
//
// Giving a file the name of a credential shows nothing of a credential, so it is excused; moving one away and linking one is not. A job may
// remove what it made under this name. Which names a folder has is no secret, as looking at one is not: opening what is in it is found.
//
// A public key is no secret either: reading a file whose own name ends with .pub is excused, and so is the attempt. Nor is what everybody may
// read of the kernel's settings.
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "sensitive.h"

static bool
ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

static bool
is_public_key(const struct watch_open *o, const char *path)
{
    return o->op == WATCH_FILE_OPEN && (o->flags & O_ACCMODE) == O_RDONLY &&
           (o->result >= 0 || o->result == -ENOENT) && ends_with(path, ".pub");
}

// Everybody may read these settings of the kernel, and the tables of cron; writing to one executes a program of the writer.
static bool
is_public_setting(const struct watch_open *o)
{
    const char *pattern = anomaly_sensitive_at(o->rule);
    static const char *const public[] = {"/proc/sys/kernel/core_pattern",
                                         "/proc/sys/kernel/modprobe", "/etc/crontab",
                                         "/etc/cron.d"};
    bool is = false;
    for (size_t i = 0; pattern != NULL && i < sizeof public / sizeof public[0]; i++)
        is = is || strcmp(pattern, public[i]) == 0;
    return is && o->op == WATCH_FILE_OPEN && (o->flags & O_ACCMODE) == O_RDONLY;
}

static bool
is_never_excused(const char *path)
{
    static const char *const names[] = {"/authorized_keys", "/authorized_keys2", "/rc",
                                        "/environment"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ends_with(path, names[i]))
            return true;
    return false;
}

static void
note(struct box *b, uint64_t file, uint32_t path)
{
    b->own[b->own_n % BOX_OWN].file = file;
    b->own[b->own_n % BOX_OWN].path = path;
    b->own[b->own_n++ % BOX_OWN].job = b->job->number;
}

// Looks and removals have no file: what stat shows of another one under this name is no secret.
static bool
is_noted(const struct box *b, const struct watch_open *o, uint32_t path)
{
    for (uint32_t i = 0; i < BOX_OWN; i++)
        if (b->own[i].job == b->job->number && b->own[i].path == path &&
            (o->op != WATCH_FILE_OPEN || b->own[i].file == o->file))
            return true;
    return false;
}

// An open that shows the names in a folder of credentials, or gives a file the name of one. A folder with the name .ssh may list who may log in.
static bool
shows_nothing(const struct watch_open *o, const char *path)
{
    if (o->op == WATCH_FILE_OPEN)
        return o->result >= 0 && o->folder != 0;
    return (o->op == WATCH_FILE_RENAME || o->op == WATCH_FILE_LINK) &&
           (o->flags & WATCH_NEW_NAME) != 0 && !ends_with(path, "/.ssh");
}

bool
box_own_opens(struct box *b, const struct watch_open *o)
{
    char path[WATCH_PATH + 1] = "";
    const bool is_open = o->op == WATCH_FILE_OPEN;
    if (o->op == WATCH_FILE_PRELOAD || o->op == WATCH_FILE_EXEC || o->resolved_n == 0 ||
        o->resolved_n >= WATCH_PATH - 1)
        return false; // only the end of the path is known
    memcpy(path, o->resolved, o->resolved_n);
    if (strstr(path, "..") != NULL)
        return false;
    if (is_public_key(o, path) || is_public_setting(o))
        return true;
    if (b->job == NULL || b->job->number == 0 || !anomaly_sensitive_is_credential(o->rule) ||
        is_never_excused(path))
        return false;
    if (shows_nothing(o, path))
        return true;
    if (is_open ? o->result < 0 || o->file == 0
                : o->op != WATCH_FILE_LOOK && o->op != WATCH_FILE_UNLINK)
        return false;
    const uint32_t name = (uint32_t)box_hash(path, strlen(path), 0);
    if (is_noted(b, o, name))
        return true;
    if (is_open && o->made != 0)
        note(b, o->file, name);
    return is_open && o->made != 0;
}
