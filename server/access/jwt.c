// SPDX-License-Identifier: Apache-2.0
// See jwt.h.
#include "jwt.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ecdsa.h>
#include <openssl/evp.h>

#include "proto/auto.h"
#include "proto/glob.h"

enum {
    HEADER_MAX = 1024,  // bytes of the decoded header
    KEYS_TRIED_MAX = 8, // in vain: with the same key id, or where the token names none
    P256_BYTES = 32,
    DER_MAX = 80,
    SIGNATURE_MAX = 8192 / 8,
};

#define BASE64URL "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// The three parts of the text.
struct parts {
    const char *text;
    size_t header_n, signed_n; // bytes of the header; and of header, dot and claims
    size_t n;
};

static bool
split(const char *text, struct parts *out)
{
    const size_t header = strspn(text, BASE64URL);
    const size_t claims = text[header] == '.' ? strspn(text + header + 1, BASE64URL) : 0;
    const size_t signed_n = header + 1 + claims;
    if (header == 0 || claims == 0 || text[signed_n] != '.')
        return false;
    const size_t signature = strspn(text + signed_n + 1, BASE64URL);
    *out = (struct parts){text, header, signed_n, signed_n + 1 + signature};
    return text[out->n] == '\0' && signature > 0 && out->n <= JWT_TEXT_MAX;
}

bool
jwt_is(const char *text)
{
    struct parts p;
    return split(text, &p);
}

static int
refuse(struct err *e, const char *reason, const char *why)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the JSON Web Token is not valid: %s", why);
    err_detail(e, reason, "authorization", "get a new one from its issuer, for this broker");
    return r;
}

// *owned*: json_decref(). NULL: no base64url, or no JSON object.
static json_t *
decode(const char *text, size_t n, size_t most)
{
    uint8_t *auto_free bytes = malloc(n);
    size_t bytes_n = 0;
    if (bytes == NULL ||
        sodium_base642bin(bytes, n, text, n, NULL, &bytes_n, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        bytes_n > most)
        return NULL; // NOLINT(clang-analyzer-unix.Malloc): auto_free
    return json_loadb((const char *)bytes, bytes_n, JSON_REJECT_DUPLICATES, NULL);
}

struct header {
    char id[JWK_ID_MAX];
    enum jwt_algorithm algorithm;
};

// The header is read before the signature is verified, so little is taken from it. "crit" names extensions that must be understood;
// none are.
static int
read_header(const struct parts *p, struct header *out, struct err *e)
{
    json_t *j = decode(p->text, p->header_n, HEADER_MAX);
    const char *alg = json_string_value(json_object_get(j, "alg"));
    const json_t *kid = json_object_get(j, "kid");
    const char *id = kid != NULL ? json_string_value(kid) : "";
    int r = 0;
    if (!json_is_object(j) || alg == NULL || id == NULL || strlen(id) >= sizeof out->id)
        r = refuse(e, "JWT_FORM", "its header cannot be read");
    else if (json_object_get(j, "crit") != NULL)
        r = refuse(e, "JWT_FORM", "its header requires an extension");
    else if (jwt_algorithm_find(alg) == JWT_ALGORITHMS_N)
        r = refuse(e, "JWT_ALGORITHM", "it is not signed with RS256, ES256 or EdDSA");
    else {
        out->algorithm = jwt_algorithm_find(alg);
        (void)snprintf(out->id, sizeof out->id, "%s", id);
    }
    json_decref(j);
    return r;
}

// ---- the signature

// ECDSA in JSON is the two numbers, 32 bytes each (RFC 7518 section 3.4); OpenSSL wants them in DER. 0: it cannot be.
static size_t
der_of(const uint8_t *raw, size_t n, uint8_t out[DER_MAX])
{
    uint8_t *to = out;
    ECDSA_SIG *s = n == (size_t)2 * P256_BYTES ? ECDSA_SIG_new() : NULL;
    BIGNUM *r = s != NULL ? BN_bin2bn(raw, P256_BYTES, NULL) : NULL;
    BIGNUM *t = s != NULL ? BN_bin2bn(raw + P256_BYTES, P256_BYTES, NULL) : NULL;
    int length = 0;
    if (r != NULL && t != NULL && ECDSA_SIG_set0(s, r, t) == 1) {
        length = i2d_ECDSA_SIG(s, NULL) <= DER_MAX ? i2d_ECDSA_SIG(s, &to) : 0;
    } else {
        BN_free(r);
        BN_free(t);
    }
    ECDSA_SIG_free(s);
    return length > 0 ? (size_t)length : 0;
}

static bool
signature_holds(const struct jwk *k, const struct parts *p, const uint8_t *signature, size_t n)
{
    uint8_t der[DER_MAX];
    if (k->algorithm == JWT_ES256) {
        n = der_of(signature, n, der);
        signature = der;
    }
    EVP_MD_CTX *c = n > 0 ? EVP_MD_CTX_new() : NULL;
    const bool holds =
        c != NULL &&
        EVP_DigestVerifyInit(c, NULL, k->algorithm == JWT_EDDSA ? NULL : EVP_sha256(), NULL,
                             k->key) == 1 &&
        EVP_DigestVerify(c, signature, n, (const uint8_t *)p->text, p->signed_n) == 1;
    EVP_MD_CTX_free(c);
    return holds;
}

struct bytes {
    size_t n;
    uint8_t bytes[SIGNATURE_MAX];
};

static bool
fits(const struct jwt_issuer *issuer, const struct jwk *k, const struct header *h)
{
    return k->algorithm == h->algorithm && (issuer->algorithms >> h->algorithm & 1) != 0 &&
           (h->id[0] == '\0' || strcmp(k->id, h->id) == 0);
}

// Whether a key of this issuer has signed it. *tried counts the keys that have not, of all issuers.
static bool
is_signer(const struct jwt_trust *trust, uint32_t issuer, const struct parts *p,
          const struct header *h, const struct bytes *signature, size_t *tried)
{
    const struct jwks *keys = trust->keys[issuer];
    for (size_t k = 0; keys != NULL && k < keys->n && *tried < KEYS_TRIED_MAX; k++) {
        if (!fits(&trust->issuer[issuer], &keys->key[k], h))
            continue;
        if (signature_holds(&keys->key[k], p, signature->bytes, signature->n))
            return true;
        ++*tried;
    }
    return false;
}

// Bits of the issuers whose key has signed it: the tenants of one provider are several issuers with the same keys. 0: refused. first:
// the one that the token names. Its keys are tried first, so that another issuer with many keys of the same id cannot use up the
// attempts.
static uint32_t
find_signers(const struct jwt_trust *trust, const struct parts *p, const struct header *h,
             uint32_t first, struct err *e)
{
    struct bytes signature = {.n = 0};
    size_t tried = 0;
    uint32_t found = 0;
    if (sodium_base642bin(signature.bytes, sizeof signature.bytes, p->text + p->signed_n + 1,
                          p->n - p->signed_n - 1, NULL, &signature.n, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0) {
        (void)refuse(e, "JWT_FORM", "its signature cannot be read");
        return 0;
    }
    for (uint32_t k = 0; k < trust->n; k++) {
        const uint32_t i = (first + k) % trust->n;
        if (is_signer(trust, i, p, h, &signature, &tried))
            found |= UINT32_C(1) << i;
    }
    if (found != 0)
        return found;
    if (tried > 0)
        (void)refuse(e, "JWT_SIGNATURE", "its signature is wrong");
    else
        (void)refuse(e, "JWT_KEY", "no key of a known issuer has its key id and algorithm");
    return 0;
}

// ---- the claims

// Whether a claim is this text, or a list with it.
static bool
claim_matches(const json_t *claim, const char *pattern, bool exact)
{
    const json_t *one;
    size_t i;
    const char *text = json_string_value(claim);
    if (text != NULL)
        return exact ? strcmp(text, pattern) == 0 : glob_match(pattern, text, strlen(text));
    json_array_foreach(claim, i, one)
    {
        if (json_is_string(one) && claim_matches(one, pattern, exact))
            return true;
    }
    return false;
}

// NumericDate (RFC 7519 section 2): seconds since 1970, maybe with a fraction. False: it is no such number.
static bool
time_of(const json_t *claim, int64_t *ms)
{
    const double s = json_is_number(claim) ? json_number_value(claim) : -1;
    if (!(s >= 0 && s < 1e11))
        return false;
    *ms = (int64_t)(s * 1000);
    return true;
}

static int
check_times(const json_t *claims, const struct jwt_issuer *issuer, int64_t now_ms, struct err *e)
{
    const int64_t skew = (int64_t)issuer->skew_ms;
    static const char *const starts[] = {"nbf", "iat"};
    int64_t at = 0;
    if (!time_of(json_object_get(claims, "exp"), &at))
        return refuse(e, "JWT_FORM", "it has no time at which it expires");
    if (now_ms >= at + skew)
        return refuse(e, "JWT_EXPIRED", "it has expired");
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        const json_t *claim = json_object_get(claims, starts[i]);
        if (claim != NULL && !time_of(claim, &at))
            return refuse(e, "JWT_FORM", "one of its times cannot be read");
        if (claim != NULL && now_ms + skew < at)
            return refuse(e, "JWT_EARLY", "it is not valid yet");
    }
    return 0;
}

static bool
grant_matches(const struct jwt_grant *g, const json_t *claims)
{
    for (uint32_t i = 0; i < g->claims_n; i++)
        if (!claim_matches(json_object_get(claims, g->claims[i].name), g->claims[i].pattern, false))
            return false;
    return true;
}

static void
copy_subject(const json_t *claims, char out[JWT_SUBJECT])
{
    const char *text = json_string_value(json_object_get(claims, "sub"));
    (void)snprintf(out, JWT_SUBJECT, "%s", text != NULL ? text : "");
    for (char *p = out; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

// The one of the signers that it names; NULL: none of them.
static const struct jwt_issuer *
find_issuer(const struct jwt_trust *trust, uint32_t signers, const json_t *claims)
{
    const char *iss = json_string_value(json_object_get(claims, "iss"));
    for (uint32_t i = 0; iss != NULL && i < trust->n; i++)
        if ((signers >> i & 1) != 0 && strcmp(trust->issuer[i].issuer, iss) == 0)
            return &trust->issuer[i];
    return NULL;
}

static int
check_claims(const json_t *claims, const struct jwt_issuer *issuer, int64_t now_ms,
             struct jwt_result *out, struct err *e)
{
    if (!json_is_object(claims))
        return refuse(e, "JWT_FORM", "its claims cannot be read");
    if (issuer == NULL)
        return refuse(e, "JWT_ISSUER", "it names another issuer than the one that signed it");
    if (!claim_matches(json_object_get(claims, "aud"), issuer->audience, true))
        return refuse(e, "JWT_AUDIENCE", "it was made for another audience");
    int r = check_times(claims, issuer, now_ms, e);
    if (r < 0)
        return r;
    *out = (struct jwt_result){.issuer = issuer};
    copy_subject(claims, out->subject);
    for (uint32_t i = 0; i < issuer->grants_n && out->grant == NULL; i++)
        if (grant_matches(&issuer->grants[i], claims))
            out->grant = &issuer->grants[i];
    if (out->grant != NULL)
        return 0;
    r = err_set(e, ERR_PERMISSION_DENIED, "no grant of %.128s matches the claims of %.128s",
                issuer->issuer, out->subject);
    err_detail(e, "JWT_GRANT", "issuers.grants",
               "the operator of the broker says which claims are which tenant");
    return r;
}

static json_t *
decode_claims(const struct parts *p)
{
    return decode(p->text + p->header_n + 1, p->signed_n - p->header_n - 1, JWT_TEXT_MAX);
}

uint32_t
jwt_claimed_issuer(const struct jwt_trust *trust, const char *text)
{
    struct parts p;
    json_t *claims = split(text, &p) ? decode_claims(&p) : NULL;
    const char *iss = json_string_value(json_object_get(claims, "iss"));
    uint32_t i = 0;
    while (i < trust->n && (iss == NULL || strcmp(trust->issuer[i].issuer, iss) != 0))
        i++;
    json_decref(claims);
    return i;
}

int
jwt_verify(const struct jwt_trust *trust, const char *text, int64_t now_ms, struct jwt_result *out,
           struct err *e)
{
    struct parts p;
    struct header h;
    if (!split(text, &p))
        return refuse(e, "JWT_FORM", "it has not three parts of base64url");
    int r = read_header(&p, &h, e);
    if (r < 0)
        return r;
    const uint32_t signers = find_signers(trust, &p, &h, jwt_claimed_issuer(trust, text), e);
    if (signers == 0)
        return err_errno(e);
    json_t *claims = decode_claims(&p);
    r = check_claims(claims, find_issuer(trust, signers, claims), now_ms, out, e);
    json_decref(claims);
    return r;
}
