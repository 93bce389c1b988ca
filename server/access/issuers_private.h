// SPDX-License-Identifier: Apache-2.0
// The parts of issuers: issuers.c has the tokens and the files, issuers_fetch.c the key sets that are fetched.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "issuers.h"
#include "jwk.h"

// Identifies the version of a file.
struct stamp {
    uint64_t device, inode, size;
    int64_t s, ns;
};

// An issuer, with the keys that were read last.
struct row {
    char from[JWT_URL_MAX]; // the file or the URL
    struct stamp stamp;     // of the file
    struct jwks *keys;      // owned; NULL: none could be read
    // ---- of a URL; times of CLOCK_BOOTTIME, 0: never
    int64_t got_ms, due_ms, asked_ms;
    uint32_t failures; // since the last success
    char why[200];     // of the last failure
};

struct fetch;
struct loop_timer;

struct issuers {
    const struct issuer_settings *settings; // borrowed
    struct row row[JWT_ISSUERS_MAX];
    // ---- fetching; NULL: not begun
    uv_loop_t *loop;
    struct spawn *spawn;
    struct loop_timer *timer;
    struct fetch *fetch; // the one in progress
};

// Why the keys of this issuer's URL could not be fetched the last time; "": they could, or are being fetched. Borrowed.
const char *issuers_why(const struct issuers *is, uint32_t i);
// issuers_fetch.c: the keys of a URL that may be used now; NULL: there are none.
const struct jwks *issuers_fetched(const struct issuers *is, uint32_t i);
// No key fits a token that claims to be of this issuer: fetches them again, once a minute at most. True: now.
bool issuers_ask(struct issuers *is, uint32_t i);
void issuers_stop_fetching(struct issuers *is);
