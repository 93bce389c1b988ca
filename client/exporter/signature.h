// SPDX-License-Identifier: Apache-2.0
// Signs webhooks as Standard Webhooks does (standardwebhooks.com): HMAC-SHA256 of "ID.TIME.BODY" with the key of a file. ID is the
// member "id" of the body and stays the same when a request is tried again; TIME is that of the attempt.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "delivery.h"

struct signature;

// Reads the key (headers_file.h).
int signature_open(const char *secret_file, struct signature **out, struct err *e);
void signature_free(struct signature *s); // clears the key

// The headers of one attempt: webhook-id, webhook-timestamp, webhook-signature. As delivery_format.headers.
void signature_headers(void *signature, const uint8_t *bytes, size_t n,
                       struct delivery_headers *out);
