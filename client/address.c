// SPDX-License-Identifier: Apache-2.0
// See address.h.
#include "address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
parse_path(struct address *out, const char *text, const char *path, struct err *e)
{
    if (path[0] != '/')
        return err_field(e, "address", "'%s': the path of the socket must start with '/'", text);
    if (strlen(path) >= sizeof out->path)
        return err_field(e, "address", "'%s': the path is longer than %zu bytes", text,
                         sizeof out->path - 1);
    out->ipc = true;
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    return 0;
}

static int
parse_port(struct address *out, const char *text, const char *port, struct err *e)
{
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || digits > 5 || port[digits] != '\0')
        return err_field(e, "address", "'%s': the port must be a number", text);
    long value = strtol(port, NULL, 10);
    if (value < 1 || value > 65535)
        return err_field(e, "address", "'%s': the port must be 1 to 65535", text);
    (void)snprintf(out->port, sizeof out->port, "%ld", value);
    return 0;
}

static int
parse_tcp(struct address *out, const char *text, const char *rest, struct err *e)
{
    const char *colon = strrchr(rest, ':');
    if (colon == NULL)
        return err_field(e, "address", "'%s': tcp needs host:port", text);
    const char *host = rest;
    size_t n = (size_t)(colon - rest);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n) != NULL) {
        return err_field(e, "address", "'%s': an IPv6 address stands in brackets, [::1]:port",
                         text);
    }
    if (n == 0 || n >= sizeof out->host)
        return err_field(e, "address", "'%s': the host is empty or too long", text);
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    return parse_port(out, text, colon + 1, e);
}

int
address_parse(struct address *out, const char *text, struct err *e)
{
    struct address parsed = {0};
    int rc = 0;
    if (strncmp(text, "ipc://", 6) == 0)
        rc = parse_path(&parsed, text, text + 6, e);
    else if (strncmp(text, "unix:", 5) == 0)
        rc = parse_path(&parsed, text, strncmp(text, "unix://", 7) == 0 ? text + 7 : text + 5, e);
    else if (strncmp(text, "tcp://", 6) == 0)
        rc = parse_tcp(&parsed, text, text + 6, e);
    else
        rc = err_field(e, "address", "'%s' is none of ipc:///path, unix:/path, tcp://host:port",
                       text);
    if (rc == 0)
        *out = parsed;
    return rc;
}
