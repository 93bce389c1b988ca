// SPDX-License-Identifier: Apache-2.0
// Profiles as a file: whatever comes, image_read() reads it or says why not, and what it read is written the same way.
//
// The last 32 bytes are put right first, or the sum would keep everything out.
#include <assert.h>
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/anomaly_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
copy(void *cookie, const struct image_exe *exe, const struct watch_profile *bits)
{
    struct err e;
    assert(image_count(bits) == exe->bits_n);
    assert(strlen(exe->path) < sizeof exe->path);
    (void)image_add(cookie, exe, bits, &e);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct image_head head;
    struct image_writer w = {0};
    struct err e;
    if (n > 65536 || sodium_init() < 0)
        return 0;
    uint8_t *file = malloc(n + 32);
    assert(file != NULL);
    memcpy(file, bytes, n);
    (void)crypto_generichash(file + n, 32, file, n, NULL, 0);
    if (image_read(bytes, n, &head, NULL, NULL, &e) == 0)
        assert(head.exes <= IMAGE_EXES_MAX);
    if (image_read(file, n + 32, &head, NULL, NULL, &e) == 0) {
        struct image_head again;
        assert(image_begin(&w, &head, &e) == 0);
        assert(image_read(file, n + 32, &head, copy, &w, &e) == 0);
        assert(image_end(&w, &e) == 0);
        assert(image_read(w.bytes, w.n, &again, NULL, NULL, &e) == 0);
        assert(memcmp(&again, &head, sizeof head) == 0);
    }
    free(w.bytes);
    free(file);
    return 0;
}
