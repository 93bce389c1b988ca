// SPDX-License-Identifier: Apache-2.0
// A stock nng REQ socket: one request from stdin, one reply to stdout.
//
//   req ADDRESS < body > body        ADDRESS as nng has it: ipc:///path or tcp://host:port
//
// nng puts the request id before the body and sends the request again when its pipe is dropped, which is what the
// test wants to see. Exit code 1: no reply within 20 s.
#include <stdio.h>
#include <stdlib.h>

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>

enum { BODY_BYTES_MAX = 1 << 20, TIMEOUT_MS = 20000, RECONNECT_MS = 20 };

static void
check(int code, const char *what)
{
    if (code == 0)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, nng_strerror(code));
    exit(1);
}

int
main(int argc, char **argv)
{
    static char body[BODY_BYTES_MAX];
    nng_socket s;
    nng_msg *m;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: req ADDRESS < body > body\n");
        return 2;
    }
    size_t n = fread(body, 1, sizeof body, stdin);
    check(nng_req0_open(&s), "open");
    check(nng_socket_set_ms(s, NNG_OPT_RECVTIMEO, TIMEOUT_MS), "set the timeout");
    check(nng_socket_set_ms(s, NNG_OPT_SENDTIMEO, TIMEOUT_MS), "set the timeout");
    check(nng_socket_set_ms(s, NNG_OPT_RECONNMINT, RECONNECT_MS), "set the reconnect time");
    check(nng_socket_set_size(s, NNG_OPT_RECVMAXSZ, BODY_BYTES_MAX), "set the size");
    check(nng_dial(s, argv[1], NULL, 0), "dial");
    check(nng_msg_alloc(&m, 0), "allocate");
    check(nng_msg_append(m, body, n), "append");
    check(nng_sendmsg(s, m, 0), "send");
    check(nng_recvmsg(s, &m, 0), "receive");
    (void)fwrite(nng_msg_body(m), 1, nng_msg_len(m), stdout);
    nng_msg_free(m);
    check(nng_close(s), "close");
    return 0;
}
