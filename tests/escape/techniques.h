// SPDX-License-Identifier: Apache-2.0
// Ways to reach an address that a policy forbids, one function each. They return the result of the call; only the
// other end knows whether anything arrived. Shared by the test of the programs (tests/priv/net_verdicts.c) and by the
// jobs in this folder.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

struct goal {
    struct sockaddr_in v4;       // forbidden
    struct sockaddr_in6 v6;      // forbidden
    struct sockaddr_in allowed4; // the same ports, allowed by an allowlist
    struct sockaddr_in6 allowed6;
};

#define TECHNIQUE_MARK "mark"

struct technique {
    const char *name;
    int (*run)(const struct goal *g); // 0: the call succeeded; otherwise the errno
    bool needs_root;                  // in its network namespace
};

extern const struct technique *const technique_tables[]; // terminated by NULL; each table by {0}

// NULL: none.
const struct technique *technique_called(const char *name);
