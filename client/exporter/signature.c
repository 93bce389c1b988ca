// SPDX-License-Identifier: Apache-2.0
// See signature.h.
#include "signature.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/now.h"
#include "headers_file.h"

enum {
    ID_BYTES = 80,
    TIME_BYTES = 32,
    SECOND_NS = 1000000000,
    TEXT_BYTES =
        sodium_base64_ENCODED_LEN(crypto_auth_hmacsha256_BYTES, sodium_base64_VARIANT_ORIGINAL)
};

struct signature {
    char *secret;
    size_t n;
};

static void
sign(const struct signature *s, const char *id, int64_t time_s, const uint8_t *bytes, size_t n,
     char out[TEXT_BYTES])
{
    char head[ID_BYTES + TIME_BYTES];
    uint8_t mac[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state state;
    const int head_n = snprintf(head, sizeof head, "%s.%" PRId64 ".", id, time_s);
    (void)crypto_auth_hmacsha256_init(&state, (const unsigned char *)s->secret, s->n);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)head,
                                        (unsigned long long)head_n);
    (void)crypto_auth_hmacsha256_update(&state, bytes, n);
    (void)crypto_auth_hmacsha256_final(&state, mac);
    (void)sodium_bin2base64(out, TEXT_BYTES, mac, sizeof mac, sodium_base64_VARIANT_ORIGINAL);
}

void
signature_headers(void *signature, const uint8_t *bytes, size_t n, struct delivery_headers *out)
{
    char id[ID_BYTES] = "", text[TEXT_BYTES];
    const int64_t now_s = now_ns(CLOCK_REALTIME) / SECOND_NS;
    json_t *event = json_loadb((const char *)bytes, n, 0, NULL);
    const char *found = json_string_value(json_object_get(event, "id"));
    (void)snprintf(id, sizeof id, "%s", found != NULL ? found : "");
    json_decref(event);
    sign(signature, id, now_s, bytes, n, text);
    (void)snprintf(out->line[0], sizeof out->line[0], "webhook-id: %s", id);
    (void)snprintf(out->line[1], sizeof out->line[1], "webhook-timestamp: %" PRId64, now_s);
    (void)snprintf(out->line[2], sizeof out->line[2], "webhook-signature: v1,%s", text);
    out->n = 3;
}

int
signature_open(const char *secret_file, struct signature **out, struct err *e)
{
    struct signature *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_sys(e, ENOMEM, "read %s", secret_file);
    int r = secret_file_read(secret_file, &s->secret, &s->n, e);
    if (r < 0) {
        signature_free(s);
        return r;
    }
    *out = s;
    return 0;
}

void
signature_free(struct signature *s)
{
    if (s == NULL)
        return;
    if (s->secret != NULL)
        sodium_memzero(s->secret, s->n);
    free(s->secret);
    free(s);
}
