// SPDX-License-Identifier: Apache-2.0
// The runtimes of sanitizers open /proc/self/environ, which every program has in its memory: that reveals nothing.
//
// ps opens /proc/PID/environ of each process that it lists, whatever it shows. With the option "e", or the column of that name, it
// shows what it finds there, and is not excused.
//
// Other than in tools.c, it is the process that counts, from the exec of ps to the next exec: a job cannot pass for it by taking its name.
#include <string.h>

#include "box.h"
#include "box_private.h"

// The letters of options of ps that take a value; behind a letter that is not the last one, the value is in the same word.
static const char dashed_with_value[] = "CgGopqstuUNnO", plain_with_value[] = "oOpqtUkN";

static bool
takes_next(const char *letters, const char *with_value)
{
    const size_t n = strcspn(letters, with_value);
    return letters[n] != '\0' && letters[n + 1] == '\0';
}

// Whether ps shows the environment: the column of that name, or a word of letters without a dash, such as "auxe", has an e before any letter that takes a value.
// Long options that take the next word as their value are refused the excuse only if that word looks like this.
static bool
shows_environment(const char *argv, uint32_t n)
{
    bool is_value = false;
    for (uint32_t i = (uint32_t)strlen(argv) + 1; i < n; i += (uint32_t)strlen(argv + i) + 1) {
        const char *word = argv + i;
        if (strstr(word, "environ") != NULL) // a column
            return true;
        if (is_value)
            is_value = false;
        else if (word[0] == '-' && word[1] == '-')
            continue;
        else if (word[0] == '-')
            is_value = takes_next(word + 1, dashed_with_value);
        else if (memchr(word, 'e', strcspn(word, plain_with_value)) != NULL)
            return true;
        else
            is_value = takes_next(word, plain_with_value);
    }
    return false;
}

static bool
is_ps(const struct watch_exec *x)
{
    char path[WATCH_PATH + 1] = "", argv[WATCH_ARGV + 1] = "";
    if (x->exe.owner != 0 && x->exe.owner != UINT32_MAX)
        return false; // a file of the sandbox
    memcpy(path, x->path, x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH);
    if ((strcmp(path, "/usr/bin/ps") != 0 && strcmp(path, "/bin/ps") != 0) ||
        x->args_n > WATCH_ARGV) // what it shows is not known
        return false;
    memcpy(argv, x->argv, x->args_n);
    return !shows_environment(argv, x->args_n);
}

void
box_known_executed(struct box *b, const struct event *head, const struct watch_exec *x)
{
    for (uint32_t i = 0; i < BOX_KNOWN; i++)
        if (b->known[i] == head->pid)
            b->known[i] = 0;
    if (is_ps(x))
        b->known[b->known_n++ % BOX_KNOWN] = head->pid;
}

static bool
runs_ps(const struct box *b, uint32_t pid)
{
    for (uint32_t i = 0; i < BOX_KNOWN; i++)
        if (pid != 0 && b->known[i] == pid)
            return true;
    return false;
}

bool
box_known_opens(const struct box *b, const struct event *head, const struct watch_open *o)
{
    static const char proc[] = "/proc/", environ_of[] = "/environ";
    char path[WATCH_PATH + 1] = "";
    static const char own[] = "/proc/self/environ";
    const bool is_own = o->path_n == sizeof own - 1 && memcmp(o->path, own, sizeof own - 1) == 0;
    if (o->op != WATCH_FILE_OPEN || (!is_own && !runs_ps(b, head->pid)))
        return false;
    if (o->resolved_n > 0)
        memcpy(path, o->resolved, o->resolved_n < WATCH_PATH ? o->resolved_n : WATCH_PATH);
    else
        memcpy(path, o->path, o->path_n < WATCH_PATH ? o->path_n : WATCH_PATH);
    if (strncmp(path, proc, sizeof proc - 1) != 0)
        return false;
    const char *at = path + sizeof proc - 1;
    const size_t digits = strspn(at, "0123456789");
    return digits > 0 && strcmp(at + digits, environ_of) == 0;
}
