// SPDX-License-Identifier: Apache-2.0
// Responses of a broker: messages to plain structs, texts to a terminal, results to sentences and JSON.
//
// The first byte picks the message, the rest is its wire form.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/bill.h"
#include "client/cli/json.h"
#include "client/cli/options.h"
#include "client/cli/text.h"
#include "client/errors.h"
#include "client/results.h"
#include "proto/arena.h"
#include "proto/wire.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

static FILE *nowhere;

static void
use_result(struct arena *a, const ProtobufCMessage *m)
{
    struct stockade_result r;
    char sentence[64];
    if (!result_from(&r, a, (const Stockade__V1__Result *)m))
        return;
    bill_print(command_find("run"), NULL, &r, nowhere);
    (void)bill_sentence(command_find("run"), &r, sentence, sizeof sentence);
    json_decref(json_of_result(&r));
}

static void
use_sandbox(struct arena *a, const ProtobufCMessage *m)
{
    struct stockade_sandbox box;
    if (sandbox_from(&box, a, (const Stockade__V1__Sandbox *)m))
        json_decref(json_of_sandbox(&box));
}

static void
use_process(struct arena *a, const ProtobufCMessage *m)
{
    struct stockade_process p;
    if (process_from(&p, a, (const Stockade__V1__Process *)m))
        json_decref(json_of_process(&p));
}

static void
use_info(struct arena *a, const ProtobufCMessage *m)
{
    struct stockade_info i;
    if (info_from(&i, a, (const Stockade__V1__InfoResponse *)m))
        json_decref(json_of_info(&i));
}

static void
use_status(struct arena *a, const ProtobufCMessage *m)
{
    struct stockade_error e;
    char text[16];
    (void)a;
    if (error_from_status(&e, (const Stockade__V1__Status *)m) >= 0)
        abort(); // an error is never taken for success
    (void)text_clean(e.text, text, sizeof text);
    json_decref(json_of_error(&e));
}

static const struct target {
    const ProtobufCMessageDescriptor *type;
    void (*use)(struct arena *a, const ProtobufCMessage *m);
} targets[] = {
    {&stockade__v1__result__descriptor, use_result},
    {&stockade__v1__sandbox__descriptor, use_sandbox},
    {&stockade__v1__process__descriptor, use_process},
    {&stockade__v1__info_response__descriptor, use_info},
    {&stockade__v1__status__descriptor, use_status},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "we");
    if (n == 0 || nowhere == NULL)
        return 0;
    const struct target *t = &targets[bytes[0] % (sizeof targets / sizeof targets[0])];
    struct arena *a = arena_new(WIRE_ARENA_BYTES_MAX);
    ProtobufCMessage *m = NULL;
    struct err e;
    if (a != NULL && wire_unpack(t->type, bytes + 1, n - 1, a, &m, &e) == 0)
        t->use(a, m);
    arena_free(a);
    return 0;
}
