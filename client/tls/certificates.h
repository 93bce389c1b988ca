// SPDX-License-Identifier: Apache-2.0
// A private certificate authority in a folder, and certificates of it, for a first try: P-256 keys, X.509 v3 (RFC 5280). It is a
// second interface of the module stockade-tls.so.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    CERTIFICATES_NAMES_MAX = 16,
    CERTIFICATES_NAME_MAX = 253, // bytes of a name
};

// What to make. Strings are borrowed.
struct certificate_order {
    const char *folder; // it is made if it does not exist, 0700
    // The file names without ".pem" and ".key", such as "server".
    const char *file;
    // Names and addresses of a server, or URIs and names of a caller, for subjectAltName; the first is the common name, too.
    const char *const *names;
    size_t names_n;
    bool client;     // for a caller; otherwise for a server
    uint64_t ttl_ms; // of the certificate
};

// Makes ca.pem and ca.key if they are not there, and FILE.pem and FILE.key, which replace older ones. Keys have mode 0600, and
// each file is whole or absent. FAILED_PRECONDITION: ca.pem and ca.key are no pair, or have expired; INVALID_ARGUMENT: a name; others:
// the file system.
typedef int certificates_make_fn(const struct certificate_order *o, struct err *e);

// The symbol of the module: a certificates_make_fn.
#define CERTIFICATES_SYMBOL "stockade_certificates_make"
