// SPDX-License-Identifier: Apache-2.0
// The configuration file: any bytes are read or refused, never anything else.
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct config *c = config_default();
    struct err e;
    if (c != NULL)
        (void)config_parse(c, "fuzz", bytes, n, &e);
    config_free(c);
    return 0;
}
