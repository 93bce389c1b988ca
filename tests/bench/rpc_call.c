// SPDX-License-Identifier: Apache-2.0
// RPC through libstockade: BYTES in each direction, one call in flight, like the calls of a C program.
//
//   rpc_call ADDRESS METHOD BYTES COUNT
//
// METHOD has a request and a response whose field 1 is `bytes`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "client/calls.h"

// Field 1, wire type 2, length, bytes.
static uint8_t *
make_request(size_t bytes, size_t *n)
{
    uint8_t *request = malloc(bytes + 8);
    if (request == NULL)
        bench_die("out of memory");
    *n = 0;
    request[(*n)++] = 0x0a;
    for (size_t left = bytes; left > 0 || *n == 1; left >>= 7)
        request[(*n)++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    memset(request + *n, 'x', bytes);
    *n += bytes;
    return request;
}

static int
on_answer(void *cookie, struct delivery *d, struct stockade_error *e)
{
    (void)e;
    *(size_t *)cookie = d->n;
    return 0;
}

static double
one_call(struct stockade *s, const struct call_spec *spec)
{
    static const struct call_sink sink = {.on_message = on_answer};
    struct stockade_error e;
    struct call_spec with_sink = *spec;
    size_t n = 0;
    with_sink.sink = &sink;
    with_sink.cookie = &n;
    double from = bench_now();
    if (call_do(s, &with_sink, &e) < 0)
        bench_die("%s", e.text);
    double took = bench_now() - from;
    if (n != spec->request_n)
        bench_die("an answer that is no echo");
    return took;
}

int
main(int argc, char **argv)
{
    if (argc < 5)
        bench_die("usage: rpc_call ADDRESS METHOD BYTES COUNT");
    size_t bytes = strtoul(argv[3], NULL, 10);
    long count = strtol(argv[4], NULL, 10);
    if (bytes > 65536 || count < 1)
        bench_die("bytes to 65536, at least one call");
    struct stockade_error e;
    struct stockade *s = NULL;
    struct stockade_options options = {.size = sizeof options, .address = argv[1]};
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    struct call_spec spec = {.method = argv[2]};
    uint8_t *request = make_request(bytes, &spec.request_n);
    spec.request = request;
    struct samples samples = {.row = "stockade, libstockade over unix"};
    for (long i = 0; i < count / 10; i++)
        (void)one_call(s, &spec);
    double from = bench_now();
    for (long i = 0; i < count; i++)
        samples_add(&samples, one_call(s, &spec));
    char name[64], more[64];
    (void)snprintf(name, sizeof name, "echo %zu B, 1 in flight", bytes);
    (void)snprintf(more, sizeof more, ", \"per_second\": %.0f",
                   (double)count / ((bench_now() - from) / 1e6));
    samples_print(&samples, name, more);
    stockade_close(s);
    free(request);
    return 0;
}
