// SPDX-License-Identifier: Apache-2.0
// Commands that explore the sandbox. Each of them is ordinary, and work uses two or three kinds. An attacker who looks for a way out
// asks about the host, its accounts, processes, network and privileges, and the container.
// Only commands are seen: a program that reads the same files itself makes no exec.
#include <stdio.h>
#include <string.h>

#include "box_private.h"

enum { HOST, ACCOUNTS, PROCESSES, NETWORK, PRIVILEGES, CONTAINER };

static const char *const kinds[BOX_LOOKS] = {
    [HOST] = "host",       [ACCOUNTS] = "accounts",     [PROCESSES] = "processes",
    [NETWORK] = "network", [PRIVILEGES] = "privileges", [CONTAINER] = "container"};

// word: NULL: with any arguments.
static const struct {
    const char *program, *word;
    unsigned kind;
} commands[] = {
    {"uname", NULL, HOST},         {"hostname", NULL, HOST},       {"hostnamectl", NULL, HOST},
    {"lscpu", NULL, HOST},         {"getent", "passwd", ACCOUNTS}, {"getent", "group", ACCOUNTS},
    {"who", NULL, ACCOUNTS},       {"w", NULL, ACCOUNTS},          {"last", NULL, ACCOUNTS},
    {"lastlog", NULL, ACCOUNTS},   {"ps", NULL, PROCESSES},        {"pstree", NULL, PROCESSES},
    {"top", NULL, PROCESSES},      {"ip", NULL, NETWORK},          {"ss", NULL, NETWORK},
    {"netstat", NULL, NETWORK},    {"ifconfig", NULL, NETWORK},    {"route", NULL, NETWORK},
    {"arp", NULL, NETWORK},        {"sudo", "-l", PRIVILEGES},     {"sudo", "--list", PRIVILEGES},
    {"find", "-perm", PRIVILEGES}, {"getcap", NULL, PRIVILEGES},   {"capsh", NULL, CONTAINER},
};

// How a word begins, or ends, that names a file.
static const struct {
    const char *begin, *end;
    unsigned kind;
} files[] = {
    {"/proc/version", NULL, HOST},      {"/etc/passwd", NULL, ACCOUNTS},
    {"/etc/group", NULL, ACCOUNTS},     {"/etc/shadow", NULL, ACCOUNTS},
    {"/proc/net/", NULL, NETWORK},      {"/proc/self/net/", NULL, NETWORK},
    {"/etc/sudoers", NULL, PRIVILEGES}, {"/proc/1/", NULL, CONTAINER},
    {NULL, "/docker.sock", CONTAINER},  {NULL, "/containerd.sock", CONTAINER},
};

static bool
ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n >= m && strcmp(word + n - m, end) == 0;
}

// A script is one word, and is no file.
static uint32_t
looks_of_word(const char *word)
{
    uint32_t bits = 0;
    if (word[0] != '/' || strpbrk(word, " \t\n;") != NULL ||
        strcmp(word, "/proc/1/cgroup") ==
            0) // what many programs and agents look at to see where they are
        return 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if ((files[i].begin != NULL &&
             strncmp(word, files[i].begin, strlen(files[i].begin)) == 0) ||
            (files[i].end != NULL && ends_with(word, files[i].end)))
            bits |= 1U << files[i].kind;
    return bits;
}

static uint32_t
looks_of(const struct watch_exec *x)
{
    char path[WATCH_PATH + 1] = "", argv[WATCH_ARGV + 1] = "";
    uint32_t bits = 0;
    memcpy(path, x->path, x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH);
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const uint32_t n = x->args_n < WATCH_ARGV ? x->args_n : WATCH_ARGV;
    memcpy(argv, x->argv, n);
    for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++)
        if (commands[c].word == NULL && strcmp(commands[c].program, name) == 0)
            bits |= 1U << commands[c].kind;
    for (uint32_t i = (uint32_t)strlen(argv) + 1; i < n; i += (uint32_t)strlen(argv + i) + 1) {
        bits |= looks_of_word(argv + i);
        for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++)
            if (commands[c].word != NULL && strcmp(commands[c].program, name) == 0 &&
                strcmp(commands[c].word, argv + i) == 0)
                bits |= 1U << commands[c].kind;
    }
    return bits;
}

// Notes the kinds; returns those within the window.
static uint32_t
note(struct box *b, uint32_t bits, uint64_t now_ns, uint64_t window_ns)
{
    uint32_t all = 0;
    for (unsigned i = 0; i < BOX_LOOKS; i++) {
        if ((bits >> i & 1) != 0)
            b->looked_ns[i] = now_ns;
        const uint64_t at = b->looked_ns[i];
        if (at != 0 && (at >= now_ns || now_ns - at < window_ns))
            all |= 1U << i;
    }
    return all;
}

static const char *
say_looks(uint32_t all, uint64_t window_ms, char text[FINDING_TEXT_MAX])
{
    size_t n = (size_t)snprintf(text, FINDING_TEXT_MAX, "within %.0f s, commands explored",
                                (double)window_ms / 1000);
    for (unsigned i = 0; i < BOX_LOOKS && n < FINDING_TEXT_MAX; i++)
        if ((all >> i & 1) != 0)
            n += (size_t)snprintf(text + n, FINDING_TEXT_MAX - n, "%s %s",
                                  (all & ((1U << i) - 1)) != 0 ? "," : "", kinds[i]);
    return text;
}

void
box_looks(struct box *b, const struct event *head, const struct watch_exec *x)
{
    char text[FINDING_TEXT_MAX];
    const uint32_t bits = looks_of(x);
    if (bits == 0)
        return;
    const uint64_t window_ms = box_rule(b, RULE_RECONNAISSANCE)->window_ms;
    // Counted for the sandbox: an attacker may start a job for each command.
    const uint32_t all = note(b, bits, head->time_ns, window_ms * 1000000);
    const double n = __builtin_popcount(all);
    if (box_crossed(b, RULE_RECONNAISSANCE, head->time_ns, 0, n))
        box_raise(b, RULE_RECONNAISSANCE, head->time_ns, n, say_looks(all, window_ms, text));
}
