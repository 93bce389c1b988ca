// SPDX-License-Identifier: Apache-2.0
// See address.h.
#include "address.h"

#include <stdio.h>
#include <string.h>

#include "proto/host_port.h"

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
parse_tcp(struct address *out, const char *text, const char *rest, struct err *e)
{
    struct host_port h;
    uint16_t port = 0;
    _Static_assert(sizeof out->host == sizeof h.host, "one fits into the other");
    if (!host_port_split(rest, &h))
        return err_field(e, "address", "'%s': tcp needs host:port, or [IPV6]:port", text);
    if (h.port == NULL && strchr(h.host, ':') != NULL && !h.bracket)
        return err_field(e, "address", "'%s': an IPv6 address stands in brackets, [::1]:port",
                         text);
    if (h.port == NULL)
        return err_field(e, "address", "'%s': tcp needs host:port", text);
    if (h.host[0] == '\0')
        return err_field(e, "address", "'%s': the host is empty", text);
    if (!host_port_number(h.port, &port) || port == 0)
        return err_field(e, "address", "'%s': the port must be a number from 1 to 65535", text);
    memcpy(out->host, h.host, sizeof out->host);
    (void)snprintf(out->port, sizeof out->port, "%u", port);
    return 0;
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
    else if (strncmp(text, "tls+tcp://", 10) == 0) {
        parsed.tls = true;
        rc = parse_tcp(&parsed, text, text + 10, e);
    } else
        rc = err_field(e, "address",
                       "'%s' is none of ipc:///path, unix:/path, tcp://host:port, "
                       "tls+tcp://host:port",
                       text);
    if (rc == 0)
        *out = parsed;
    return rc;
}
