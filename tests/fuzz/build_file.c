// SPDX-License-Identifier: Apache-2.0
// The file of `stockade template build`: any bytes are read or refused, never anything else.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/build_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct build_file f = {0};
    struct err e;
    if (build_file_parse("fuzz", bytes, n, &f, &e) == 0) {
        assert(f.definition->n_steps > 0 && f.definition->n_steps <= BUILD_STEPS_MAX);
        for (size_t i = 0; i < f.definition->n_steps; i++)
            assert(f.line[i] > 0 && (f.definition->steps[i]->run[0] != '\0') !=
                                        (f.definition->steps[i]->copy != NULL));
    }
    build_file_free(&f);
    return 0;
}
