// SPDX-License-Identifier: Apache-2.0
// A stock nng REQ socket makes unary calls: it knows nothing of frames beyond what it is given to send.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>

#include "stockade/v1/system_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

#include "proto/wire.h"

static pid_t server;
static char folder[] = "/tmp/stockade-req-XXXXXX";
static char ipc[64];
static char tcp[128];

static int
start_server(void **state)
{
    (void)state;
    int out[2];
    char program[512];
    char line[256];
    assert_non_null(getenv("STOCKADE_BUILD"));
    assert_non_null(mkdtemp(folder));
    (void)snprintf(ipc, sizeof ipc, "ipc://%s/s", folder);
    (void)snprintf(program, sizeof program, "%s/tests/echo/echo-server", getenv("STOCKADE_BUILD"));
    assert_int_equal(pipe(out), 0);
    server = fork(); // before nng starts its threads
    assert_true(server >= 0);
    if (server == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        (void)execl(program, program, ipc, "tcp://127.0.0.1:0", (char *)NULL);
        _exit(127);
    }
    (void)close(out[1]);
    FILE *lines = fdopen(out[0], "r");
    assert_non_null(lines);
    while (fgets(line, sizeof line, lines) != NULL && strcmp(line, "ready\n") != 0)
        if (strstr(line, "tcp://") != NULL)
            (void)sscanf(line, "listening %127s", tcp);
    (void)fclose(lines);
    assert_true(tcp[0] != '\0');
    return 0;
}

static int
stop_server(void **state)
{
    (void)state;
    int status = 0;
    (void)kill(server, SIGINT);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    (void)rmdir(folder);
    return 0;
}

// Sends a frame and waits for the answer, as any user of a REQ socket would. Owned by the caller: free() *answer.
static void
exchange(nng_socket s, const Stockade__V1__Frame *f, uint8_t **answer, size_t *n)
{
    nng_msg *m = NULL;
    assert_int_equal(nng_msg_alloc(&m, stockade__v1__frame__get_packed_size(f)), 0);
    (void)stockade__v1__frame__pack(f, nng_msg_body(m));
    assert_int_equal(nng_sendmsg(s, m, 0), 0);
    assert_int_equal(nng_recvmsg(s, &m, 0), 0);
    *n = nng_msg_len(m);
    *answer = malloc(*n + 1);
    memcpy(*answer, nng_msg_body(m), *n);
    nng_msg_free(m);
}

static void
calls_over(const char *address)
{
    nng_socket s;
    Stockade__V1__Frame call = STOCKADE__V1__FRAME__INIT;
    uint8_t *bytes = NULL;
    size_t n = 0;
    assert_int_equal(nng_req0_open(&s), 0);
    assert_int_equal(nng_socket_set_ms(s, NNG_OPT_RECVTIMEO, 10000), 0);
    assert_int_equal(nng_dial(s, address, NULL, 0), 0);
    call.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    for (int i = 0; i < 100; i++) {
        struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
        struct err e = {0};
        ProtobufCMessage *m = NULL;
        call.method = i % 2 ? "/stockade.v1.HealthService/Check" : "/stockade.v1.Nothing/AtAll";
        exchange(s, &call, &bytes, &n);
        assert_int_equal(wire_unpack(&stockade__v1__frame__descriptor, bytes, n, a, &m, &e), 0);
        const Stockade__V1__Frame *f = (const Stockade__V1__Frame *)m;
        assert_int_equal(f->kind, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END);
        if (i % 2 == 0) {
            assert_int_equal(f->status->code, ERR_UNIMPLEMENTED);
        } else {
            assert_true(f->status == NULL);
            const ProtobufCMessageDescriptor *type =
                &stockade__v1__health_service_check_response__descriptor;
            assert_int_equal(wire_unpack(type, f->payload.data, f->payload.len, a, &m, &e), 0);
            assert_int_equal(((const Stockade__V1__HealthServiceCheckResponse *)m)->status,
                             STOCKADE__V1__SERVING_STATUS__SERVING_STATUS_SERVING);
        }
        free(bytes);
    }
    assert_int_equal(nng_close(s), 0);
}

static void
a_stock_req_socket_makes_unary_calls_over_ipc(void **state)
{
    (void)state;
    calls_over(ipc);
}

static void
a_stock_req_socket_makes_unary_calls_over_tcp(void **state)
{
    (void)state;
    calls_over(tcp);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stock_req_socket_makes_unary_calls_over_ipc),
        cmocka_unit_test(a_stock_req_socket_makes_unary_calls_over_tcp),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
