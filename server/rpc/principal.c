// SPDX-License-Identifier: Apache-2.0
// See principal.h.
#include "principal.h"

#include <stdio.h>
#include <string.h>

#include "transport.h"

#define BIT(scope) (UINT32_C(1) << (scope))

static const struct {
    const char *name;
    bool operators; // only for root and the broker's own account
} scopes[SCOPES_N] = {
    [SCOPE_SANDBOX_READ] = {"sandbox.read", false},
    [SCOPE_SANDBOX_WRITE] = {"sandbox.write", false},
    [SCOPE_PROCESS_READ] = {"process.read", false},
    [SCOPE_PROCESS_RUN] = {"process.run", false},
    [SCOPE_FILE_READ] = {"file.read", false},
    [SCOPE_FILE_WRITE] = {"file.write", false},
    [SCOPE_VOLUME_READ] = {"volume.read", false},
    [SCOPE_VOLUME_WRITE] = {"volume.write", false},
    [SCOPE_SYSTEM_READ] = {"system.read", false},
    [SCOPE_TELEMETRY_READ] = {"telemetry.read", false},
    [SCOPE_ANOMALY_READ] = {"anomaly.read", false},
    [SCOPE_PROFILE_READ] = {"profile.read", true},
    [SCOPE_PROFILE_WRITE] = {"profile.write", true},
    [SCOPE_TENANTS_READ] = {"tenants.read", true},
    [SCOPE_METRICS_READ] = {"metrics.read", true},
    [SCOPE_UNKNOWN] = {"", true},
};

enum scope
scope_find(const char *name)
{
    for (unsigned i = 0; i < SCOPE_UNKNOWN; i++)
        if (strcmp(scopes[i].name, name) == 0)
            return (enum scope)i;
    return SCOPE_UNKNOWN;
}

void
principal_of_peer(const struct transport_peer *peer, uint32_t own_uid, struct principal *out)
{
    *out = (struct principal){.tenant = "tcp", .proof = PROOF_NONE};
    if (peer->local) {
        out->proof = PROOF_PEER;
        out->uid = peer->uid;
        out->gid = peer->gid;
        out->pid = peer->pid;
        (void)snprintf(out->tenant, sizeof out->tenant, "uid:%u", (unsigned)peer->uid);
    }
    bool is_operator = peer->local && (peer->uid == 0 || peer->uid == own_uid);
    for (unsigned i = 0; i < SCOPES_N; i++)
        if (is_operator || !scopes[i].operators)
            out->scopes |= BIT(i);
}

void
principal_make_reader(struct principal *p)
{
    p->scopes = BIT(SCOPE_SYSTEM_READ) | BIT(SCOPE_TELEMETRY_READ) | BIT(SCOPE_ANOMALY_READ) |
                BIT(SCOPE_TENANTS_READ) | BIT(SCOPE_METRICS_READ);
}

bool
principal_is_tenant(const char *name)
{
    static const char uid[] = "uid:";
    size_t n = sizeof uid - 1;
    bool numbered = strncmp(name, uid, n) == 0 && name[n] != '\0' &&
                    name[n + strspn(name + n, "0123456789")] == '\0';
    return numbered || strcmp(name, "tcp") == 0 || strcmp(name, "*") == 0;
}

bool
principal_has(const struct principal *p, enum scope scope)
{
    return (p->scopes & BIT(scope)) != 0;
}
