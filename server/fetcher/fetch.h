// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and a fetcher: one header for both ends of their socket.
//
//   broker --struct fetch_order--> stockade-fetcher --struct fetch_part, one or more--> broker; the fetcher exits
//
// A fetcher reads one file over HTTPS. It has no right, and what it sends is as trusted as what the other host sends: the broker
// checks the form of each part, counts the bytes, and parses them like anything that comes from outside. All parts but the last one are
// full. One fetcher runs at a time, and it is killed when it has had its time.
#pragma once

#include <stdint.h>

#include "proto/err.h"

enum {
    FETCH_BROKER_FD = 3, // the fetcher finds its end of the socket here after exec
    FETCH_URL_MAX = 512,
    FETCH_PATH_MAX = 256,
    FETCH_BYTES_MAX = 256 * 1024,
    FETCH_PART_BYTES = 16 * 1024,
    FETCH_TIMEOUT_MS_MAX = 30 * 1000,
    FETCH_MORE_SECONDS = 10, // beyond its timeout: then it is killed
    FETCH_SECONDS_MAX = FETCH_TIMEOUT_MS_MAX / 1000 + FETCH_MORE_SECONDS,
};

struct fetch_order {
    char url[FETCH_URL_MAX];
    char ca_file[FETCH_PATH_MAX]; // PEM: whose certificates are genuine; "": the host's
    uint32_t timeout_ms;          // for all of it, at most FETCH_TIMEOUT_MS_MAX
    // Addresses that are not public are reached, too; and http:// on loopback.
    uint32_t private;
};

struct fetch_part {
    struct err err; // not ERR_OK: it failed, and this is the last part
    uint32_t n;     // bytes
    uint32_t last;  // 1: the file is complete
    uint8_t bytes[FETCH_PART_BYTES];
};
