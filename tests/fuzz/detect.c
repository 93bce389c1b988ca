// SPDX-License-Identifier: Apache-2.0
// A file of detection rules and events: any bytes are read or refused, and whatever was read is compared with events without a fault.
// The first line of the input is a text for the fields of the events; the rest is the file. If the text begins with '!', the file comes
// after the broker's tripwires, and may change them.
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
on_tripwire(void *cookie, const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    char text[DETECT_TEXT];
    uint32_t *findings = cookie;
    assert(i < detect_count(d) && detect_tripwire_subject(d, i, ev) != 0);
    (void)detect_tripwire_value(d, i, ev);
    assert(strlen(detect_tripwire_text(d, i, ev, *findings, 1000, text)) < DETECT_TEXT);
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
        ev.sentence = i % 3 == 0 ? text : NULL;
        detect_tripwires(d, &ev, on_tripwire, &findings);
        detect_tripwires_dry(d, &ev, on_found, &findings);
    }
}

// What is shown of a rule is whole.
static void
show(const struct detect *d, uint32_t i)
{
    const size_t n = detect_definition(d, i, NULL, 0);
    char *text = malloc(n + 1);
    if (text == NULL)
        return;
    assert(detect_definition(d, i, text, n + 1) == n && strlen(text) == n);
    free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const uint8_t seed[16] = {0};
    static bool ready;
    struct detect_file files[2] = {detect_tripwire_file(), {.name = "fuzz"}}, *file = &files[1];
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
    file->text = rest != NULL ? rest + 1 : "";
    file->n = rest != NULL ? n - (size_t)(rest + 1 - text) : 0;
    if (rest != NULL)
        *rest = '\0';
    const bool later = text[0] == '!';
    if (detect_read(later ? files : file, later ? 2 : 1,
                    later ? &detect_bounds_host : &detect_bounds_tenant, seed, &d, &e) == 0) {
        give(d, text);
        for (uint32_t i = 0; detect_view(d, i, &v); i++) {
            assert(detect_find(d, v.rule->id) == (int)i);
            show(d, i);
        }
    }
    detect_free(d);
    free(text);
    return 0;
}
