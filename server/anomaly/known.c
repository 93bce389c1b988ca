// SPDX-License-Identifier: Apache-2.0
// The runtimes of sanitizers open /proc/self/environ, which every program has in its memory: that reveals nothing.
//
// ps opens /proc/PID/environ of each process that it lists, whatever it shows. With the option "e", or the column of that name, it
// shows what it finds there, and is not excused.
//
// What a tool of the host that goes through folders comes across, and is refused, shows nothing either, nor what a program for accounts is
// refused. Both are logged: they may be part of something.
//
// Other than in tools.c, it is the process that counts, from the exec of ps to the next exec: a job cannot pass for it by taking its name.
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "sensitive.h"

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

enum { IS_PS = 1, IS_WALKER = 2, IS_OF_ALL = 4, IS_FOR_ACCOUNTS = 8 };

// Programs that read the files of whole folders.
static const char *const walkers[] = {
    "grep", "egrep", "fgrep", "rg",    "ag",    "find",      "tar",     "rsync",  "cp",     "zip",
    "cpio", "7z",    "7za",   "7zz",   "du",    "diff",      "chmod",   "chown",  "ls",     "tree",
    "file", "wc",    "stat",  "cksum", "b2sum", "sha256sum", "sha1sum", "md5sum", "rdfind", NULL};
// Programs that compare a password, or change an account.
static const char *const for_accounts[] = {
    "su",       "sudo",     "passwd",   "chage",    "login",   "newgrp",      "sg",   "runuser",
    "chsh",     "chfn",     "gpasswd",  "useradd",  "usermod", "userdel",     "pwck", "grpck",
    "groupadd", "groupmod", "groupdel", "chpasswd", "expiry",  "unix_chkpwd", NULL};
// Who names one of these is looking for it.
static const char *const named[] = {"shadow", "sudoers", "environ", "secret", "/proc",
                                    "/sys",   "/dev",    "/run",    NULL};

static bool
is_listed(const char *const *list, const char *name)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

// The name of a program of the host. NULL: it is none.
static const char *
name_of(const struct watch_exec *x, char path[WATCH_PATH + 1])
{
    static const char *const folders[] = {"/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"};
    if (x->exe.owner != 0 && x->exe.owner != UINT32_MAX)
        return NULL; // a file of the sandbox
    const uint32_t n = x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH;
    memcpy(path, x->path, n);
    path[n] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (strncmp(path, folders[i], strlen(folders[i])) == 0)
            return path + strlen(folders[i]);
    return NULL;
}

static uint32_t
look_at_words(const char *argv, uint32_t n)
{
    uint32_t is = IS_WALKER;
    for (uint32_t i = (uint32_t)strlen(argv) + 1; i < n; i += (uint32_t)strlen(argv + i) + 1) {
        for (const char *const *one = named; *one != NULL; one++)
            if (strstr(argv + i, *one) != NULL)
                return 0;
        is |= strcmp(argv + i, "/") == 0 ? IS_OF_ALL : 0;
    }
    return is;
}

static uint32_t
what_is(const struct watch_exec *x)
{
    char path[WATCH_PATH + 1], argv[WATCH_ARGV + 1] = "";
    const char *name = name_of(x, path);
    const uint32_t n = x->args_n < WATCH_ARGV ? x->args_n : WATCH_ARGV;
    if (name == NULL)
        return 0;
    memcpy(argv, x->argv, n);
    if (strcmp(name, "ps") == 0) // if its arguments are cut, it is not known what it shows
        return x->args_n <= WATCH_ARGV && !shows_environment(argv, n) ? IS_PS : 0;
    if (is_listed(for_accounts, name))
        return IS_FOR_ACCOUNTS;
    if (!is_listed(walkers, name))
        return 0;
    // Words that are cut may name something: what it reads then is excused only where it is refused.
    return look_at_words(argv, n) & (x->args_n <= WATCH_ARGV ? ~0U : ~(unsigned)IS_OF_ALL);
}

void
box_known_executed(struct box *b, const struct event *head, const struct watch_exec *x)
{
    const uint32_t is = what_is(x);
    for (uint32_t i = 0; i < BOX_KNOWN; i++) {
        if (b->evidence->known[i].pid == head->pid)
            b->evidence->known[i].pid = 0;
        if (b->evidence->own_program[i] == head->pid)
            b->evidence->own_program[i] = 0;
    }
    if (x->exe.owner != 0 && x->exe.owner != UINT32_MAX)
        b->evidence->own_program[b->evidence->own_program_n++ % BOX_KNOWN] = head->pid;
    if (is == 0)
        return;
    b->evidence->known[b->evidence->known_n % BOX_KNOWN].pid = head->pid;
    b->evidence->known[b->evidence->known_n++ % BOX_KNOWN].is = is;
}

bool
box_runs_own_program(const struct box *b, uint32_t pid)
{
    for (uint32_t i = 0; i < BOX_KNOWN; i++)
        if (pid != 0 && b->evidence->own_program[i] == pid)
            return true;
    return false;
}

static uint32_t
runs(const struct box *b, uint32_t pid)
{
    for (uint32_t i = 0; i < BOX_KNOWN; i++)
        if (pid != 0 && b->evidence->known[i].pid == pid)
            return b->evidence->known[i].is;
    return 0;
}

static void
path_of(const struct watch_open *o, bool as_written, char out[WATCH_PATH + 1])
{
    const bool resolved = o->resolved_n > 0 && !as_written;
    const uint32_t n = resolved ? o->resolved_n : o->path_n;
    memcpy(out, resolved ? o->resolved : o->path, n < WATCH_PATH ? n : WATCH_PATH);
    out[n < WATCH_PATH ? n : WATCH_PATH] = '\0';
}

// "/proc/20" and this end.
static bool
is_of_process(const char *path, const char *end)
{
    static const char proc[] = "/proc/";
    if (strncmp(path, proc, sizeof proc - 1) != 0)
        return false;
    const char *at = path + sizeof proc - 1;
    const size_t digits = strspn(at, "0123456789");
    return digits > 0 && strcmp(at + digits, end) == 0;
}

// What the process opens is of itself, whatever the resolved path says of its number.
static bool
names_itself(const struct watch_open *o, const char *what)
{
    char written[WATCH_PATH + 1], path[WATCH_PATH + 1];
    static const char self[] = "/proc/self";
    path_of(o, true, written);
    path_of(o, false, path);
    return strncmp(written, self, sizeof self - 1) == 0 &&
           strcmp(written + sizeof self - 1, what) == 0 && is_of_process(path, what);
}

static bool
is_of_pattern(const struct watch_open *o, const char *const *patterns)
{
    const char *pattern = anomaly_sensitive_at(o->rule);
    return pattern != NULL && is_listed(patterns, pattern);
}

enum box_grade
box_known_opens(const struct box *b, const struct event *head, const struct watch_open *o)
{
    static const char *const passwords[] = {"/etc/shadow", "/etc/gshadow", NULL};
    static const char *const sudoers[] = {"/etc/sudoers", "/etc/sudoers.d", NULL};
    const uint32_t is = runs(b, head->pid);
    char path[WATCH_PATH + 1];
    if (o->op != WATCH_FILE_OPEN)
        return BOX_GRADE_NONE;
    path_of(o, false, path);
    const bool of_environ = is_of_process(path, "/environ");
    if (names_itself(o, "/environ") || ((is & IS_PS) != 0 && of_environ))
        return BOX_GRADE_OWN;
    if (names_itself(o, "/mem")) // compilers at run time write into their own code
        return BOX_GRADE_ON_WAY;
    const bool reads = (o->flags & O_ACCMODE) == O_RDONLY && (o->flags & (O_CREAT | O_TRUNC)) == 0;
    const bool refused = o->result == -EACCES || o->result == -EPERM || o->result == -ENOENT;
    if (!reads || strstr(path, "..") != NULL)
        return BOX_GRADE_NONE;
    if ((is & IS_FOR_ACCOUNTS) != 0 && refused && is_of_pattern(o, passwords))
        return BOX_GRADE_ACCOUNTS;
    if (refused && is_of_pattern(o, sudoers))
        return BOX_GRADE_ON_WAY;
    return (is & IS_WALKER) != 0 && (refused || (is & IS_OF_ALL) != 0) ? BOX_GRADE_ON_WAY
                                                                       : BOX_GRADE_NONE;
}
