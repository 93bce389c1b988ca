// SPDX-License-Identifier: Apache-2.0
// server/access/jwt and jwk: every way in which a JSON Web Token can be wrong is refused with its reason, for each algorithm.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <sodium.h>

#include "server/access/jwt.h"

enum { NOW_S = 1000000, TEXT = JWT_TEXT_MAX + 200, BYTES = 1024 };

static EVP_PKEY *keys[JWT_ALGORITHMS_N], *other[JWT_ALGORITHMS_N];
static struct jwks *sets[1];
static struct jwt_issuer issuer;
static struct jwt_trust trust = {1, &issuer, (const struct jwks *const *)sets};

static const char claims_ok[] =
    "{\"iss\":\"https://ci.example\",\"aud\":\"stockade\",\"sub\":\"repo:acme/"
    "app\",\"exp\":1000300,\"nbf\":999990,\"iat\":999990,\"ref\":\"main\"}";

static const char *
base64(const uint8_t *bytes, size_t n, char *out)
{
    return sodium_bin2base64(out, TEXT, bytes, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static const char *
number(const EVP_PKEY *k, const char *name, size_t n, char *out)
{
    uint8_t bytes[BYTES];
    BIGNUM *b = NULL;
    assert_int_equal(EVP_PKEY_get_bn_param(k, name, &b), 1);
    const size_t length = n != 0 ? n : (size_t)BN_num_bytes(b);
    assert_int_equal(BN_bn2binpad(b, bytes, (int)length), length);
    BN_free(b);
    return base64(bytes, length, out);
}

// A key as JSON, with more members in front.
static void
jwk_of(enum jwt_algorithm a, const EVP_PKEY *k, const char *more, char out[TEXT])
{
    static char x[TEXT], y[TEXT];
    uint8_t raw[32];
    size_t n = sizeof raw;
    if (a == JWT_RS256)
        (void)snprintf(out, TEXT, "{%s\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"}", more,
                       number(k, OSSL_PKEY_PARAM_RSA_N, 0, x),
                       number(k, OSSL_PKEY_PARAM_RSA_E, 0, y));
    else if (a == JWT_ES256)
        (void)snprintf(out, TEXT, "{%s\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}",
                       more, number(k, OSSL_PKEY_PARAM_EC_PUB_X, 32, x),
                       number(k, OSSL_PKEY_PARAM_EC_PUB_Y, 32, y));
    else {
        assert_int_equal(EVP_PKEY_get_raw_public_key(k, raw, &n), 1);
        (void)snprintf(out, TEXT, "{%s\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"%s\"}", more,
                       base64(raw, n, x));
    }
}

static size_t
raw_of_der(const uint8_t *der, size_t n, uint8_t out[64])
{
    ECDSA_SIG *s = d2i_ECDSA_SIG(NULL, &der, (long)n);
    assert_non_null(s);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_r(s), out, 32), 32);
    assert_int_equal(BN_bn2binpad(ECDSA_SIG_get0_s(s), out + 32, 32), 32);
    ECDSA_SIG_free(s);
    return 64;
}

// A token that is signed with the key; header and claims as they are given.
static const char *
sign(enum jwt_algorithm a, EVP_PKEY *k, const char *header, const char *claims)
{
    static char text[TEXT], part[TEXT];
    uint8_t signature[BYTES], raw[64];
    size_t n = sizeof signature;
    (void)snprintf(text, sizeof text, "%s", base64((const uint8_t *)header, strlen(header), part));
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), ".%s",
                   base64((const uint8_t *)claims, strlen(claims), part));
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit(c, NULL, a == JWT_EDDSA ? NULL : EVP_sha256(), NULL, k), 1);
    assert_int_equal(EVP_DigestSign(c, signature, &n, (const uint8_t *)text, strlen(text)), 1);
    EVP_MD_CTX_free(c);
    if (a == JWT_ES256)
        n = raw_of_der(signature, n, raw);
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), ".%s",
                   base64(a == JWT_ES256 ? raw : signature, n, part));
    return text;
}

static const char *
header_of(enum jwt_algorithm a)
{
    static char header[128];
    (void)snprintf(header, sizeof header, "{\"typ\":\"JWT\",\"alg\":\"%s\",\"kid\":\"k%d\"}",
                   jwt_algorithm_name(a), (int)a);
    return header;
}

// The reason of a refusal at this second; "": it is valid.
static const char *
reason_at(const char *text, int64_t now_s)
{
    static struct err e;
    struct jwt_result found;
    e.reason[0] = '\0';
    if (jwt_verify(&trust, text, now_s * 1000, &found, &e) == 0) {
        assert_ptr_equal(found.issuer, &issuer);
        assert_string_equal(found.subject, "repo:acme/app");
        assert_string_equal(found.grant->tenant, "ci");
    }
    return e.reason;
}

static const char *
reason(const char *text)
{
    return reason_at(text, NOW_S);
}

static const char *
reason_of(const char *claims)
{
    return reason(sign(JWT_ES256, keys[JWT_ES256], header_of(JWT_ES256), claims));
}

static int
set_up(void **unused)
{
    static char set[8 * TEXT], one[TEXT];
    struct err e;
    (void)unused;
    (void)snprintf(set, sizeof set, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}");
    for (unsigned i = 0; i < JWT_ALGORITHMS_N; i++) {
        char id[32];
        for (unsigned k = 0; k < 2; k++) {
            EVP_PKEY **to = k == 0 ? &keys[i] : &other[i];
            *to = i == JWT_RS256   ? EVP_RSA_gen(2048)
                  : i == JWT_ES256 ? EVP_EC_gen("P-256")
                                   : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
            assert_non_null(*to);
        }
        (void)snprintf(id, sizeof id, "\"kid\":\"k%u\",", i);
        jwk_of((enum jwt_algorithm)i, keys[i], id, one);
        (void)snprintf(set + strlen(set), sizeof set - strlen(set), ",%s", one);
    }
    (void)snprintf(set + strlen(set), sizeof set - strlen(set), "]}");
    assert_int_equal(jwks_read(set, strlen(set), &sets[0], &e), 0);
    assert_int_equal(sets[0]->n, 3); // the symmetric one is left out
    issuer = (struct jwt_issuer){
        .issuer = "https://ci.example",
        .audience = "stockade",
        .algorithms = 7,
        .skew_ms = 60000,
        .grants_n = 2,
        .grants = {{.claims_n = 1, .claims = {{"sub", "repo:other/*"}}, .tenant = "other"},
                   {.claims_n = 2,
                    .claims = {{"sub", "repo:acme/*"}, {"ref", "main"}},
                    .tenant = "ci"}},
    };
    return 0;
}

static int
tear_down(void **unused)
{
    (void)unused;
    jwks_free(sets[0]);
    for (unsigned i = 0; i < JWT_ALGORITHMS_N; i++) {
        EVP_PKEY_free(keys[i]);
        EVP_PKEY_free(other[i]);
    }
    return 0;
}

// ---- tests

static void
each_algorithm_is_verified(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < JWT_ALGORITHMS_N; i++) {
        const enum jwt_algorithm a = (enum jwt_algorithm)i;
        assert_string_equal(reason(sign(a, keys[i], header_of(a), claims_ok)), "");
        assert_string_equal(reason(sign(a, other[i], header_of(a), claims_ok)), "JWT_SIGNATURE");
    }
}

static void
a_changed_byte_is_refused(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < JWT_ALGORITHMS_N; i++) {
        char text[TEXT];
        const enum jwt_algorithm a = (enum jwt_algorithm)i;
        (void)snprintf(text, sizeof text, "%s", sign(a, keys[i], header_of(a), claims_ok));
        for (size_t at = 0, n = strlen(text); at < n; at += 7) {
            const char was = text[at];
            text[at] = was == 'A' ? 'B' : 'A';
            assert_string_not_equal(reason(text), "");
            text[at] = '\0'; // cut
            assert_string_not_equal(reason(text), "");
            text[at] = was;
        }
    }
}

// The well-known attacks: no algorithm; the public key as the secret of an HMAC; the key of another algorithm; an algorithm that the
// issuer does not use.
static void
the_algorithm_is_not_the_tokens_choice(void **unused)
{
    char none[TEXT], part[TEXT];
    (void)unused;
    const char *header = "{\"alg\":\"none\"}";
    (void)snprintf(none, sizeof none, "%s.", base64((const uint8_t *)header, strlen(header), part));
    (void)snprintf(none + strlen(none), sizeof none - strlen(none), "%s.",
                   base64((const uint8_t *)claims_ok, strlen(claims_ok), part));
    assert_string_equal(reason(none), "JWT_FORM");
    (void)snprintf(none + strlen(none), sizeof none - strlen(none), "AAAA");
    assert_string_equal(reason(none), "JWT_ALGORITHM");
    EVP_PKEY *k = keys[JWT_ES256];
    assert_string_equal(reason(sign(JWT_ES256, k, "{\"alg\":\"HS256\",\"kid\":\"k1\"}", claims_ok)),
                        "JWT_ALGORITHM");
    assert_string_equal(reason(sign(JWT_ES256, k, "{\"alg\":\"RS256\",\"kid\":\"k1\"}", claims_ok)),
                        "JWT_KEY");
    assert_string_equal(reason(sign(JWT_ES256, k, "{\"alg\":\"RS256\",\"kid\":\"k0\"}", claims_ok)),
                        "JWT_SIGNATURE");
    issuer.algorithms = UINT32_C(1) << JWT_RS256;
    assert_string_equal(reason(sign(JWT_ES256, k, header_of(JWT_ES256), claims_ok)), "JWT_KEY");
    issuer.algorithms = 7;
}

// Tenants of one provider are issuers of their own, whose key sets are the same.
static void
issuers_may_have_the_same_keys(void **unused)
{
    struct jwt_issuer both[2] = {issuer, issuer};
    struct jwks *same[2] = {sets[0], sets[0]};
    const struct jwt_trust two = {2, both, (const struct jwks *const *)same};
    const char *text = sign(JWT_ES256, keys[JWT_ES256], header_of(JWT_ES256), claims_ok);
    struct jwt_result found;
    struct err e = {.text = ""};
    (void)unused;
    (void)snprintf(both[0].issuer, sizeof both[0].issuer, "https://third.example");
    assert_true(jwt_verify(&two, text, NOW_S * 1000, &found, &e) < 0 || found.issuer == &both[1]);
    assert_string_equal(e.text, "");
    (void)snprintf(both[1].issuer, sizeof both[1].issuer, "https://fourth.example");
    assert_true(jwt_verify(&two, text, NOW_S * 1000, &found, &e) < 0);
    assert_string_equal(e.reason, "JWT_ISSUER");
    both[0] = issuer;
    both[0].algorithms = UINT32_C(1) << JWT_RS256; // the right name, but its key does not count
    assert_true(jwt_verify(&two, text, NOW_S * 1000, &found, &e) < 0);
    assert_string_equal(e.reason, "JWT_ISSUER");
}

// One that publishes many keys under the key id of another one, or where tokens have none.
static void
keys_of_another_issuer_do_not_use_up_the_attempts(void **unused)
{
    static struct jwks many;
    struct jwt_issuer both[2] = {issuer, issuer};
    struct jwks *all[2] = {&many, sets[0]};
    const struct jwt_trust two = {2, both, (const struct jwks *const *)all};
    struct jwt_result found = {0};
    struct err e;
    (void)unused;
    (void)snprintf(both[0].issuer, sizeof both[0].issuer, "https://hostile.example");
    for (many.n = 0; many.n < JWKS_KEYS_MAX; many.n++)
        many.key[many.n] = (struct jwk){"k1", JWT_ES256, other[JWT_ES256]};
    for (size_t i = 0; i < 2; i++) {
        const char *header = i == 0 ? header_of(JWT_ES256) : "{\"alg\":\"ES256\"}";
        const char *text = sign(JWT_ES256, keys[JWT_ES256], header, claims_ok);
        assert_int_equal(jwt_verify(&two, text, NOW_S * 1000, &found, &e), 0);
        assert_ptr_equal(found.issuer, &both[1]);
        text =
            sign(JWT_ES256, other[JWT_ES256], header, claims_ok); // with a key of the hostile one
        assert_true(jwt_verify(&two, text, NOW_S * 1000, &found, &e) < 0);
        assert_string_equal(e.reason, "JWT_ISSUER");
    }
}

static void
a_header_is_taken_literally(void **unused)
{
    static const struct {
        const char *header, *reason;
    } rows[] = {
        {"{\"alg\":\"ES256\"}", ""}, // each key of the algorithm is tried
        {"{\"alg\":\"ES256\",\"kid\":\"unknown\"}", "JWT_KEY"},
        {"{\"alg\":\"ES256\",\"kid\":7}", "JWT_FORM"},
        {"{\"alg\":\"ES256\",\"kid\":\"k1\",\"crit\":[\"b64\"]}", "JWT_FORM"},
        {"{\"alg\":\"ES256\",\"alg\":\"ES256\",\"kid\":\"k1\"}", "JWT_FORM"},
        {"{\"kid\":\"k1\"}", "JWT_FORM"},
        {"[\"ES256\"]", "JWT_FORM"},
        {"ES256", "JWT_FORM"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(reason(sign(JWT_ES256, keys[JWT_ES256], rows[i].header, claims_ok)),
                            rows[i].reason);
}

#define CLAIMS(iss, aud, times)                                                                    \
    "{\"sub\":\"repo:acme/app\",\"ref\":\"main\",\"iss\":" iss ",\"aud\":" aud times "}"
#define ISS "\"https://ci.example\""
#define AUD "\"stockade\""
#define EXP ",\"exp\":1000300"

static void
claims_are_compared_exactly(void **unused)
{
    static const struct {
        const char *claims, *reason;
    } rows[] = {
        {CLAIMS(ISS, AUD, EXP), ""},
        {CLAIMS(ISS, "[\"x\",\"stockade\"]", EXP), ""},
        {CLAIMS("\"https://ci.example/\"", AUD, EXP), "JWT_ISSUER"},
        {CLAIMS("[\"https://ci.example\"]", AUD, EXP), "JWT_ISSUER"},
        {CLAIMS(ISS, "\"Stockade\"", EXP), "JWT_AUDIENCE"},
        {CLAIMS(ISS, "\"*\"", EXP), "JWT_AUDIENCE"},
        {CLAIMS(ISS, "[[\"stockade\"]]", EXP), "JWT_AUDIENCE"},
        {CLAIMS(ISS, "[]", EXP), "JWT_AUDIENCE"},
        {CLAIMS(ISS, AUD, ""), "JWT_FORM"},
        {CLAIMS(ISS, AUD, ",\"exp\":\"1000300\""), "JWT_FORM"},
        {CLAIMS(ISS, AUD, ",\"exp\":1e300"), "JWT_FORM"},
        {CLAIMS(ISS, AUD, ",\"exp\":-1"), "JWT_FORM"},
        {CLAIMS(ISS, AUD, ",\"exp\":999900"), "JWT_EXPIRED"},
        {CLAIMS(ISS, AUD, EXP ",\"nbf\":1000100"), "JWT_EARLY"},
        {CLAIMS(ISS, AUD, EXP ",\"iat\":1000100"), "JWT_EARLY"},
        {CLAIMS(ISS, AUD, EXP ",\"nbf\":\"soon\""), "JWT_FORM"},
        {"{\"iss\":" ISS ",\"aud\":" AUD EXP ",\"sub\":\"repo:acme/app\",\"ref\":\"dev\"}",
         "JWT_GRANT"},
        {"{\"iss\":" ISS ",\"aud\":" AUD EXP ",\"sub\":\"repo:acme/app\"}", "JWT_GRANT"},
        {"{\"iss\":" ISS ",\"aud\":" AUD EXP ",\"ref\":\"main\"}", "JWT_GRANT"},
        {"{\"iss\":" ISS ",\"iss\":" ISS ",\"aud\":" AUD EXP "}", "JWT_FORM"},
        {"[]", "JWT_FORM"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(reason_of(rows[i].claims), rows[i].reason);
}

static void
the_clock_may_differ_by_the_skew_and_no_more(void **unused)
{
    const char *text = sign(JWT_ES256, keys[JWT_ES256], header_of(JWT_ES256), claims_ok);
    (void)unused;
    assert_string_equal(reason_at(text, 1000300 + 59), "");
    assert_string_equal(reason_at(text, 1000300 + 60), "JWT_EXPIRED");
    assert_string_equal(reason_at(text, 999990 - 60), "");
    assert_string_equal(reason_at(text, 999990 - 61), "JWT_EARLY");
}

// A point that is not on the curve.
#define NUMBER "\"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\""
#define OFF_CURVE                                                                                  \
    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":" NUMBER ",\"y\":" NUMBER "}]}"

static void
weak_and_broken_keys_are_refused(void **unused)
{
    static char set[2 * TEXT], one[TEXT];
    static const char *const rows[] = {
        "",
        "[]",
        "{}",
        "{\"keys\":{}}",
        "{\"keys\":[]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}",
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AAAA\",\"y\":\"AAAA\"}]}",
        OFF_CURVE,
        "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\"}]}",
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
        "{\"keys\":[],\"keys\":[]}",
    };
    struct jwks *s = NULL;
    struct err e;
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(jwks_read(rows[i], strlen(rows[i]), &s, &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    }
    EVP_PKEY *weak = EVP_RSA_gen(1024);
    jwk_of(JWT_RS256, weak, "", one);
    EVP_PKEY_free(weak);
    (void)snprintf(set, sizeof set, "{\"keys\":[%s]}", one);
    assert_true(jwks_read(set, strlen(set), &s, &e) < 0);
    // for encryption, or for another algorithm: left out, and then there is none
    jwk_of(JWT_RS256, keys[JWT_RS256], "\"use\":\"enc\",", one);
    (void)snprintf(set, sizeof set, "{\"keys\":[%s]}", one);
    assert_true(jwks_read(set, strlen(set), &s, &e) < 0);
    jwk_of(JWT_RS256, keys[JWT_RS256], "\"alg\":\"PS256\",", one);
    (void)snprintf(set, sizeof set, "{\"keys\":[%s]}", one);
    assert_true(jwks_read(set, strlen(set), &s, &e) < 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_algorithm_is_verified),
        cmocka_unit_test(a_changed_byte_is_refused),
        cmocka_unit_test(the_algorithm_is_not_the_tokens_choice),
        cmocka_unit_test(issuers_may_have_the_same_keys),
        cmocka_unit_test(keys_of_another_issuer_do_not_use_up_the_attempts),
        cmocka_unit_test(a_header_is_taken_literally),
        cmocka_unit_test(claims_are_compared_exactly),
        cmocka_unit_test(the_clock_may_differ_by_the_skew_and_no_more),
        cmocka_unit_test(weak_and_broken_keys_are_refused),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
