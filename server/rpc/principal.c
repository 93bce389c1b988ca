// SPDX-License-Identifier: Apache-2.0
// See principal.h.
#include "principal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
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
    [SCOPE_ANOMALY_WRITE] = {"anomaly.write", false},
    [SCOPE_RULE_READ] = {"rule.read", false},
    [SCOPE_RULE_WRITE] = {"rule.write", false},
    [SCOPE_KEY_READ] = {"key.read", false},
    [SCOPE_KEY_WRITE] = {"key.write", false},
    [SCOPE_AUDIT_READ] = {"audit.read", false},
    [SCOPE_APPROVAL_READ] = {"approval.read", false},
    [SCOPE_APPROVAL_WRITE] = {"approval.write", false},
    [SCOPE_APPROVAL_ANSWER] = {"approval.answer", true},
    [SCOPE_PROFILE_READ] = {"profile.read", true},
    [SCOPE_PROFILE_WRITE] = {"profile.write", true},
    [SCOPE_TENANTS_READ] = {"tenants.read", true},
    [SCOPE_TENANTS_WRITE] = {"tenants.write", true},
    [SCOPE_METRICS_READ] = {"metrics.read", true},
    [SCOPE_ADMIN_WRITE] = {"admin.write", true},
    [SCOPE_TOKEN_EXCHANGE] = {"token.exchange", true},
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

uint32_t
scopes_usual(void)
{
    uint32_t set = 0;
    for (unsigned i = 0; i < SCOPES_N; i++)
        if (!scopes[i].operators)
            set |= BIT(i);
    return set;
}

uint32_t
scopes_without_credentials(uint32_t set)
{
    return set & ~(BIT(SCOPE_KEY_READ) | BIT(SCOPE_KEY_WRITE));
}

uint32_t
scopes_of_operators(uint32_t set)
{
    return set & BIT(SCOPE_APPROVAL_ANSWER);
}

void
scopes_write(uint32_t set, char out[PRINCIPAL_SCOPES_TEXT])
{
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < SCOPE_UNKNOWN; i++)
        if ((set & BIT(i)) != 0)
            n += (size_t)snprintf(out + n, PRINCIPAL_SCOPES_TEXT - n, "%s%s", n > 0 ? " " : "",
                                  scopes[i].name);
}

bool
scopes_read(const char *names, uint32_t *out)
{
    uint32_t set = 0;
    while (*names != '\0') {
        char name[32];
        const size_t n = strcspn(names, " ");
        if (n >= sizeof name)
            return false;
        (void)snprintf(name, sizeof name, "%.*s", (int)n, names);
        const enum scope scope = scope_find(name);
        if (scope == SCOPE_UNKNOWN)
            return false;
        set |= BIT(scope);
        names += n + strspn(names + n, " ");
    }
    *out = set;
    return true;
}

void
principal_explain(const struct principal *p, const char *scope, struct err *e)
{
    char rule[sizeof e->rule], have[PRINCIPAL_SCOPES_TEXT], allowed[sizeof e->allowed];
    enum { BEFORE_MAX = 40 };
    scopes_write(p->scopes, have);
    const size_t room = sizeof allowed - BEFORE_MAX;
    if (strlen(have) > room) {
        size_t n = room - 4;
        while (n > 0 && have[n] != ' ')
            n--;
        (void)snprintf(have + n, 5, " ...");
    }
    (void)snprintf(rule, sizeof rule, "rights/%s", scope);
    (void)snprintf(allowed, sizeof allowed, "calls that need one of: %.*s", (int)room,
                   have[0] != '\0' ? have : "(no right)");
    err_rule(e, rule, allowed);
}

const char *
scopes_first(uint32_t set)
{
    unsigned i = 0;
    while (i < SCOPE_UNKNOWN && (set & BIT(i)) == 0)
        i++;
    return scopes[i].name;
}

static bool
matches(const struct principal_row *row, const struct transport_peer *peer)
{
    if (!row->group)
        return row->id == peer->uid;
    bool is_member = row->id == peer->gid;
    for (uint32_t i = 0; i < peer->groups_n && !is_member; i++)
        is_member = row->id == peer->groups[i];
    return is_member;
}

void
principal_address(const struct transport_peer *peer, char out[PRINCIPAL_ADDRESS])
{
    static const uint8_t none[16], mapped[12] = {[10] = 0xff, [11] = 0xff};
    out[0] = '\0';
    if (memcmp(peer->address, none, sizeof none) == 0)
        return;
    bool v4 = memcmp(peer->address, mapped, sizeof mapped) == 0;
    (void)inet_ntop(v4 ? AF_INET : AF_INET6, peer->address + (v4 ? sizeof mapped : 0), out,
                    PRINCIPAL_ADDRESS);
}

// What nobody has proven is nobody's: without a certificate that is listed only a credential gives rights.
static void
of_tls(const struct transport_peer *peer, struct principal *out)
{
    *out = (struct principal){.tenant = "tls", .proof = PROOF_NONE};
    if (!peer->client)
        return;
    out->proof = PROOF_CERTIFICATE;
    (void)snprintf(out->tenant, sizeof out->tenant, "%.31s", peer->tenant);
    out->scopes = peer->scopes;
}

void
principal_of_peer(const struct transport_peer *peer, uint32_t own_uid,
                  const struct principal_map *map, struct principal *out)
{
    if (peer->tls) {
        of_tls(peer, out);
        principal_address(peer, out->address);
        out->transport = "tls";
        return;
    }
    *out = (struct principal){.tenant = "tcp", .proof = PROOF_NONE, .scopes = scopes_usual()};
    if (!peer->local) {
        principal_address(peer, out->address);
        out->transport = out->address[0] != '\0' ? "tcp" : "ws";
        return;
    }
    out->transport = "ipc";
    out->proof = PROOF_PEER;
    out->uid = peer->uid;
    out->gid = peer->gid;
    out->pid = peer->pid;
    (void)snprintf(out->tenant, sizeof out->tenant, "uid:%u", (unsigned)peer->uid);
    if (peer->uid == 0 || peer->uid == own_uid) {
        out->scopes = BIT(SCOPES_N) - 1;
        return;
    }
    for (uint32_t i = 0; i < map->n; i++) {
        const struct principal_row *row = &map->row[i];
        if (!matches(row, peer))
            continue;
        memcpy(out->tenant, row->tenant, sizeof out->tenant);
        out->scopes = row->scopes;
        return;
    }
}

void
principal_make_reader(struct principal *p)
{
    p->scopes = BIT(SCOPE_SYSTEM_READ) | BIT(SCOPE_TELEMETRY_READ) | BIT(SCOPE_ANOMALY_READ) |
                BIT(SCOPE_TENANTS_READ) | BIT(SCOPE_METRICS_READ) | BIT(SCOPE_APPROVAL_READ);
}

bool
principal_is_tenant(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    static const char more[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    static const char uid[] = "uid:";
    const size_t n = sizeof uid - 1, length = strlen(name);
    if (strcmp(name, "*") == 0)
        return true;
    if (length == 0 || length >= PRINCIPAL_TENANT)
        return false;
    if (strncmp(name, uid, n) == 0)
        return name[n] != '\0' && name[n + strspn(name + n, "0123456789")] == '\0';
    return strchr(letters, name[0]) != NULL && name[strspn(name, more)] == '\0';
}

void
principal_name(const struct principal *p, char out[PRINCIPAL_NAME])
{
    static const char *const kinds[] = {
        [PROOF_KEY] = "key:",
        [PROOF_TOKEN] = "token:",
        [PROOF_CERTIFICATE] = "certificate",
        [PROOF_JWT] = "jwt:",
    };
    char uid[PRINCIPAL_TENANT];
    (void)snprintf(uid, sizeof uid, "uid:%u", (unsigned)p->uid);
    if (p->proof == PROOF_NONE || (p->proof == PROOF_PEER && strcmp(uid, p->tenant) == 0))
        (void)snprintf(out, PRINCIPAL_NAME, "%s", p->tenant);
    else if (p->proof == PROOF_PEER)
        (void)snprintf(out, PRINCIPAL_NAME, "%s/%s", p->tenant, uid);
    else
        (void)snprintf(out, PRINCIPAL_NAME, "%s/%s%s", p->tenant, kinds[p->proof],
                       p->credential_id);
}

bool
principal_has(const struct principal *p, enum scope scope)
{
    return (p->scopes & BIT(scope)) != 0;
}
