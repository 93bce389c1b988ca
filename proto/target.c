// SPDX-License-Identifier: Apache-2.0
// See target.h.
#include "target.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

// Digits from *p on, up to `end` (NULL: to the end of the text). 0: no port.
static uint16_t
read_port(const char **p)
{
    uint32_t n = 0;
    const char *at = *p;
    while (*at >= '0' && *at <= '9' && n <= UINT16_MAX)
        n = n * 10 + (uint32_t)(*at++ - '0');
    if (at == *p || n > UINT16_MAX)
        return 0;
    *p = at;
    return (uint16_t)n;
}

bool
target_ports(const char *text, uint16_t *first, uint16_t *last)
{
    uint16_t a = read_port(&text);
    uint16_t b = a;
    if (*text == '-') {
        text++;
        b = read_port(&text);
    }
    if (*text != '\0' || a == 0 || b < a)
        return false;
    *first = a;
    *last = b;
    return true;
}

// Cuts "/tcp" or "/udp" off the end.
static uint8_t
cut_protocol(char *text)
{
    size_t n = strlen(text);
    uint8_t protocol = 0;
    if (n > 4 && strcmp(text + n - 4, "/tcp") == 0)
        protocol = IPPROTO_TCP;
    else if (n > 4 && strcmp(text + n - 4, "/udp") == 0)
        protocol = IPPROTO_UDP;
    if (protocol != 0)
        text[n - 4] = '\0';
    return protocol;
}

// Where the ports begin, behind their colon; NULL: there are none. Ends the host there. *host moves behind a bracket.
static char *
cut_ports(char **host)
{
    char *colon = strchr(*host, ':');
    if (**host == '[') {
        char *end = strchr(*host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return NULL;
        colon = end[1] == ':' ? end + 1 : NULL;
        *end = '\0';
        (*host)++;
    } else if (colon == NULL || strchr(colon + 1, ':') != NULL) {
        return NULL; // none, or an IPv6 address without brackets
    }
    if (colon == NULL)
        return NULL;
    *colon = '\0';
    return colon + 1;
}

static bool
is_name(const char *host)
{
    if (strchr(host, ':') != NULL || strcmp(host, "host") == 0)
        return false;
    return host[strspn(host, "0123456789./")] != '\0';
}

int
target_parse(const char *text, struct target_text *out, struct err *e)
{
    char copy[300];
    size_t n = strlen(text);
    if (n >= sizeof copy)
        return err_set(e, ERR_INVALID_ARGUMENT, "a destination of %zu characters", n);
    memcpy(copy, text, n + 1);
    struct target_text t = {.protocol = cut_protocol(copy)};
    char *host = copy;
    const char *ports = cut_ports(&host);
    if (ports != NULL && !target_ports(ports, &t.first, &t.last))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: \"%s\" is no port (1 to 65535, or A-B)", text,
                       ports);
    if (host[0] == '\0' || host[strcspn(host, "[]")] != '\0' || strlen(host) >= sizeof t.host)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: no destination, such as example.com:443 or 192.0.2.0/24:80/tcp", text);
    memcpy(t.host, host, strlen(host) + 1);
    t.is_name = is_name(host);
    *out = t;
    return 0;
}
