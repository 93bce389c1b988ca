// SPDX-License-Identifier: Apache-2.0
// Programs that manage keys may open their own folders: `ssh-keygen` writes below .ssh, and gpg and its helpers use
// .gnupg. That is their purpose, not theft.
//
// A process chooses its own name, so the name alone proves nothing: the host's program of that name must have been
// executed in the same job, from /usr, where no job can write. This does not detect what the program itself does for
// its user, such as `gpg --export-secret-keys`.
#include <string.h>

#include "box.h"
#include "box_private.h"

static const struct {
    const char *name;   // as comm shows it: 15 bytes
    const char *folder; // a component of the program's own paths
} tools[] = {
    {"ssh-keygen", ".ssh"},
    {"gpg", ".gnupg"},
    {"gpg-agent", ".gnupg"},
    {"gpgconf", ".gnupg"},
    {"gpgsm", ".gnupg"},
    {"gpg-connect-age", ".gnupg"},
    {"keyboxd", ".gnupg"},
    {"dirmngr", ".gnupg"},
    {"scdaemon", ".gnupg"},
    {"gpg-preset-pas", ".gnupg"},
    // it opens the folder that it created, to set its mode
    {"mkdir", ".ssh"},
    {"mkdir", ".gnupg"},
};
enum { TOOLS = sizeof tools / sizeof tools[0] };
_Static_assert(TOOLS <= 32, "a bit each");

// The last component, if the path is a program of the host.
static const char *
program_of(const char *path)
{
    static const char *const folders[] = {"/usr/bin/", "/bin/", "/usr/lib/gnupg/", "/usr/libexec/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) == 0 && strchr(path + n, '/') == NULL)
            return path + n;
    }
    return NULL;
}

void
box_tool_executed(struct box *b, const struct watch_exec *x)
{
    char path[WATCH_PATH + 1] = "";
    memcpy(path, x->path, x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH);
    const char *name = program_of(path);
    for (unsigned i = 0; name != NULL && i < TOOLS; i++) {
        if (strncmp(name, tools[i].name, sizeof((struct event *)0)->comm - 1) != 0)
            continue;
        b->whole.tools |= b->job == NULL ? 1U << i : 0;
        if (b->job != NULL)
            b->job->scope.tools |= 1U << i;
    }
}

// A component of the path, or, for ssh-keygen, the file name of a key.
static bool
is_own(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    for (const char *at = strstr(path, folder); at != NULL; at = strstr(at + 1, folder))
        if ((at == path || at[-1] == '/') && (at[n] == '/' || at[n] == '\0'))
            return true;
    const char *last = strrchr(path, '/');
    last = last != NULL ? last + 1 : path;
    return strcmp(folder, ".ssh") == 0 && strncmp(last, "id_", 3) == 0;
}

bool
box_tool_opens(const struct box *b, const struct event *head, const struct watch_open *o)
{
    char path[WATCH_PATH + 1] = "";
    uint32_t ran = b->job != NULL ? b->job->scope.tools : b->whole.tools;
    if (o->resolved_n > 0)
        memcpy(path, o->resolved, o->resolved_n < WATCH_PATH ? o->resolved_n : WATCH_PATH);
    else
        memcpy(path, o->path, o->path_n < WATCH_PATH ? o->path_n : WATCH_PATH);
    if (strstr(path, "..") != NULL)
        return false;
    for (unsigned i = 0; i < TOOLS; i++)
        if ((ran >> i & 1) != 0 && strncmp(head->comm, tools[i].name, sizeof head->comm) == 0 &&
            is_own(path, tools[i].folder))
            return true;
    return false;
}
