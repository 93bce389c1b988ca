// SPDX-License-Identifier: Apache-2.0
// Files of cgroups: any bytes are a figure or an error. The input is copied to its exact size, so that reading beyond
// it is detected.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/sandbox/cgstat.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n > 0 ? n : 1);
    uint64_t v = 0;
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    (void)cgstat_parse_number(text, n, &v);
    (void)cgstat_parse_key(text, n, "oom_kill", &v);
    (void)cgstat_parse_sum(text, n, "rbytes", &v);
    (void)cgstat_parse_sum(text, n, "Read", &v);
    free(text);
    return 0;
}
