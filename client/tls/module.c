// SPDX-License-Identifier: Apache-2.0
// See tls.h: OpenSSL on a socket. OpenSSL's own socket BIO would raise SIGPIPE in the caller's program, so the BIO is ours.
#include "tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "proto/auto.h"

enum { PIN_BYTES = 32, PIN_TEXT = 44 }; // SHA-256, and its base64

struct tls_session {
    SSL_CTX *context;
    SSL *ssl;
    bool pinned, has_ca;
    const char *alert; // of the peer, or NULL
    uint8_t pin[PIN_BYTES];
};

extern const struct tls_module stockade_tls_module;

// ---- the BIO

static int
bio_send(BIO *b, const char *bytes, int n)
{
    ssize_t sent =
        send((int)(intptr_t)BIO_get_data(b), bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(b);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(b);
    return (int)sent;
}

static int
bio_receive(BIO *b, char *bytes, int n)
{
    ssize_t got = recv((int)(intptr_t)BIO_get_data(b), bytes, (size_t)n, MSG_DONTWAIT);
    BIO_clear_retry_flags(b);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(b);
    return (int)got;
}

static long
bio_control(BIO *b, int what, long n, void *p)
{
    (void)b;
    (void)n;
    (void)p;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;

static void
make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stockade");
    if (m != NULL && BIO_meth_set_write(m, bio_send) == 1 &&
        BIO_meth_set_read(m, bio_receive) == 1 && BIO_meth_set_ctrl(m, bio_control) == 1)
        method = m;
}

static bool
set_bio(SSL *ssl, int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_method);
    BIO *b = method != NULL ? BIO_new(method) : NULL;
    if (b == NULL)
        return false;
    BIO_set_data(b, (void *)(intptr_t)fd);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b);
    return true;
}

// ---- what the caller wants

static const char *
why(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return text != NULL ? text : "OpenSSL gives no reason";
}

// Of a file that cannot be opened, OpenSSL says "system lib".
static int
bad_file(const char *field, const char *path, struct err *e)
{
    const char *text = why();
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s: %s", field, path,
                     fd < 0 ? strerrordesc_np(errno) : text);
    err_detail(e, "TLS_FILE", field, NULL);
    return rc;
}

static int
read_pin(struct tls_session *t, const char *text, struct err *e)
{
    static const char prefix[] = "sha256//";
    const size_t n = sizeof prefix - 1;
    uint8_t bytes[PIN_BYTES + 1]; // EVP_DecodeBlock() writes whole groups of three
    if (strncmp(text, prefix, n) == 0 && strlen(text + n) == PIN_TEXT &&
        text[n + PIN_TEXT - 1] == '=' &&
        EVP_DecodeBlock(bytes, (const uint8_t *)text + n, PIN_TEXT) == sizeof bytes) {
        memcpy(t->pin, bytes, sizeof t->pin);
        t->pinned = true;
        return 0;
    }
    int rc =
        err_set(e, ERR_INVALID_ARGUMENT, "the pin must be sha256// and 44 characters of base64");
    err_detail(e, "TLS_PIN", "pin",
               "the SHA-256 of the certificate's public key, as for curl --pinnedpubkey");
    return rc;
}

static int
read_own(const struct tls_session *t, const struct tls_options *o, struct err *e)
{
    if (o->certificate == NULL && o->key == NULL)
        return 0;
    if (o->certificate == NULL || o->key == NULL) {
        int rc =
            err_set(e, ERR_INVALID_ARGUMENT, "a client certificate and its key are given together");
        err_detail(e, "TLS_FILE", o->key == NULL ? "key_file" : "certificate_file", NULL);
        return rc;
    }
    if (SSL_CTX_use_certificate_chain_file(t->context, o->certificate) != 1)
        return bad_file("certificate_file", o->certificate, e);
    return SSL_CTX_use_PrivateKey_file(t->context, o->key, SSL_FILETYPE_PEM) == 1
               ? 0
               : bad_file("key_file", o->key, e);
}

static int
configure(struct tls_session *t, const struct tls_options *o, struct err *e)
{
    int rc = o->pin != NULL ? read_pin(t, o->pin, e) : 0;
    if (rc == 0)
        rc = read_own(t, o, e);
    if (rc < 0)
        return rc;
    t->has_ca = o->ca_file != NULL || !t->pinned;
    if (o->ca_file != NULL && SSL_CTX_load_verify_locations(t->context, o->ca_file, NULL) != 1)
        return bad_file("ca_file", o->ca_file, e);
    if (o->ca_file == NULL && t->has_ca)
        (void)SSL_CTX_set_default_verify_paths(t->context);
    SSL_CTX_set_verify(t->context, t->has_ca ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    return 0;
}

// The certificate must have the name, or the address; only a name is sent (RFC 6066, 3).
static bool
expect_name(SSL *ssl, const char *name)
{
    uint8_t address[16];
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(p, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    char sent[256]; // the macro takes no const string
    (void)snprintf(sent, sizeof sent, "%s", name);
    return X509_VERIFY_PARAM_set1_host(p, name, 0) == 1 && SSL_set_tlsext_host_name(ssl, sent) == 1;
}

static void
session_free(struct tls_session *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->context);
    free(t);
}

static int
session_open(struct tls_session **out, int fd, const char *host, const struct tls_options *o,
             struct err *e)
{
    struct tls_session *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "connect with TLS");
    t->context = SSL_CTX_new(TLS_client_method());
    int rc = t->context != NULL && SSL_CTX_set_min_proto_version(t->context, TLS1_3_VERSION) == 1
                 ? configure(t, o, e)
                 : err_sys(e, ENOMEM, "connect with TLS");
    if (rc == 0) {
        SSL_CTX_set_mode(t->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                         SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                         SSL_MODE_RELEASE_BUFFERS);
        t->ssl = SSL_new(t->context);
        if (t->ssl == NULL || !set_bio(t->ssl, fd) ||
            (t->has_ca && !expect_name(t->ssl, o->server_name != NULL ? o->server_name : host)))
            rc = err_sys(e, ENOMEM, "connect with TLS");
    }
    if (rc < 0) {
        session_free(t);
        return rc;
    }
    SSL_set_connect_state(t->ssl);
    *out = t;
    return 0;
}

// ---- the handshake

static bool
is_pinned(const struct tls_session *t)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    unsigned char *der = NULL;
    X509 *certificate = SSL_get0_peer_certificate(t->ssl);
    int der_n = certificate != NULL ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der) : 0;
    bool same = der_n > 0 && EVP_Digest(der, (size_t)der_n, digest, &n, EVP_sha256(), NULL) == 1 &&
                n == PIN_BYTES && CRYPTO_memcmp(digest, t->pin, n) == 0;
    OPENSSL_free(der);
    return same;
}

static int
not_the_broker(const char *text, const char *hint, struct err *e)
{
    int rc = err_set(e, ERR_UNAUTHENTICATED, "the broker's certificate is refused: %s", text);
    err_detail(e, "TLS_BROKER_UNKNOWN", "address", hint);
    return rc;
}

static int
refused_by_peer(const char *alert, struct err *e)
{
    int rc = err_set(e, ERR_UNAUTHENTICATED, "the broker ends the TLS handshake: %s", alert);
    err_detail(e, "TLS_REFUSED", "certificate_file",
               "it may ask for a client certificate that it knows");
    return rc;
}

static int
failed(const struct tls_session *t, int kind, struct err *e)
{
    long verified = SSL_get_verify_result(t->ssl);
    if (t->has_ca && verified != X509_V_OK)
        return not_the_broker(
            X509_verify_cert_error_string(verified),
            "give the CA file of the broker (--ca-file, STOCKADE_CA_FILE), and the name that its "
            "certificate has in the address",
            e);
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_REASON(code);
    int rc;
    if (code == 0 || kind == SSL_ERROR_SYSCALL || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        rc = err_set(e, ERR_UNAVAILABLE, "the peer closed the connection in the TLS handshake");
        err_detail(e, "CONNECTION_REJECTED", "address",
                   "it may have too many connections, or speak no TLS");
    } else if (reason > SSL_AD_REASON_OFFSET) { // an alert of the peer
        rc = refused_by_peer(why(), e);
    } else {
        rc = err_set(e, ERR_FAILED_PRECONDITION, "the TLS handshake failed: %s", why());
        err_detail(e, "NOT_A_BROKER", "address", "check --address and STOCKADE_ADDRESS");
    }
    return rc;
}

static int
session_shake(struct tls_session *t, bool *out, struct err *e)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc == 1)
        return !t->pinned || is_pinned(t)
                   ? 1
                   : not_the_broker("it has another key than the pin", NULL, e);
    int kind = SSL_get_error(t->ssl, rc);
    *out = kind == SSL_ERROR_WANT_WRITE;
    return kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE ? 0 : failed(t, kind, e);
}

// ---- bytes

static ssize_t
result(struct tls_session *t, int rc)
{
    if (rc > 0)
        return rc;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default: // also an end without close_notify, which may be a cut
        if (ERR_GET_REASON(ERR_peek_last_error()) > SSL_AD_REASON_OFFSET)
            t->alert = why();
        errno = ECONNRESET;
        return -1;
    }
}

static bool
session_refused(const struct tls_session *t, struct err *e)
{
    if (t->alert != NULL)
        (void)refused_by_peer(t->alert, e);
    return t->alert != NULL;
}

static ssize_t
session_send(struct tls_session *t, const void *bytes, size_t n)
{
    ERR_clear_error();
    return result(t, SSL_write(t->ssl, bytes, n < INT_MAX ? (int)n : INT_MAX));
}

static ssize_t
session_receive(struct tls_session *t, void *bytes, size_t n)
{
    ERR_clear_error();
    return result(t, SSL_read(t->ssl, bytes, n < INT_MAX ? (int)n : INT_MAX));
}

static bool
session_pending(const struct tls_session *t)
{
    return SSL_has_pending(t->ssl) != 0;
}

static void
session_close(struct tls_session *t)
{
    if (t == NULL)
        return;
    ERR_clear_error();
    if (SSL_is_init_finished(t->ssl))
        (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
    session_free(t);
}

__attribute__((visibility("default"))) const struct tls_module stockade_tls_module = {
    .version = TLS_MODULE_VERSION,
    .open = session_open,
    .shake = session_shake,
    .send = session_send,
    .receive = session_receive,
    .refused = session_refused,
    .pending = session_pending,
    .close = session_close,
};
