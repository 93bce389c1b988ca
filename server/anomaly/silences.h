// SPDX-License-Identifier: Apache-2.0
// Silences: no alert is raised for findings of a rule for a while. Acknowledgements: findings that a person has handled. Both are in the database, bounded, and outlast the broker.
//
// A silenced finding is kept, counted, recorded and published like any other; it says which silence applied. No alert is raised, and the
// response is carried out all the same, unless the silence says otherwise.
//
// A tenant must not be able to hide from the host: its silence applies to alerts of rules that it wrote itself. About a finding of
// another rule, it only notes that the tenant does not want to know of it. The acknowledgements of the tenant and of the host stand
// side by side for the same reason. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/list.h"
#include "server/telemetry/finding.h"

struct silences;
struct state;

enum {
    SILENCES_MAX = 1024, // of which the host keeps a quarter for itself
    SILENCES_TENANT_MAX = 64,
    SILENCE_REASON = 257,
    SILENCE_BY = 96, // the name of a principal
    SILENCE_TTL_MAX_S = 30 * 24 * 3600,
    ACKNOWLEDGED_MAX = 4096,
    ACKNOWLEDGED_TENANT_MAX = 256,
    ACKNOWLEDGED_INSTANCE = 17,
};

// Read-only for others.
struct silence {
    struct list node; // by time
    uint64_t order;
    char id[FINDING_SILENCE];
    char tenant[32]; // whose sandboxes; "*": all
    char rule[FINDING_RULE];
    char sandbox_id[ID_TEXT_MAX + 1]; // "": any, as for the next two
    char template[64];
    char comm[64];
    char reason[SILENCE_REASON];
    char by[SILENCE_BY];
    bool by_host;
    bool response;                  // the response is suppressed as well
    int64_t created_ms, expires_ms; // CLOCK_REALTIME
    uint64_t until_ns;              // CLOCK_BOOTTIME: a clock that is set back prolongs nothing
    uint64_t matched;               // findings since the broker began
};

struct acknowledged {
    struct list node; // by time
    struct acknowledged *next;
    uint64_t order;
    char instance[ACKNOWLEDGED_INSTANCE]; // of the broker that numbered the finding
    uint64_t sequence;
    char tenant[32]; // of the finding
    bool by_host;
    char by[SILENCE_BY];
    char reason[SILENCE_REASON];
    int64_t time_ms;
    uint8_t *finding; // a packed stockade.v1.Finding
    size_t finding_n;
};

// Reads both from the database, before state_start(). Those that have expired are removed.
int silences_new(struct state *state, struct silences **out, struct err *e);
// The database must be closed before. Accepts NULL.
void silences_free(struct silences *all);

// A tenant's data key was forgotten: its silences and acknowledgements, and those that the host made about it, are gone. "uid:0" has the
// silences that concern all tenants.
void silences_forget_tenant(struct silences *all, const char *tenant);

// A change is on the disk and in force, or failed (e). of: the new silence; otherwise NULL.
typedef void silences_done(void *cookie, const struct silence *of, const struct err *e);
struct silences_op;
// The change is made all the same.
void silences_unwait(struct silences_op *op);

// Each begins a change; `done` is called once, later. Refused: RESOURCE_EXHAUSTED, NOT_FOUND, PERMISSION_DENIED.
struct silences_call {
    silences_done *done;
    void *cookie;
    struct silences_op **op;
};

// want: copied, with tenant to response, and expires_ms - created_ms as its time.
int silence_create(struct silences *all, const struct silence *want,
                   const struct silences_call *call, struct err *e);
// tenant: whose silences the caller may see; NULL: all.
int silence_delete(struct silences *all, const char *tenant, bool host, const char *id,
                   const struct silences_call *call, struct err *e);
// `want` is copied with its finding. The oldest of the tenant gives way if it has too many.
int acknowledged_put(struct silences *all, const struct acknowledged *want,
                     const struct silences_call *call, struct err *e);
// tenant: as above.
int acknowledged_withdraw(struct silences *all, const struct acknowledged *which,
                          const char *tenant, const struct silences_call *call, struct err *e);

// The next one, in the order of time; NULL: no more. after NULL: the first. Silences that have expired are removed before.
const struct silence *silences_next(struct silences *all, const struct silence *after);
const struct acknowledged *acknowledged_next(const struct silences *all,
                                             const struct acknowledged *after);
const struct acknowledged *acknowledged_find(const struct silences *all, const char *instance,
                                             uint64_t sequence, bool by_host);

// Marks a finding with the silence that applies, and changes its response accordingly. all NULL: none. report: it is counted.
void silences_apply(struct silences *all, struct finding *f, bool report);
