// SPDX-License-Identifier: Apache-2.0
// See certificates.h.
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "certificates.h"
#include "proto/auto.h"

enum { CA_DAYS = 3650, SERIAL_BYTES = 16, EARLY_S = 300, DAY_S = 86400, NAMES_TEXT = 8192 };

struct pair {
    EVP_PKEY *key;
    X509 *certificate;
};

__attribute__((visibility("default"))) certificates_make_fn stockade_certificates_make;

static void
forget(struct pair *p)
{
    EVP_PKEY_free(p->key);
    X509_free(p->certificate);
    *p = (struct pair){NULL, NULL};
}

static int
no_memory(struct err *e)
{
    return err_sys(e, ENOMEM, "make a certificate");
}

// ---- files

static FILE *
open_in(int folder, const char *name)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (f == NULL && fd >= 0)
        (void)close(fd);
    return f;
}

// Beside its place, then renamed, so that nobody sees a part of it.
static int
write_file(int folder, const char *name, mode_t mode, int (*put)(FILE *f, const struct pair *p),
           const struct pair *p, struct err *e)
{
    char beside[NAME_MAX];
    (void)snprintf(beside, sizeof beside, "%.200s.part", name);
    (void)unlinkat(folder, beside, 0);
    const int fd =
        openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL) {
        const int sys = errno;
        if (fd >= 0)
            (void)close(fd);
        return err_sys(e, sys, "create %s", name);
    }
    const bool whole = put(f, p) == 1 && fflush(f) == 0 && fsync(fd) == 0;
    if (fclose(f) == 0 && whole && renameat(folder, beside, folder, name) == 0)
        return 0;
    const int sys = errno != 0 ? errno : EIO;
    (void)unlinkat(folder, beside, 0);
    return err_sys(e, sys, "write %s", name);
}

static int
put_key(FILE *f, const struct pair *p)
{
    return PEM_write_PKCS8PrivateKey(f, p->key, NULL, NULL, 0, NULL, NULL);
}

static int
put_certificate(FILE *f, const struct pair *p)
{
    return PEM_write_X509(f, p->certificate);
}

static int
write_pair(int folder, const char *name, const struct pair *p, struct err *e)
{
    char file[NAME_MAX];
    (void)snprintf(file, sizeof file, "%.200s.key", name);
    int r = write_file(folder, file, 0600, put_key, p, e);
    (void)snprintf(file, sizeof file, "%.200s.pem", name);
    return r == 0 ? write_file(folder, file, 0644, put_certificate, p, e) : r;
}

// ---- certificates

static bool
add_extension(X509 *c, X509 *issuer, int id, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, c, NULL, NULL, 0);
    X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &context, id, value);
    const bool added = x != NULL && X509_add_ext(c, x, -1) == 1;
    X509_EXTENSION_free(x);
    return added;
}

static bool
set_serial(X509 *c)
{
    uint8_t bytes[SERIAL_BYTES];
    BIGNUM *n = RAND_bytes(bytes, sizeof bytes) == 1 ? BN_bin2bn(bytes, sizeof bytes, NULL) : NULL;
    const bool set = n != NULL && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(c)) != NULL;
    BN_free(n);
    return set;
}

// A certificate of the pair's key with what all of them have, without a signature.
static bool
begin(struct pair *p, const char *name, const X509_NAME *issuer, long seconds)
{
    p->key = EVP_EC_gen("P-256");
    p->certificate = X509_new();
    X509_NAME *subject = X509_NAME_new();
    const bool made =
        p->key != NULL && p->certificate != NULL && subject != NULL &&
        X509_set_version(p->certificate, X509_VERSION_3) == 1 && set_serial(p->certificate) &&
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const uint8_t *)name, -1, -1,
                                   0) == 1 &&
        X509_set_subject_name(p->certificate, subject) == 1 &&
        X509_set_issuer_name(p->certificate, issuer != NULL ? issuer : subject) == 1 &&
        X509_gmtime_adj(X509_getm_notBefore(p->certificate), -EARLY_S) != NULL &&
        X509_gmtime_adj(X509_getm_notAfter(p->certificate), seconds) != NULL &&
        X509_set_pubkey(p->certificate, p->key) == 1;
    X509_NAME_free(subject);
    return made;
}

static int
make_ca(int folder, struct pair *ca, struct err *e)
{
    char host[HOST_NAME_MAX + 1] = "", name[64]; // ub-common-name (RFC 5280, appendix A.1)
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "Stockade CA of %.40s", host);
    if (!begin(ca, name, NULL, (long)CA_DAYS * DAY_S) ||
        !add_extension(ca->certificate, ca->certificate, NID_basic_constraints,
                       "critical,CA:TRUE,pathlen:0") ||
        !add_extension(ca->certificate, ca->certificate, NID_key_usage,
                       "critical,keyCertSign,cRLSign") ||
        !add_extension(ca->certificate, ca->certificate, NID_subject_key_identifier, "hash") ||
        X509_sign(ca->certificate, ca->key, EVP_sha256()) == 0)
        return no_memory(e);
    return write_pair(folder, "ca", ca, e);
}

static int
check_ca(const struct pair *ca, struct err *e)
{
    if (ca->key != NULL && ca->certificate != NULL &&
        X509_check_private_key(ca->certificate, ca->key) == 1 &&
        X509_cmp_current_time(X509_get0_notAfter(ca->certificate)) > 0)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "ca.pem and ca.key are not a certificate that is valid now and its key");
    err_detail(e, "CA", "ca.pem", "use another folder, or remove both");
    return r;
}

static int
take_ca(int folder, struct pair *ca, struct err *e)
{
    FILE *key = open_in(folder, "ca.key");
    const bool absent = key == NULL && errno == ENOENT;
    FILE *certificate = open_in(folder, "ca.pem");
    const bool none = absent && certificate == NULL && errno == ENOENT;
    if (key != NULL) {
        ca->key = PEM_read_PrivateKey(key, NULL, NULL, NULL);
        (void)fclose(key);
    }
    if (certificate != NULL) {
        ca->certificate = PEM_read_X509(certificate, NULL, NULL, NULL);
        (void)fclose(certificate);
    }
    return none ? make_ca(folder, ca, e) : check_ca(ca, e);
}

// A name as subjectAltName has it: "IP:192.0.2.1", "URI:spiffe://example.org/ci", "DNS:example.org". False: it is none of these.
static bool
add_name(char *text, size_t n, const char *name)
{
    uint8_t address[16];
    const size_t at = strlen(text), length = strlen(name);
    const char *kind = "DNS";
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        kind = "IP";
    else if (strstr(name, "://") != NULL)
        kind = "URI";
    if (length == 0 || length > CERTIFICATES_NAME_MAX)
        return false;
    // no comma or semicolon: they would begin another name
    for (const char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("*-._:/@%", *p) == NULL)
            return false;
    return snprintf(text + at, n - at, "%s%s:%s", at > 0 ? "," : "", kind, name) < (int)(n - at);
}

// Whether a certificate of this file is of another caller: the files have the last part of the name alone.
static int
check_same_name(int folder, const char *file, const char *common, struct err *e)
{
    char path[NAME_MAX], old[65] = "";
    (void)snprintf(path, sizeof path, "%.200s.pem", file);
    FILE *f = open_in(folder, path);
    X509 *c = f != NULL ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
    if (f != NULL)
        (void)fclose(f);
    if (c != NULL)
        (void)X509_NAME_get_text_by_NID(X509_get_subject_name(c), NID_commonName, old, sizeof old);
    X509_free(c);
    if (old[0] == '\0' || strcmp(old, common) == 0)
        return 0;
    int r =
        err_set(e, ERR_ALREADY_EXISTS, "%s is the certificate of another caller, %s", path, old);
    err_detail(e, "CERTIFICATE_EXISTS", path, "use another folder, or remove it and its key");
    return r;
}

static int
make_one(int folder, const struct pair *ca, const struct certificate_order *o, struct err *e)
{
    char names[NAMES_TEXT] = "", common[65];
    struct pair made = {NULL, NULL};
    for (size_t i = 0; i < o->names_n; i++)
        if (!add_name(names, sizeof names, o->names[i]))
            return err_field(e, "name", "%.64s is no name, address or URI for a certificate",
                             o->names[i]);
    (void)snprintf(common, sizeof common, "%.64s", o->names[0]);
    if (o->client && check_same_name(folder, o->file, common, e) < 0)
        return err_errno(e);
    X509 *issuer = ca->certificate;
    const bool signed_ =
        begin(&made, common, X509_get_subject_name(issuer), (long)(o->ttl_ms / 1000)) &&
        add_extension(made.certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(made.certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
        add_extension(made.certificate, issuer, NID_ext_key_usage,
                      o->client ? "clientAuth" : "serverAuth") &&
        add_extension(made.certificate, issuer, NID_subject_key_identifier, "hash") &&
        add_extension(made.certificate, issuer, NID_authority_key_identifier, "keyid") &&
        add_extension(made.certificate, issuer, NID_subject_alt_name, names) &&
        X509_sign(made.certificate, ca->key, EVP_sha256()) != 0;
    int r = signed_ ? write_pair(folder, o->file, &made, e)
                    : err_field(e, "name", "%.200s: no certificate can have these names", names);
    forget(&made);
    return r;
}

int
stockade_certificates_make(const struct certificate_order *o, struct err *e)
{
    struct pair ca = {NULL, NULL};
    if (o->names_n == 0 || o->names_n > CERTIFICATES_NAMES_MAX)
        return err_field(e, "name", "1 to %d names", CERTIFICATES_NAMES_MAX);
    if (mkdir(o->folder, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "create %s", o->folder);
    int auto_close folder = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return err_sys(e, errno, "open %s", o->folder);
    int r = take_ca(folder, &ca, e);
    if (r == 0)
        r = make_one(folder, &ca, o, e);
    forget(&ca);
    return r < 0 ? err_wrap(e, "%s", o->folder) : 0;
}
