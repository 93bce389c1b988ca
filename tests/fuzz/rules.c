// SPDX-License-Identifier: Apache-2.0
// A schema from anywhere: it is read into tables, or refused with a reason.
#include <assert.h>

#include "proto/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct rules *r = NULL;
    if (rules_new(data, size, &r, &e) != 0) {
        assert(r == NULL && e.code != ERR_OK && e.text[0] != '\0');
        return 0;
    }
    const struct method_rules *m;
    for (size_t i = 0; (m = rules_method_at(r, i)) != NULL; i++)
        assert(rules_method(r, m->path) != NULL && m->scope[0] != '\0');
    (void)rules_message(r, "stockade.v1.Frame");
    rules_free(r);
    return 0;
}
