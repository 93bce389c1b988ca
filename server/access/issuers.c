// SPDX-License-Identifier: Apache-2.0
// See issuers.h.
#include "issuers.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/auto.h"
#include "proto/config_read.h"
#include "server/base/log.h"

// Identifies the version of a file.
struct stamp {
    uint64_t device, inode, size;
    int64_t s, ns;
};

// An issuer, with the keys that were read last.
struct row {
    char file[sizeof((struct jwt_issuer *)0)->file];
    struct stamp stamp;
    struct jwks *keys; // owned; NULL: the file could not be read
};

struct issuers {
    struct row row[JWT_ISSUERS_MAX];
};

static int
read_keys(const char *file, struct jwks **out, struct err *e)
{
    char *auto_free bytes = NULL;
    size_t n = 0;
    int r = config_file_up_to(file, JWKS_BYTES_MAX, &bytes, &n, e);
    if (r < 0)
        return r;
    return jwks_read(bytes, n, out, e) < 0 ? err_wrap(e, "%s", file) : 0;
}

int
issuers_check(const struct issuer_settings *s, struct err *e)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct jwks *keys = NULL;
        int r = read_keys(s->issuer[i].file, &keys, e);
        jwks_free(keys);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct stamp
stamp_of(const char *file)
{
    struct stat st;
    return stat(file, &st) == 0 ? (struct stamp){st.st_dev, st.st_ino, (uint64_t)st.st_size,
                                                 st.st_mtim.tv_sec, st.st_mtim.tv_nsec}
                                : (struct stamp){0};
}

static bool
is_current(const struct row *r, const char *file, const struct stamp *now)
{
    return strcmp(r->file, file) == 0 && r->stamp.device == now->device &&
           r->stamp.inode == now->inode && r->stamp.size == now->size && r->stamp.s == now->s &&
           r->stamp.ns == now->ns;
}

// A file that cannot be read leaves the keys as they are: an issuer's mistake must not lock out everybody.
static void
refresh(struct row *r, const char *file)
{
    struct err e;
    struct jwks *keys = NULL;
    const struct stamp now = stamp_of(file);
    if (is_current(r, file, &now))
        return;
    if (strcmp(r->file, file) != 0) {
        jwks_free(r->keys);
        r->keys = NULL;
        (void)snprintf(r->file, sizeof r->file, "%s", file);
    }
    r->stamp = now;
    if (read_keys(file, &keys, &e) < 0) {
        log_err(LOG_WARNING, "issuer-keys", &e);
        return;
    }
    jwks_free(r->keys);
    r->keys = keys;
}

int
issuers_prove(struct issuers **known, const struct issuer_settings *s, const char *text,
              int64_t now_ms, struct principal *out, struct err *e)
{
    struct jwks *keys[JWT_ISSUERS_MAX] = {NULL};
    struct jwt_result found;
    uint8_t digest[sizeof out->credential];
    if (*known == NULL && (*known = calloc(1, sizeof **known)) == NULL)
        return err_sys(e, ENOMEM, "read the keys of issuers");
    for (uint32_t i = 0; i < s->n; i++) {
        refresh(&(*known)->row[i], s->issuer[i].file);
        keys[i] = (*known)->row[i].keys;
    }
    const struct jwt_trust trust = {s->n, s->issuer, keys};
    int r = jwt_verify(&trust, text, now_ms, &found, e);
    if (r < 0)
        return r;
    (void)crypto_generichash(digest, sizeof digest, (const uint8_t *)text, strlen(text), NULL, 0);
    *out = (struct principal){.proof = PROOF_JWT,
                              .scopes = UINT32_C(1) << SCOPE_TOKEN_EXCHANGE,
                              .granted = found.grant->scopes,
                              .granted_ms = found.issuer->ttl_ms};
    memcpy(out->credential, digest, sizeof digest);
    (void)snprintf(out->tenant, sizeof out->tenant, "%s", found.grant->tenant);
    (void)snprintf(out->credential_id, sizeof out->credential_id, "%.*s",
                   (int)sizeof out->credential_id - 1, found.subject);
    return 0;
}

void
issuers_free(struct issuers *known)
{
    for (size_t i = 0; known != NULL && i < JWT_ISSUERS_MAX; i++)
        jwks_free(known->row[i].keys);
    free(known);
}
