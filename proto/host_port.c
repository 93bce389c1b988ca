// SPDX-License-Identifier: Apache-2.0
// See host_port.h.
#include "host_port.h"

#include <stddef.h>
#include <string.h>

// Finds the end of the host and the text after it. False: brackets do not match.
static bool
find_end(const char *text, const char **host, const char **end, const char **behind)
{
    if (text[0] == '[') {
        *host = text + 1;
        *end = strchr(text, ']');
        if (*end == NULL)
            return false;
        *behind = *end + 1;
        return **behind == '\0' || **behind == ':';
    }
    const char *colon = strchr(text, ':');
    const bool has_port = colon != NULL && strchr(colon + 1, ':') == NULL;
    *host = text;
    *end = *behind = has_port ? colon : text + strlen(text);
    return true;
}

bool
host_port_split(const char *text, struct host_port *out)
{
    const char *host = NULL;
    const char *end = NULL;
    const char *behind = NULL;
    if (!find_end(text, &host, &end, &behind))
        return false;
    const size_t n = (size_t)(end - host);
    if (n >= sizeof out->host || memchr(host, '[', n) != NULL || memchr(host, ']', n) != NULL)
        return false;
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    out->bracket = text[0] == '[';
    out->port = *behind == ':' ? behind + 1 : NULL;
    return true;
}

bool
host_port_number(const char *text, uint16_t *port)
{
    enum { DIGITS_MAX = 5 };
    const size_t n = strspn(text, "0123456789");
    uint32_t number = 0;
    if (n == 0 || n > DIGITS_MAX || text[n] != '\0')
        return false;
    for (size_t i = 0; i < n; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    if (number > UINT16_MAX)
        return false;
    *port = (uint16_t)number;
    return true;
}
