// SPDX-License-Identifier: Apache-2.0
// A whole archive is hostile: it is unpacked into a folder of its own, and nothing may appear beside it.
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/tar.h"

struct input {
    const uint8_t *bytes;
    size_t n;
};

static ssize_t
read_input(void *cookie, void *bytes, size_t n, struct err *e)
{
    struct input *in = cookie;
    (void)e;
    size_t part = in->n < n ? in->n : n;
    memcpy(bytes, in->bytes, part);
    in->bytes += part;
    in->n -= part;
    return (ssize_t)part;
}

// Checksums are made right, so that the fuzzer gets behind them.
static void
fix_checksums(uint8_t *bytes, size_t n)
{
    for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
        unsigned sum = 0;
        uint8_t *b = bytes + at;
        if (memcmp(b + 257, "ustar", 5) != 0)
            continue;
        memset(b + 148, ' ', 8);
        for (int i = 0; i < TAR_BLOCK; i++)
            sum += b[i];
        (void)snprintf((char *)b + 148, 7, "%06o", sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct tar_bounds bounds = {.bytes = 1 << 16, .entries = 64};
    char path[] = "/tmp/stockade-fuzz-XXXXXX";
    char inside[64];
    char command[80];
    if (n > 16384 || mkdtemp(path) == NULL)
        return 0;
    (void)snprintf(inside, sizeof inside, "%s/in", path);
    (void)mkdir(inside, 0755);
    uint8_t *copy = malloc(n + 1);
    int auto_close folder = open(inside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy != NULL && folder >= 0) {
        memcpy(copy, bytes, n);
        fix_checksums(copy, n);
        struct input in = {copy, n};
        const struct tar_source source = {read_input, &in};
        struct tar_counts counts;
        struct err e;
        (void)tar_unpack(folder, true, &bounds, &source, &counts, &e);
    }
    free(copy);
    (void)snprintf(command, sizeof command, "rm -rf %s", inside);
    (void)!system(command);   // NOLINT(cert-env33-c): a path of ours
    assert(rmdir(path) == 0); // nothing lies beside "in"
    return 0;
}
