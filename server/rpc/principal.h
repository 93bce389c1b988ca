// SPDX-License-Identifier: Apache-2.0
// Who calls, how that was proven, and what it may do. Made once per connection, when it is accepted; dispatch.c compares it
// with the scope that the schema gives to each method, and nothing else in the broker decides by it: a handler sees the
// tenant alone.
//
//   ipc   tenant "uid:N", proven by the kernel (SO_PEERCRED)        root and the broker's own account: every scope
//   tcp   tenant "tcp", all of them one, proven by nothing          everything but the operators' scopes
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct transport_peer;

enum principal_proof {
    PROOF_NONE, // whoever reaches the address
    PROOF_PEER, // the kernel's word about the process at the other end of a unix socket
};

// The scopes of the schema (options.proto), as bits. One that is not in the table of principal.c is the operators'.
enum scope {
    SCOPE_SANDBOX_READ,
    SCOPE_SANDBOX_WRITE,
    SCOPE_PROCESS_READ,
    SCOPE_PROCESS_RUN,
    SCOPE_SYSTEM_READ,
    SCOPE_TELEMETRY_READ,
    SCOPE_ANOMALY_READ,
    SCOPE_PROFILE_READ,  // operators: profiles belong to the host
    SCOPE_PROFILE_WRITE, // operators
    SCOPE_TENANTS_READ,  // operators: what belongs to other tenants
    SCOPE_UNKNOWN,       // operators
    SCOPES_N,
};

struct principal {
    char tenant[32]; // the key under which all that it makes is kept
    enum principal_proof proof;
    uint32_t scopes; // bits of enum scope
    // As the kernel says (PROOF_PEER), for the log; else 0.
    uint32_t uid, gid;
    int32_t pid;
};

// own_uid: of the broker.
void principal_of_peer(const struct transport_peer *peer, uint32_t own_uid, struct principal *out);

enum scope scope_find(const char *name);
bool principal_has(const struct principal *p, enum scope scope);
