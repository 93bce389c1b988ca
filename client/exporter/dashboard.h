// SPDX-License-Identifier: Apache-2.0
// The dashboard: one page with its modules, which are in the program, and what it requests (gateway.h). A server of its own, so
// it can listen on loopback while Prometheus comes from elsewhere.
//
//   GET  /, /app.js, ...   the page (dashboard_files.h), for everybody who can connect: it has no data
//   GET  /api/about        the version, and whether a credential is needed to read
//   POST /api/...          gateway.h
//
// Every request must name this server in its header Host, and a page that makes one must come from here (guard.h). What the page
// may load, and from where, is in the header Content-Security-Policy; markup cannot be made of texts (Trusted Types).
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "proto/err.h"
#include "gateway.h"
#include "http.h"
#include "settings.h"

struct dashboard {
    const struct dashboard_settings *settings;
    struct http *http; // NULL: none
    struct gateway *gateway;
    char *about; // owned
};

// Without settings.listen there is none. The settings are borrowed.
int dashboard_open(struct dashboard *d, uv_loop_t *loop, const struct dashboard_settings *settings,
                   const char *broker, struct err *e);

// Run the loop until it is empty, then dashboard_free().
void dashboard_close(struct dashboard *d);
void dashboard_free(struct dashboard *d);
