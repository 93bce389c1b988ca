// SPDX-License-Identifier: Apache-2.0
// A file of detection rules and events: any bytes are read or refused, and whatever was read is compared with events without a fault.
// The first line of the input is a text for the fields of the events; the rest is the file.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/detect.h"
#include "proto/utf8.h"
#include "proto/validate.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
on_found(void *cookie, const struct detect_finding *f)
{
    uint32_t *findings = cookie;
    assert(f->why == DETECT_REPEATED || f->text != NULL);
    assert(strlen(f->text) < DETECT_TEXT && f->rule->id[0] != '\0');
    for (size_t i = 0, one = 0; f->text[i] != '\0'; i += one) {
        one = utf8_decode(f->text + i, UTF8_MAX, NULL);
        assert(one > 0 && (unsigned char)f->text[i] >= ' ');
    }
    ++*findings;
}

static void
give(struct detect *d, const char *text)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__Flow f = STOCKADE__V1__FLOW__INIT;
    Stockade__V1__Execution x = STOCKADE__V1__EXECUTION__INIT;
    struct detect_event ev;
    uint32_t findings = 0;
    m.process_id = m.sandbox_id = m.comm = text;
    f.destination = f.name = x.path = x.arguments = text;
    for (uint32_t i = 0; i < 400; i++) {
        m.kind = (Stockade__V1__EventKind)(i % 130);
        m.detail_case =
            i % 2 == 0 ? STOCKADE__V1__EVENT__DETAIL_FLOW : STOCKADE__V1__EVENT__DETAIL_EXECUTION;
        if (i % 2 == 0)
            m.flow = &f;
        else
            m.execution = &x;
        m.process_id = text + i % (strlen(text) + 1);
        detect_fill(&m, 1000000000 + i * UINT64_C(20000000), &ev);
        detect_event(d, &ev, on_found, &findings);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const uint8_t seed[16] = {0};
    static bool ready;
    struct detect_file file = {.name = "fuzz"};
    struct detect *d = NULL;
    struct detect_view v;
    struct err e;
    if (!ready && validate_init(&e) < 0)
        abort();
    ready = true;
    char *text = calloc(1, n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    char *rest = memchr(text, '\n', n);
    file.text = rest != NULL ? rest + 1 : "";
    file.n = rest != NULL ? n - (size_t)(rest + 1 - text) : 0;
    if (rest != NULL)
        *rest = '\0';
    if (detect_read(&file, 1, &detect_bounds_tenant, seed, &d, &e) == 0) {
        give(d, text);
        for (uint32_t i = 0; detect_view(d, i, &v); i++)
            assert(detect_find(d, v.rule->id) == (int)i);
    }
    detect_free(d);
    free(text);
    return 0;
}
