// SPDX-License-Identifier: Apache-2.0
// See path.h. Runs between clone3 and execve: nothing allocates.
#include "path.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char path_default[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const char *
guest_path_of(char *const *env)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return path_default;
}

int
guest_path_next(const char *name, const char **rest, char *out, size_t size)
{
    if (*rest == NULL)
        return 0;
    if (strchr(name, '/') != NULL) {
        *rest = NULL;
        return snprintf(out, size, "%s", name) < (int)size;
    }
    while (*rest != NULL) {
        const char *entry = *rest;
        size_t n = strcspn(entry, ":");
        *rest = entry[n] == ':' ? entry + n + 1 : NULL;
        if (snprintf(out, size, "%.*s%s%s", (int)n, entry, n > 0 ? "/" : "", name) < (int)size)
            return 1;
    }
    return 0;
}

// Errors after which the next folder of PATH is tried.
static bool
is_elsewhere(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == ENAMETOOLONG ||
           error == ELOOP || error == ESTALE || error == ENODEV || error == ETIMEDOUT;
}

static int
exec_script(char *path, char **args, char *const *env)
{
    char *first = args[0];
    args[-1] = (char[]){"/bin/sh"};
    args[0] = path;
    (void)execve("/bin/sh", args - 1, env);
    int error = errno;
    args[0] = first;
    return -error;
}

static bool
is_folder(const char *path)
{
    struct stat st;
    return strchr(path, '/') != NULL && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int
guest_path_exec(char **args, char *const *env)
{
    if (args[0][0] == '\0')
        return -ENOENT;
    char path[GUEST_PATH_MAX];
    const char *rest = guest_path_of(env);
    bool denied = false;
    while (guest_path_next(args[0], &rest, path, sizeof path)) {
        (void)execve(path, args, env);
        if (errno == ENOEXEC)
            return exec_script(path, args, env);
        if (!is_elsewhere(errno))
            return -errno;
        denied |= errno == EACCES;
    }
    if (denied && is_folder(args[0])) // execve(2) says EACCES
        return -EISDIR;
    return denied ? -EACCES : -ENOENT;
}

int
guest_path_exit_code(int error)
{
    return error == -ENOENT || error == -ENOTDIR ? 127 : 126;
}
