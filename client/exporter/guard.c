// SPDX-License-Identifier: Apache-2.0
// See guard.h.
#include "guard.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "proto/host_port.h"

enum { BEARER_MAX = 8000 };

static bool
is_any(const char *host)
{
    return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

// One of the words of a text.
static bool
is_listed(const char *name, const char *words)
{
    const size_t length = strlen(name);
    for (const char *at = words; *at != '\0';) {
        at += strspn(at, " ");
        const size_t n = strcspn(at, " ");
        if (n == length && n > 0 && strncasecmp(at, name, n) == 0)
            return true;
        at += n;
    }
    return false;
}

bool
guard_host(const char *host, const char *listen, const char *hosts)
{
    struct host_port asked, own;
    uint16_t port = 0;
    if (!host_port_split(host, &asked) || asked.host[0] == '\0' ||
        (asked.port != NULL && !host_port_number(asked.port, &port)))
        return false;
    if (is_listed(asked.host, "localhost 127.0.0.1 ::1") || is_listed(asked.host, hosts))
        return true;
    return host_port_split(listen, &own) && !is_any(own.host) &&
           strcasecmp(own.host, asked.host) == 0;
}

bool
guard_origin(const char *host, const char *origin, const char *site)
{
    static const char *const schemes[] = {"http://", "https://"};
    if (site[0] != '\0' && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return false;
    if (origin[0] == '\0')
        return true;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncasecmp(origin, schemes[i], strlen(schemes[i])) == 0)
            return strcasecmp(origin + strlen(schemes[i]), host) == 0;
    return false;
}

bool
guard_bearer(const char *authorization)
{
    static const char scheme[] = "Bearer ";
    const size_t begin = sizeof scheme - 1, n = strlen(authorization);
    if (n <= begin || n > BEARER_MAX || strncmp(authorization, scheme, begin) != 0)
        return false;
    for (const char *at = authorization + begin; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return false;
    return true;
}
