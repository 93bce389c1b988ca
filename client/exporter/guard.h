// SPDX-License-Identifier: Apache-2.0
// Which requests a page of this server can have made: against other web pages, and names that were made to point here
// (DNS rebinding). Pure.
#pragma once

#include <stdbool.h>

// Whether the header Host names this server: localhost, 127.0.0.1, [::1], the host of `listen` (HOST:PORT; an address that is not
// "any"), or one of `hosts`, names between blanks; with any port.
bool guard_host(const char *host, const char *listen, const char *hosts);

// Whether the headers Origin and Sec-Fetch-Site (each may be "") are those of a page of `host`, or of no page.
bool guard_origin(const char *host, const char *origin, const char *site);

// Whether the header Authorization is one that can be forwarded: "Bearer " and printable ASCII without blanks.
bool guard_bearer(const char *authorization);
