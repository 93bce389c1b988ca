// SPDX-License-Identifier: Apache-2.0
// The schema of the database, as a list of steps forward. Step N makes version N out of version N - 1 in one transaction with the
// new number, so that a crash leaves one version or the other. A step that was released never changes: a later one corrects it.
//
// All tables are STRICT (sqlite.org/stricttables.html): a value of the wrong type is refused by SQLite itself.
#include "private.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "stockade/v1/anomaly_service.pb-c.h"

#define NUMBER(x)  NUMBER_(x)
#define NUMBER_(x) #x

// "STKD", as PRAGMA application_id: file(1) shows it too.
#define APPLICATION 0x53544b44

static const char *const steps[] = {
    // 1: the key of the hashes; tenants; API keys. Scopes are names with spaces between them.
    "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1),"
    " hash_key BLOB NOT NULL CHECK (length(hash_key) = 32)) STRICT;"
    "INSERT INTO secret VALUES (1, random_bytes(32));"
    "CREATE TABLE api_key (id TEXT PRIMARY KEY NOT NULL, tenant TEXT NOT NULL, label TEXT NOT NULL,"
    " scopes TEXT NOT NULL, hint TEXT NOT NULL, hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),"
    " created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL DEFAULT 0,"
    " revoked_ms INTEGER NOT NULL DEFAULT 0, maker TEXT NOT NULL) STRICT, WITHOUT ROWID;",
    // 2: keys that sign tokens, revoked blocks of tokens, and how often blocks were used.
    "CREATE TABLE signing_key (seed BLOB PRIMARY KEY NOT NULL CHECK (length(seed) = 32),"
    " created_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
    "INSERT INTO signing_key (seed, created_ms) VALUES (random_bytes(32), 1000 * unixepoch());"
    "CREATE TABLE revoked_block (block BLOB NOT NULL CHECK (length(block) = 16), tenant TEXT NOT NULL,"
    " revoked_ms INTEGER NOT NULL, PRIMARY KEY (block, tenant)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE block_use (block BLOB PRIMARY KEY NOT NULL CHECK (length(block) = 16),"
    " uses INTEGER NOT NULL, expires_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
    // 3: approvals, each as a packed stockade.v1.Approval.
    "CREATE TABLE approval (id TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL UNIQUE,"
    " tenant TEXT NOT NULL, around BLOB NOT NULL CHECK (length(around) IN (0, 32)),"
    " message BLOB NOT NULL) STRICT, WITHOUT ROWID;",
    // 4: encryption at rest (vault/vault.h): the proof of the master key; data keys, wrapped, without one when they were forgotten. A
    // rotation makes the keys of `next`, wrapped by the new one, the ones in use when the proof is changed.
    "CREATE TABLE encryption (id INTEGER PRIMARY KEY CHECK (id = 1),"
    " proof BLOB NOT NULL CHECK (length(proof) = 72)) STRICT;"
    "CREATE TABLE data_key (id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),"
    " tenant TEXT NOT NULL, wrapped BLOB NOT NULL CHECK (length(wrapped) IN (0, 72)),"
    " next BLOB CHECK (length(next) = 72), round INTEGER NOT NULL DEFAULT 0,"
    " created_ms INTEGER NOT NULL, forgotten_ms INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER master_rotated AFTER UPDATE OF proof ON encryption BEGIN"
    " UPDATE data_key SET wrapped = next, next = NULL WHERE forgotten_ms = 0; END;",
    // 5: idempotency keys of calls: hashes of the key and of the request, and what the call was answered (0: it is under way, 1: it
    // has ended). The answer is a packed Frame, or NULL.
    "CREATE TABLE idempotency (id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),"
    " request BLOB NOT NULL CHECK (length(request) = 16), tenant TEXT NOT NULL,"
    " stream INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0, code INTEGER NOT NULL DEFAULT 0,"
    " expires_ms INTEGER NOT NULL DEFAULT 0, answer BLOB) STRICT, WITHOUT ROWID;"
    "CREATE INDEX idempotency_expires ON idempotency (expires_ms) WHERE ended = 1;",
    // 6: detection rules of tenants, each file as a packed stockade.v1.RuleFile.
    "CREATE TABLE rule_file (tenant TEXT NOT NULL, name TEXT NOT NULL,"
    " message BLOB NOT NULL,"
    " PRIMARY KEY (tenant, name)) STRICT, WITHOUT ROWID;",
    // 7: silences, each as a packed stockade.v1.Silence, and acknowledged findings, each as a packed stockade.v1.Finding.
    "CREATE TABLE silence (id TEXT PRIMARY KEY NOT NULL, created_ms INTEGER NOT NULL,"
    " message BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE acknowledged (instance TEXT NOT NULL, sequence INTEGER NOT NULL,"
    " by_host INTEGER NOT NULL, made_ms INTEGER NOT NULL, tenant TEXT NOT NULL,"
    " message BLOB NOT NULL, PRIMARY KEY (instance, sequence, by_host)) STRICT, WITHOUT ROWID;",
    // 8: content of tenants is sealed with a data key, whose row must be there (NULL: it is plain); scrub: free space may still have what
    // was plain.
    "ALTER TABLE idempotency ADD COLUMN key BLOB REFERENCES data_key (id);"
    "ALTER TABLE approval ADD COLUMN key BLOB REFERENCES data_key (id);"
    "ALTER TABLE rule_file ADD COLUMN key BLOB REFERENCES data_key (id);"
    "ALTER TABLE api_key ADD COLUMN key BLOB REFERENCES data_key (id);"
    "ALTER TABLE api_key ADD COLUMN sealed_label BLOB;"
    "CREATE TABLE scrub (id INTEGER PRIMARY KEY CHECK (id = 1)) STRICT;",
    // 9: the same for silences and acknowledged findings. Nobody can say what they are about when their data key was forgotten: they go
    // with it.
    "ALTER TABLE silence ADD COLUMN tenant TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE silence ADD COLUMN key BLOB REFERENCES data_key (id);"
    "UPDATE silence SET tenant = silence_tenant(message);"
    "ALTER TABLE acknowledged ADD COLUMN key BLOB REFERENCES data_key (id);"
    "CREATE TRIGGER data_key_forgotten AFTER UPDATE OF forgotten_ms ON data_key"
    " WHEN new.forgotten_ms <> 0 BEGIN DELETE FROM silence WHERE key = new.id;"
    " DELETE FROM acknowledged WHERE key = new.id; END;",
};
enum { VERSION = sizeof steps / sizeof steps[0], MESSAGE_ARENA = 64 * 1024, TENANT_BYTES = 31 };

int
state_schema(void)
{
    return VERSION;
}

// SQL function: random bytes of libsodium, for secrets that a step makes.
static void
random_bytes(sqlite3_context *c, int n, sqlite3_value **argument)
{
    unsigned char bytes[64];
    const int wanted = sqlite3_value_int(argument[0]);
    (void)n;
    if (wanted < 1 || (size_t)wanted > sizeof bytes) {
        sqlite3_result_error(c, "random_bytes: 1 to 64", -1);
        return;
    }
    randombytes_buf(bytes, (size_t)wanted);
    sqlite3_result_blob(c, bytes, wanted, SQLITE_TRANSIENT);
    sodium_memzero(bytes, sizeof bytes);
}

// SQL function: the tenant whose data key seals a packed stockade.v1.Silence.
static void
silence_tenant(sqlite3_context *c, int n, sqlite3_value **argument)
{
    struct err e;
    ProtobufCMessage *m = NULL;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    (void)n;
    if (a == NULL) {
        sqlite3_result_error_nomem(c);
        return;
    }
    const void *bytes = sqlite3_value_blob(argument[0]);
    const size_t size = (size_t)sqlite3_value_bytes(argument[0]);
    const char *tenant = "";
    if (wire_unpack(&stockade__v1__silence__descriptor, bytes, size, a, &m, &e) == 0 && m != NULL)
        tenant = ((const Stockade__V1__Silence *)m)->tenant;
    if (tenant[0] == '\0' || strlen(tenant) > TENANT_BYTES) // damaged: the host's
        tenant = STATE_HOST_TENANT;
    sqlite3_result_text(c, state_sealing_tenant(tenant), -1, SQLITE_TRANSIENT);
}

static int
number_of(sqlite3 *db, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    return rc == SQLITE_ROW ? 0 : state_fail(db, rc, "read the database", e);
}

// A row means damage, and says which.
static int
check_whole(sqlite3 *db, const char *path, struct err *e)
{
    static const char *const checks[] = {"PRAGMA quick_check(1)", "PRAGMA foreign_key_check"};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(db, checks[i], -1, &s, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_step(s);
        const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
        const bool sound = rc == SQLITE_DONE || (text != NULL && strcmp(text, "ok") == 0);
        int r = 0;
        if (!sound && rc == SQLITE_ROW)
            r = err_set(e, ERR_DATA_LOSS, "%s is damaged: %.200s", path, text != NULL ? text : "?");
        else if (!sound)
            r = state_fail(db, rc, "check the database", e);
        (void)sqlite3_finalize(s);
        if (r < 0)
            return r;
    }
    return 0;
}

static int
step_forward(sqlite3 *db, int version, struct err *e)
{
    char set[64];
    assert(version >= 1 && version <= VERSION);
    (void)snprintf(set, sizeof set, "PRAGMA user_version = %d", version);
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, steps[version - 1], NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA application_id = " NUMBER(APPLICATION), NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, set, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    int r = state_fail(db, rc, "bring the database up to date", e);
    (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int
schema_find(sqlite3 *db, const char *path, int *version, struct err *e)
{
    int64_t application = 0, tables = 0, found = 0;
    int r = number_of(db, "PRAGMA application_id", &application, e);
    if (r == 0)
        r = number_of(db, "PRAGMA user_version", &found, e);
    if (r == 0)
        r = number_of(db, "SELECT count(*) FROM sqlite_schema", &tables, e);
    if (r < 0)
        return r;
    *version = (int)found;
    if (application != APPLICATION && (application != 0 || found != 0 || tables != 0)) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%s is not a database of stockaded", path);
        err_detail(e, "STATE_FOREIGN", path, "move it away; the broker makes a new one");
        return r;
    }
    if (found >= 0 && found <= VERSION)
        return 0;
    r = err_set(e, ERR_FAILED_PRECONDITION,
                "%s has schema %lld, and this broker knows schemas up to %d", path,
                (long long)found, VERSION);
    err_detail(e, "STATE_NEWER", path,
               "start the newer stockaded, or restore a backup that was made before it");
    return r;
}

int
schema_prepare(sqlite3 *db, const char *path, int version, struct err *e)
{
    int rc = sqlite3_create_function(db, "random_bytes", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL,
                                     random_bytes, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_function(db, "silence_tenant", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL,
                                     silence_tenant, NULL, NULL);
    if (rc != SQLITE_OK)
        return state_fail(db, rc, "prepare the database", e);
    int r = version > 0 ? check_whole(db, path, e) : 0;
    for (int v = version + 1; r == 0 && v <= VERSION; v++)
        r = step_forward(db, v, e);
    return r;
}
