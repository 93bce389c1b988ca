// SPDX-License-Identifier: Apache-2.0
// The name server of the relay's tests: a process with a table of names, some with wrong answers, that counts its
// queries; and queries like those of a job's library.
#pragma once

#include "tests/harness/relay_flow.h"

enum {
    WORLD_TYPE_A = 1,
    WORLD_TYPE_CNAME = 5,
    WORLD_TYPE_AAAA = 28,
    WORLD_MESSAGE = 1500,
    WORLD_PORTS = 512
};

struct world {
    pid_t pid;
    volatile unsigned *asked; // shared with the server; after it, the ports of the last queries
};

extern struct world world;

// The server's answer; all names below "many.test" exist.
size_t world_answer(const uint8_t *query, uint8_t *out);
void world_start(void);
void world_stop(void);
size_t world_query(const char *name, unsigned type, uint8_t out[WORLD_MESSAGE]);

struct world_answer {
    int rcode; // -1: no answer
    unsigned answers;
    uint8_t address[16];
};

struct world_answer world_read(const uint8_t *bytes, size_t n, const uint8_t *query,
                               size_t query_n);

// Sends a query over a job's UDP socket to port 53 (box_connect with any address).
struct world_answer world_ask(int fd, const char *name, unsigned type);
