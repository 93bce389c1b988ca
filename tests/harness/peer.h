// SPDX-License-Identifier: Apache-2.0
// A hostile peer for tests of the library's connections: a socket, a thread, and a script for its behaviour on each
// connection. tests/flow tests the library with the real broker.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/stockade.h"
#include "proto/arena.h"
#include "proto/wire.h"
#include "stockade/v1/wire.pb-c.h"

#define METHOD "/stockade.test.EchoService/Echo"

struct peer;

typedef void script(struct peer *p, int fd);

struct peer {
    char folder[64], path[96], address[112];
    int listener;
    pthread_t thread;
    script *script;
    int connections; // number of connections to accept, one after the other
    sem_t closed;    // posted for each accepted connection
    uint32_t id;     // id of the last frame that was read
    uint32_t credit; // its credit
    char key[64];    // its idempotency key
    int kind;
};

void peer_write(int fd, const void *bytes, size_t n);
void peer_send(int fd, uint32_t id, const Stockade__V1__Frame *f);
void peer_say(int fd, uint32_t id, int kind, const void *payload, size_t n);

// Reads one frame of the library.
bool peer_frame(struct peer *p, int fd);
void peer_hello(int fd);
void peer_start(struct peer *p, script *s, int connections);
void peer_stop(struct peer *p);

// For a peer that sends its hello, with a timeout for slow machines.
struct stockade *open_handle(const struct peer *p);
int ask(struct stockade *s, uint32_t deadline_ms, const struct stockade_bytes **out,
        struct stockade_error *e);

// Makes one unary call against a script, and returns its error.
struct stockade_error fails_within(script *fn, uint32_t connect_timeout_ms, uint32_t deadline_ms);
struct stockade_error fails(script *fn, uint32_t deadline_ms);

// Sends nothing until the library disconnects.
void script_silent(struct peer *p, int fd);
