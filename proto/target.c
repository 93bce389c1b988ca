// SPDX-License-Identifier: Apache-2.0
// See target.h.
#include "target.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "host_port.h"

// Reads digits from *p up to `end` (NULL: to the end of the text). 0: not a port.
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

// Removes "/tcp" or "/udp" from the end.
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
    struct host_port h;
    _Static_assert(sizeof t.host == sizeof h.host, "one fits into the other");
    if (!host_port_split(copy, &h) || h.host[0] == '\0')
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: not a destination, such as example.com:443 or 192.0.2.0/24:80/tcp",
                       text);
    if (h.port != NULL && !target_ports(h.port, &t.first, &t.last))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: \"%s\" is not a port (1 to 65535, or A-B)",
                       text, h.port);
    memcpy(t.host, h.host, sizeof t.host);
    t.is_name = is_name(t.host);
    *out = t;
    return 0;
}
