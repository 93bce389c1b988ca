// SPDX-License-Identifier: Apache-2.0
// What a receiver of OTLP answers, and the header Retry-After: bounded numbers and texts come of any bytes; and trace contexts.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/exporter/otlp.h"
#include "client/exporter/post.h"
#include "proto/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { DAY_MS = 86400000 };
    char why[64] = "";
    char *text = calloc(1, size + 1);
    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    assert(otlp_rejected(data, size, why, sizeof why) <= INT64_MAX);
    assert(memchr(why, '\0', sizeof why) != NULL);
    assert(post_retry_after_ms(text, 1700000000) <= DAY_MS);
    if (traceparent_valid(text))
        assert(strlen(text) == TRACEPARENT_LENGTH && text[2] == '-');
    free(text);
    return 0;
}
