// SPDX-License-Identifier: Apache-2.0
// The caller: its identity, how it was proven, and its rights. Made once per connection, when it is accepted.
// dispatch.c compares it with the scope that the schema requires for each method. Nothing else in the broker decides
// by it: handlers see only the tenant.
//
//   ipc   tenant "uid:N", proven by the kernel (SO_PEERCRED)        root and the broker's own account: all scopes
//   ipc   the account that reads for the exporters                      reads metrics, events and findings of all tenants
//   tcp   tenant "tcp", one for all callers, without proof          all scopes except the operators'
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct transport_peer;

enum principal_proof {
    PROOF_NONE, // anyone who can connect to the address
    PROOF_PEER, // the kernel identified the process at the other end of a unix socket
};

// The scopes of the schema (options.proto), as bits. A scope that is not in the table of principal.c is an operators'
// scope.
enum scope {
    SCOPE_SANDBOX_READ,
    SCOPE_SANDBOX_WRITE,
    SCOPE_PROCESS_READ,
    SCOPE_PROCESS_RUN,
    SCOPE_FILE_READ,
    SCOPE_FILE_WRITE,
    SCOPE_VOLUME_READ,
    SCOPE_VOLUME_WRITE,
    SCOPE_SYSTEM_READ,
    SCOPE_TELEMETRY_READ,
    SCOPE_ANOMALY_READ,
    SCOPE_PROFILE_READ,  // operators: profiles belong to the host
    SCOPE_PROFILE_WRITE, // operators
    SCOPE_TENANTS_READ,  // operators: objects of other tenants
    SCOPE_METRICS_READ,  // operators: the metrics of the broker, which cover all tenants
    SCOPE_UNKNOWN,       // operators
    SCOPES_N,
};

struct principal {
    char tenant[32]; // the name under which its objects are stored
    enum principal_proof proof;
    uint32_t scopes; // bits of enum scope
    // From the kernel (PROOF_PEER), for the log; otherwise 0.
    uint32_t uid, gid;
    int32_t pid;
};

// own_uid: uid of the broker.
void principal_of_peer(const struct transport_peer *peer, uint32_t own_uid, struct principal *out);

// Replaces its rights by those of a reader: what an exporter of metrics and events needs, of all tenants, and nothing that
// changes anything or shows the output of a job.
void principal_make_reader(struct principal *p);

enum scope scope_find(const char *name);
bool principal_has(const struct principal *p, enum scope scope);

// Whether there can be a tenant of this name, or it means all of them ("*").
bool principal_is_tenant(const char *name);
