// SPDX-License-Identifier: Apache-2.0
// Messages of an interpreter: every frame of the input is read as the broker reads it.
#include <stdlib.h>
#include <string.h>

#include "server/code/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static char out[3 * KERNEL_PAYLOAD_MAX + 3];
    struct kernel_frame f;
    struct kernel_error k;
    struct err e;
    while (n > 0) {
        uint8_t *copy = malloc(n); // so that a read beyond it is found
        if (copy == NULL)
            return 0;
        memcpy(copy, bytes, n);
        int used = kernel_frame_read(copy, n, &f, &e);
        if (used > 0 && (f.n > KERNEL_PAYLOAD_MAX || strlen(f.mime) > KERNEL_MIME_MAX))
            abort();
        if (used > 0 && f.kind == KERNEL_ERROR)
            kernel_error_read(f.payload, f.n, out, &k);
        free(copy);
        if (used <= 0)
            return 0;
        bytes += used;
        n -= (size_t)used;
    }
    return 0;
}
