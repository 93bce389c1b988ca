// SPDX-License-Identifier: Apache-2.0
// See tls.h.
#include "tls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "proto/auto.h"

enum {
    CERTIFICATES_BYTES_MAX = 32 * 1024, // that a client may send (SSL_CTX_set_max_cert_list)
    VERIFY_DEPTH_MAX = 4,
};

// TLS 1.2, where it is permitted: forward secrecy and authenticated encryption only (RFC 9325, 4.2).
static const char old_ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

struct tls {
    SSL_CTX *context; // NULL: nothing is loaded
    uint32_t clients_n;
    struct tls_client *clients;
};

struct tls *
tls_new(void)
{
    return calloc(1, sizeof(struct tls));
}

static void
forget(struct tls *t)
{
    SSL_CTX_free(t->context);
    free(t->clients);
    *t = (struct tls){0};
}

void
tls_free(struct tls *t)
{
    if (t != NULL)
        forget(t);
    free(t);
}

const char *
tls_why(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code != 0 ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return why != NULL ? why : "OpenSSL gives no reason";
}

static int
bad_file(const char *key, const char *path, struct err *e)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s: %s", key, path, tls_why());
    err_detail(e, "TLS_FILE", key, NULL);
    return rc;
}

// The first folder of the path that the account may not enter, whatever the file's mode is. False: it may enter all.
static bool
find_closed(const char *path, char folder[PATH_MAX])
{
    for (const char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
        char inside[PATH_MAX + 2];
        if (slash - path >= PATH_MAX)
            return false;
        (void)snprintf(folder, PATH_MAX, "%.*s", (int)(slash - path), path);
        (void)snprintf(inside, sizeof inside, "%s/.", folder);
        int auto_close fd = open(inside, O_PATH | O_CLOEXEC);
        if (fd < 0)
            return errno == EACCES;
    }
    return false;
}

// OpenSSL does not say why a file cannot be opened.
static int
check_readable(const char *key, const char *path, struct err *e)
{
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0)
        return 0;
    int sys = errno;
    char hint[sizeof e->hint], folder[PATH_MAX];
    const unsigned group =
        (unsigned)setfsgid((gid_t)-1); // what it is; of --check-config, not that of the process
    const bool closed = sys == EACCES && find_closed(path, folder);
    int rc = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s: %s", key, path, strerrordesc_np(sys));
    e->sys = sys;
    if (closed)
        (void)snprintf(hint, sizeof hint,
                       "the broker's own account may not enter %.150s: chgrp %u it, and chmod g+x",
                       folder, group);
    else
        (void)snprintf(hint, sizeof hint,
                       "the broker reads it with its own account: chgrp %u it, and chmod 0640",
                       group);
    err_detail(e, "TLS_FILE", key, sys == EACCES ? hint : NULL);
    return rc;
}

// A program that reads the key can pose as this broker.
static int
check_key_file(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        const int sys = errno;
        int r = check_readable("tls.key", path, e);
        return r < 0 ? r : err_sys(e, sys, "tls.key: %s", path);
    }
    if ((st.st_mode & S_IRWXO) == 0)
        return 0;
    int rc =
        err_set(e, ERR_FAILED_PRECONDITION, "tls.key: %s: every account may open it (mode %04o)",
                path, (unsigned)st.st_mode & 07777);
    err_detail(e, "TLS_KEY_MODE", "tls.key", "chmod 0640 and chgrp it to the broker's group");
    return rc;
}

static int
read_own(SSL_CTX *c, const struct tls_files *f, struct err *e)
{
    int rc = check_readable("tls.certificate", f->certificate, e);
    if (rc == 0 && SSL_CTX_use_certificate_chain_file(c, f->certificate) != 1)
        rc = bad_file("tls.certificate", f->certificate, e);
    if (rc == 0)
        rc = check_key_file(f->key, e);
    if (rc == 0)
        rc = check_readable("tls.key", f->key, e);
    if (rc < 0)
        return rc;
    // also that it is the certificate's key
    return SSL_CTX_use_PrivateKey_file(c, f->key, SSL_FILETYPE_PEM) == 1
               ? 0
               : bad_file("tls.key", f->key, e);
}

static int
read_clients(SSL_CTX *c, const struct tls_files *f, struct err *e)
{
    if (f->client_ca[0] == '\0') {
        if (f->require == 0 && f->clients_n == 0)
            return 0;
        int none = err_set(e, ERR_FAILED_PRECONDITION,
                           "tls.%s needs tls.client_ca: it says whose certificates are genuine",
                           f->require != 0 ? "require_client_certificate" : "clients");
        err_detail(e, "TLS_CLIENT_CA", "tls.client_ca", NULL);
        return none;
    }
    int rc = check_readable("tls.client_ca", f->client_ca, e);
    if (rc < 0)
        return rc;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(f->client_ca);
    if (names == NULL || SSL_CTX_load_verify_locations(c, f->client_ca, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return bad_file("tls.client_ca", f->client_ca, e);
    }
    SSL_CTX_set_client_CA_list(c, names);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | (f->require != 0 ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    return 0;
}

static SSL_CTX *
new_context(const struct tls_files *f)
{
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (c == NULL)
        return NULL;
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(c, CERTIFICATES_BYTES_MAX);
    SSL_CTX_set_verify_depth(c, VERIFY_DEPTH_MAX);
    if (SSL_CTX_set_num_tickets(c, 0) == 1 && SSL_CTX_set_cipher_list(c, old_ciphers) == 1 &&
        SSL_CTX_set_min_proto_version(c, f->old != 0 ? TLS1_2_VERSION : TLS1_3_VERSION) == 1)
        return c;
    SSL_CTX_free(c);
    return NULL;
}

static int
load(struct tls *out, const struct tls_files *f, struct err *e)
{
    *out = (struct tls){0};
    if (f->certificate[0] == '\0')
        return 0;
    ERR_clear_error();
    out->context = new_context(f);
    out->clients = calloc(f->clients_n + 1, sizeof *out->clients);
    if (out->context == NULL || out->clients == NULL) {
        forget(out);
        return err_sys(e, ENOMEM, "tls");
    }
    out->clients_n = f->clients_n;
    memcpy(out->clients, f->clients, f->clients_n * sizeof *f->clients);
    int rc = read_own(out->context, f, e);
    if (rc == 0)
        rc = read_clients(out->context, f, e);
    if (rc != 0)
        forget(out);
    return rc;
}

int
tls_load(struct tls *t, const struct tls_files *files, struct err *e)
{
    struct tls next;
    int rc = load(&next, files, e);
    if (rc != 0)
        return rc;
    forget(t);
    *t = next;
    return 0;
}

int
tls_check(const struct tls_files *files, struct err *e)
{
    struct tls next;
    int rc = load(&next, files, e);
    forget(&next);
    return rc;
}

bool
tls_is_loaded(const struct tls *t)
{
    return t->context != NULL;
}

SSL *
tls_accept(const struct tls *t)
{
    SSL *ssl = t->context != NULL ? SSL_new(t->context) : NULL;
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (ssl == NULL || in == NULL || out == NULL) {
        SSL_free(ssl);
        BIO_free(in);
        BIO_free(out);
        return NULL;
    }
    (void)BIO_set_mem_eof_return(in, -1); // no byte yet: try again
    SSL_set_bio(ssl, in, out);
    SSL_set_accept_state(ssl);
    return ssl;
}

// "KIND:text" of a name; false: of another kind, too long, or with a NUL in it.
static bool
name_text(const GENERAL_NAME *name, char out[TLS_NAME_MAX])
{
    const char *kind = name->type == GEN_URI     ? "URI"
                       : name->type == GEN_DNS   ? "DNS"
                       : name->type == GEN_EMAIL ? "email"
                                                 : NULL;
    if (kind == NULL)
        return false;
    const char *text = (const char *)ASN1_STRING_get0_data(name->d.ia5);
    int n = ASN1_STRING_length(name->d.ia5);
    if (n <= 0 || memchr(text, '\0', (size_t)n) != NULL)
        return false;
    int whole = snprintf(out, TLS_NAME_MAX, "%s:%.*s", kind, n, text);
    return whole > 0 && whole < TLS_NAME_MAX;
}

// The index of the first row that is one of the names; clients_n: none is.
static uint32_t
first_row(const struct tls *t, const GENERAL_NAMES *names)
{
    uint32_t found = t->clients_n;
    char text[TLS_NAME_MAX];
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        if (!name_text(sk_GENERAL_NAME_value(names, i), text))
            continue;
        for (uint32_t row = 0; row < found; row++)
            if (strcmp(t->clients[row].name, text) == 0)
                found = row;
    }
    return found;
}

const struct tls_client *
tls_client_of(const struct tls *t, const SSL *ssl)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (certificate == NULL || SSL_get_verify_result(ssl) != X509_V_OK)
        return NULL;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    uint32_t row = names != NULL ? first_row(t, names) : t->clients_n;
    GENERAL_NAMES_free(names);
    return row < t->clients_n ? &t->clients[row] : NULL;
}
