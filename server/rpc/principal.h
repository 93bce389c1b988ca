// SPDX-License-Identifier: Apache-2.0
// The caller: its identity, how it was proven, and its rights. Made once per connection, when it is accepted, and again for each
// call with a credential. dispatch.c compares it with the scope that the schema requires for each method. Nothing else in the
// broker decides by it: handlers see only the tenant, except those that make credentials.
//
//   ipc          tenant of the first row of the configuration that matches its uid or a group of its, or "uid:N"; proven by the
//                kernel (SO_PEERCRED)                               root and the broker's own account: all scopes
//   ipc          the account that reads for the exporters           reads metrics, events and findings of all tenants
//   tcp, ws      none, so each call needs a credential, unless the configuration permits calls without (rpc.anonymous): then
//                tenant "tcp", one for all callers, without proof   all scopes except the operators'
//   tls          the tenant and the scopes of its certificate (tls.clients); without one: tenant "tls", and each call needs a
//                credential
//   credential   what it says (server/access)
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport_peer;

enum {
    PRINCIPAL_TENANT = 32,    // bytes of a tenant's name, with its end
    PRINCIPAL_ROWS_MAX = 128, // of the configuration
    PRINCIPAL_SCOPES_TEXT = 512,
    PRINCIPAL_ADDRESS = 46,    // INET6_ADDRSTRLEN
    PRINCIPAL_CREDENTIAL = 49, // ID_TEXT_MAX and its end
    PRINCIPAL_NAME = 96,       // tenant, kind, and credential
};

enum principal_proof {
    PROOF_NONE,        // anyone who can connect to the address
    PROOF_PEER,        // the kernel identified the process at the other end of a unix socket
    PROOF_KEY,         // an API key
    PROOF_TOKEN,       // a capability token, whose caveats narrow its scopes further
    PROOF_CERTIFICATE, // TLS: a certificate that the configuration lists
    PROOF_JWT,         // a JSON Web Token of an issuer that the configuration lists
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
    SCOPE_ANOMALY_WRITE, // acknowledges and silences findings
    SCOPE_RULE_READ,
    SCOPE_RULE_WRITE,
    SCOPE_KEY_READ,
    SCOPE_KEY_WRITE, // makes and revokes credentials
    SCOPE_AUDIT_READ,
    SCOPE_APPROVAL_READ,
    SCOPE_APPROVAL_WRITE,  // asks for approvals
    SCOPE_APPROVAL_ANSWER, // operators, and whom they give it to: answers them
    SCOPE_PROFILE_READ,    // operators: profiles belong to the host
    SCOPE_PROFILE_WRITE,   // operators
    SCOPE_TENANTS_READ,    // operators: objects of other tenants
    SCOPE_TENANTS_WRITE,   // operators: credentials of other tenants
    SCOPE_METRICS_READ,    // operators: the metrics of the broker, which cover all tenants
    SCOPE_ADMIN_WRITE,     // operators: the broker's own state
    SCOPE_TOKEN_EXCHANGE,  // holders of a JSON Web Token, and operators
    SCOPE_UNKNOWN,         // operators
    SCOPES_N,
};
_Static_assert(SCOPES_N <= 32, "one bit each");

struct principal {
    char tenant[PRINCIPAL_TENANT]; // the name under which its objects are stored
    enum principal_proof proof;
    uint32_t scopes; // bits of enum scope
    // Of a credential: which one, for log lines and for who narrows it further; otherwise zeros.
    uint8_t credential[16];
    // Of a JSON Web Token: the rights of the token that it can be exchanged for, and how long that is valid at most.
    uint32_t granted;
    uint64_t granted_ms;
    // Of a key: its id; of a token: that of its first block; of a JSON Web Token: the beginning of its subject; otherwise "".
    char credential_id[PRINCIPAL_CREDENTIAL];
    char address[PRINCIPAL_ADDRESS]; // tcp, tls: of the peer; ipc, ws: ""
    // Of a connection: "ipc", "tcp", "tls" or "ws"; of a credential: NULL. Constant.
    const char *transport;
    // From the kernel (PROOF_PEER), for the log; otherwise 0.
    uint32_t uid, gid;
    int32_t pid;
};

// Which tenant a uid or a group is, and what it may do. The first row that matches counts.
struct principal_row {
    bool group;
    uint32_t id;
    char tenant[PRINCIPAL_TENANT];
    uint32_t scopes;
};
struct principal_map {
    uint32_t n;
    struct principal_row row[PRINCIPAL_ROWS_MAX];
};

// The address of a peer as text, such as "192.0.2.1"; "": not known, as of a websocket.
void principal_address(const struct transport_peer *peer, char out[PRINCIPAL_ADDRESS]);

// own_uid: uid of the broker. Root and this account have their own rights; no row matches them.
void principal_of_peer(const struct transport_peer *peer, uint32_t own_uid,
                       const struct principal_map *map, struct principal *out);

// Replaces its rights by those of a reader: what an exporter of metrics and events needs, of all tenants, and nothing that
// changes anything or shows the output of a job.
void principal_make_reader(struct principal *p);

// The name under which it appears in approvals: TENANT/KIND:ID, such as "team/key:1f0c..."; "uid:1000" for a peer whose tenant is its
// uid; "tcp" for callers without proof.
void principal_name(const struct principal *p, char out[PRINCIPAL_NAME]);

enum scope scope_find(const char *name);
bool principal_has(const struct principal *p, enum scope scope);

// All scopes but the operators'.
uint32_t scopes_usual(void);
// Of these, those that make no credentials.
uint32_t scopes_without_credentials(uint32_t set);
// Of these, those that only operators may give to others. Approvers could otherwise make further approvers.
uint32_t scopes_of_operators(uint32_t set);
// The names of a set, with spaces between them; and back. False: a name is unknown.
void scopes_write(uint32_t set, char out[PRINCIPAL_SCOPES_TEXT]);
bool scopes_read(const char *names, uint32_t *out);
struct err;
// Adds to a refusal for want of a scope: the rule "rights/SCOPE", and the scopes that the principal has as what would be allowed.
void principal_explain(const struct principal *p, const char *scope, struct err *e);
// The name of the scope with the lowest bit in the set; "": of none.
const char *scopes_first(uint32_t set);

// Whether there can be a tenant of this name: a lower-case letter, then letters, digits, '.', '_' and '-', at most 31 bytes; or
// "uid:NUMBER". Or it means all of them ("*").
bool principal_is_tenant(const char *name);
