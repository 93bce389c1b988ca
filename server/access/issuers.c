// SPDX-License-Identifier: Apache-2.0
// See issuers.h.
#include "issuers.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "issuers_private.h"
#include "proto/auto.h"
#include "proto/config_read.h"
#include "server/base/log.h"

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
        int r = s->issuer[i].file[0] != '\0' ? read_keys(s->issuer[i].file, &keys, e) : 0;
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
    return strcmp(r->from, file) == 0 && r->stamp.device == now->device &&
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
    if (strcmp(r->from, file) != 0) {
        jwks_free(r->keys);
        r->keys = NULL;
        (void)snprintf(r->from, sizeof r->from, "%s", file);
    }
    r->stamp = now;
    if (read_keys(file, &keys, &e) < 0) {
        log_err(LOG_WARNING, "issuer-keys", &e);
        return;
    }
    jwks_free(r->keys);
    r->keys = keys;
}

// The keys that may be used now.
static void
collect(struct issuers *is, const struct jwks *keys[JWT_ISSUERS_MAX])
{
    const struct issuer_settings *s = is->settings;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->issuer[i].file[0] != '\0')
            refresh(&is->row[i], s->issuer[i].file);
        keys[i] = s->issuer[i].file[0] != '\0' ? is->row[i].keys : issuers_fetched(is, i);
    }
}

// It was refused. If no key fits, the issuer may have a new one, or its keys could not be fetched.
static int
explain(struct issuers *is, const struct jwt_trust *trust, const char *text, struct err *e)
{
    const uint32_t i = jwt_claimed_issuer(trust, text);
    // the keys of another issuer with the same URL may still be in use
    const bool is_other = strcmp(e->reason, "JWT_ISSUER") == 0;
    if (i == trust->n || trust->issuer[i].url[0] == '\0' ||
        (strcmp(e->reason, "JWT_KEY") != 0 && strcmp(e->reason, "JWT_SIGNATURE") != 0 &&
         !(is_other && trust->keys[i] == NULL)))
        return err_errno(e);
    const bool asked = issuers_ask(is, i);
    const char *why = issuers_why(is, i);
    if (trust->keys[i] == NULL) {
        (void)err_set(e, ERR_UNAVAILABLE, "the keys of the issuer %.200s are not known%s%s",
                      trust->issuer[i].issuer, why[0] != '\0' ? ": " : ", they are being fetched",
                      why);
        err_detail(e, "JWT_KEYS_UNAVAILABLE", "issuers[].jwks_url", "try again later");
    } else if (asked) {
        err_detail(e, NULL, NULL,
                   "if the issuer has a new key, try again in some seconds: its keys are being "
                   "fetched");
    }
    return err_errno(e);
}

int
issuers_prove(struct issuers *is, const char *text, int64_t now_ms, struct principal *out,
              struct err *e)
{
    const struct jwks *keys[JWT_ISSUERS_MAX] = {NULL};
    struct jwt_result found;
    uint8_t digest[sizeof out->credential];
    collect(is, keys);
    const struct jwt_trust trust = {is->settings->n, is->settings->issuer, keys};
    int r = jwt_verify(&trust, text, now_ms, &found, e);
    if (r < 0)
        return explain(is, &trust, text, e);
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

struct issuers *
issuers_new(const struct issuer_settings *s)
{
    struct issuers *is = calloc(1, sizeof *is);
    if (is != NULL)
        is->settings = s;
    return is;
}

void
issuers_free(struct issuers *is)
{
    if (is == NULL)
        return;
    issuers_stop_fetching(is);
    for (size_t i = 0; i < JWT_ISSUERS_MAX; i++)
        jwks_free(is->row[i].keys);
    free(is);
}
