// SPDX-License-Identifier: Apache-2.0
// Profile files: image_read() reads any bytes or returns an error, and a file that was read is written with the same
// bytes.
//
// The field with the sum is appended to the input, because without it every input would be refused.
#include <assert.h>
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/anomaly/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
copy(void *cookie, const struct image_exe *exe, const struct watch_profile *bits)
{
    struct err e;
    assert(strlen(exe->path) < sizeof exe->path);
    assert(image_add(cookie, exe, bits, &e) == 0);
}

static void
write_again(const uint8_t *file, size_t n, struct image_head *head)
{
    struct err e;
    struct image_head again;
    uint8_t *bytes = NULL;
    size_t bytes_n = 0;
    struct image_writer *w = image_begin(head, &e);
    assert(w != NULL);
    assert(image_read(file, n, head, copy, w, &e) == 0);
    assert(image_end(w, &bytes, &bytes_n, &e) == 0);
    assert(image_read(bytes, bytes_n, &again, NULL, NULL, &e) == 0);
    assert(again.runs == head->runs && again.version == head->version && again.exes == head->exes);
    assert(again.frozen == head->frozen && again.own_files == head->own_files);
    assert(again.frozen_s == head->frozen_s && strcmp(again.template, head->template) == 0);
    free(bytes);
    image_free(w);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const uint8_t field[] = {15 << 3 | 2, 32};
    struct image_head head;
    struct err e;
    if (n > 65536 || sodium_init() < 0)
        return 0;
    const size_t summed = n + sizeof field;
    uint8_t *file = malloc(summed + 32);
    assert(file != NULL);
    memcpy(file, bytes, n);
    memcpy(file + n, field, sizeof field);
    (void)crypto_generichash(file + summed, 32, file, summed, NULL, 0);
    (void)image_read(bytes, n, &head, NULL, NULL, &e);
    if (image_read(file, summed + 32, &head, NULL, NULL, &e) == 0)
        write_again(file, summed + 32, &head);
    free(file);
    return 0;
}
