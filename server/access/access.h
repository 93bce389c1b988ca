// SPDX-License-Identifier: Apache-2.0
// Credentials: who a call comes from if its metadata says so.
//
//   dispatch.c: metadata "authorization: Bearer TEXT" --> access_check() --> keys.c: "stk_..." and "e2b_...", API keys
//                                                              |        |--> tokens.c: "stkt_...", capability tokens
//                                                              |        '--> issuers.c: JSON Web Tokens, only to be exchanged
//                                                              '--> refused: counted, logged, limited per peer
//
// What is checked is in memory; the database (server/state) is read at the start and written when something changes. Loop thread
// only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "issuers.h"
#include "server/rpc/principal.h"

struct access;
struct state;

struct access_settings {
    char audience[64]; // the name of this broker in tokens
    bool anonymous;    // calls over tcp and websockets may come without a credential
    // Refused credentials of one peer; further ones are refused without a look.
    uint32_t failures_per_minute;
    struct principal_map principals;
    struct issuer_settings issuers; // of JSON Web Tokens
};

void access_settings_default(struct access_settings *s);

// Reads what there is. The state and the settings are borrowed; the settings may change in place. Free it with access_free(), after
// the state was closed.
int access_new(struct state *state, const struct access_settings *settings, struct access **out,
               struct err *e);
void access_free(struct access *a);

// Begins with what needs the loop: key sets of issuers are fetched. access_reloaded(): the settings may have changed.
struct spawn;
void access_begin(struct access *a, uv_loop_t *loop, struct spawn *spawn);
void access_reloaded(struct access *a);

// Writes what works less than it should, for SystemService.Info. False: nothing.
bool access_trouble(const struct access *a, char *out, size_t n);

// dispatch_credentials: `access` is the struct access. UNAUTHENTICATED with the reason CREDENTIAL_UNKNOWN (also of a key that never
// existed), CREDENTIAL_EXPIRED, CREDENTIAL_REVOKED, or TOKEN_* or JWT_* for what is wrong with a token; RESOURCE_EXHAUSTED with CREDENTIAL_FAILURES and a time to wait: this peer had
// too many of these.
int access_check(void *access, const struct principal *peer, const char *credential,
                 struct principal *out, struct err *e);

// Whether the credential of a call that has waited is still valid; and its token is at hand again, which others may have pushed out of the
// cache meanwhile. credential: its text. The same errors; callers without a credential are valid.
int access_still(struct access *a, const struct principal *who, const char *credential,
                 struct err *e);

// rpc_refused_fn: publishes a TLS handshake that failed, as access_check() does a credential: FAILURES_EVENTS in a minute, and
// FAILURES_HANDSHAKES of one address. Those that are left out are counted in the next event.
void access_handshake_refused(void *access, const char *address, const char *reason,
                              const char *text);

// Where refused credentials and failed handshakes are published. Nowhere, until it is set. Borrowed.
struct events;
void access_set_events(struct access *a, struct events *events);

// The counts of rates and histories (policy.h). Borrowed.
struct policy_counts;
struct policy_counts *access_counts(const struct access *a);

// Who asks people about calls. Nobody, until it is set; it is copied. Borrowed.
struct policy_asker;
void access_set_asker(struct access *a, const struct policy_asker *asker);
const struct policy_asker *access_asker(const struct access *a);

// Borrowed.
const char *access_audience(const struct access *a);

// Milliseconds since 1970, by which credentials expire. It never goes back: if the clock of the host is set back, time goes on from
// the start of the broker by CLOCK_BOOTTIME, which counts while the host sleeps.
int64_t access_now_ms(const struct access *a);

// The same from four clocks: both at the start, and both now.
struct access_clock {
    int64_t wall_ms, boot_ms;
};
int64_t access_time_ms(const struct access_clock *start, const struct access_clock *now);
