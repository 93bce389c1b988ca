// SPDX-License-Identifier: Apache-2.0
// A record of kept files: any bytes are read or refused, and what is read is written as it was. The bytes get a right sum, too,
// because no other change would pass it.
#include <assert.h>
#include <sodium.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/rpc/tenants.h"
#include "server/store/private.h"

enum { SUM_BYTES = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
write_again(struct file_content *c)
{
    struct tenants all = {0};
    struct stored_layer layer[STORE_LAYERS_MAX];
    struct file_content *again = calloc(1, sizeof *again);
    struct err e;
    size_t n = 0;
    for (uint32_t i = 0; i < c->r.layers_n; i++) {
        layer[i] =
            (struct stored_layer){.bytes = c->layer[i].bytes, .entries = c->layer[i].entries};
        memcpy(layer[i].digest, c->layer[i].digest, sizeof layer[i].digest);
        c->r.layer[i] = &layer[i];
    }
    c->r.tenant = tenant_hold(&all, c->tenant);
    assert(again != NULL && c->r.tenant != NULL);
    uint8_t *bytes = file_pack(&c->r, NULL, &n, &e);
    assert(bytes != NULL && file_unpack(bytes, n, again, &e) == 0);
    assert(strcmp(again->r.id, c->r.id) == 0 && strcmp(again->r.name, c->r.name) == 0);
    assert(strcmp(again->r.sandbox, c->r.sandbox) == 0 && strcmp(again->tenant, c->tenant) == 0);
    assert(strcmp(again->r.template, c->r.template) == 0 && again->r.kind == c->r.kind);
    assert(again->r.layers_n == c->r.layers_n && again->r.about_n == c->r.about_n);
    assert(memcmp(again->layer, c->layer, c->r.layers_n * sizeof c->layer[0]) == 0);
    assert(c->r.about_n == 0 || memcmp(again->r.about, c->r.about, c->r.about_n) == 0);
    free(again->r.about);
    free(again);
    free(bytes);
    tenant_drop(c->r.tenant);
}

static void
read_it(const uint8_t *bytes, size_t n)
{
    struct file_content *c = calloc(1, sizeof *c);
    struct err e;
    assert(c != NULL);
    if (file_unpack(bytes, n, c, &e) == 0) {
        assert(c->r.layers_n <= STORE_LAYERS_MAX && c->r.kind < STORE_KINDS_N);
        assert(c->r.id[0] != '\0' && c->tenant[0] != '\0');
        write_again(c);
    } else {
        assert(c->r.about == NULL &&
               (e.code == ERR_DATA_LOSS || e.code == ERR_FAILED_PRECONDITION));
    }
    free(c->r.about);
    free(c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    read_it(bytes, n);
    if (n < SUM_BYTES)
        return 0;
    uint8_t *copy = malloc(n);
    assert(copy != NULL);
    memcpy(copy, bytes, n);
    (void)crypto_generichash(copy + n - SUM_BYTES, SUM_BYTES, copy, n - SUM_BYTES, NULL, 0);
    read_it(copy, n);
    free(copy);
    return 0;
}
