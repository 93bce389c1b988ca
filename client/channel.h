// SPDX-License-Identifier: Apache-2.0
// A connected socket, plain or with TLS (tls/tls.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/err.h"
#include "tls/certificates.h"
#include "tls/tls.h"

struct channel {
    int fd;                  // -1: none
    struct tls_session *tls; // NULL: plain
};

// Begins TLS on the socket. FAILED_PRECONDITION: the module for TLS is not installed; others: tls.h.
int channel_tls(struct channel *c, const char *host, const struct tls_options *o, struct err *e);

// Makes certificates with the same module (tls/certificates.h). FAILED_PRECONDITION: it is not installed.
int channel_certificates(const struct certificate_order *o, struct err *e);

// Goes on with its handshake, as tls_module.shake() does.
int channel_shake(struct channel *c, bool *out, struct err *e);

// As send(2) and recv(2) with MSG_NOSIGNAL and MSG_DONTWAIT.
ssize_t channel_send(struct channel *c, const void *bytes, size_t n);
ssize_t channel_receive(struct channel *c, void *bytes, size_t n);

// Whether the peer ended it with an alert of TLS; then *e says so (tls_module.refused()).
bool channel_refused(const struct channel *c, struct err *e);

// Whether channel_receive() has bytes although the socket is not readable.
bool channel_pending(const struct channel *c);

// Closes it; accepts one that is closed.
void channel_close(struct channel *c);
