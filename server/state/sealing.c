// SPDX-License-Identifier: Apache-2.0
// See state.h: sealed values, and how those of an earlier, plain database are sealed.
//
//   BEGIN -- each plain value: sealed in its place -- "scrub" -- COMMIT -- checkpoint -- VACUUM -- checkpoint -- not "scrub" any more
//
// A crash before COMMIT leaves the plain database; one after it leaves the sealed one, whose next start goes on with "scrub".
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

enum { WHERE_MAX = 512, TENANT_MAX = 128 };

void
state_seal_with(struct state *s, const struct state_sealer *sealer)
{
    s->sealer = sealer != NULL ? *sealer : (struct state_sealer){0};
}

const char *
state_sealing_tenant(const char *tenant)
{
    return strcmp(tenant, STATE_ALL_TENANTS) == 0 ? STATE_HOST_TENANT : tenant;
}

// Each part has its length before it, so that no other parts have the same bytes.
static bool
add_part(uint8_t where[WHERE_MAX], size_t *n, const void *bytes, size_t bytes_n)
{
    if (bytes_n > 255 || *n + 1 + bytes_n > WHERE_MAX)
        return false;
    where[(*n)++] = (uint8_t)bytes_n;
    if (bytes_n > 0)
        memcpy(where + *n, bytes, bytes_n);
    *n += bytes_n;
    return true;
}

static bool
add_id(uint8_t where[WHERE_MAX], size_t *n, const struct state_value *id)
{
    uint8_t number[sizeof id->number];
    if (id->kind != STATE_NUMBER)
        return add_part(where, n, id->bytes, id->n);
    for (size_t i = 0; i < sizeof number; i++)
        number[i] = (uint8_t)((uint64_t)id->number >> (8 * i));
    return add_part(where, n, number, sizeof number);
}

static int
locate(const struct state_sealed *what, const struct state_value *value, uint8_t where[WHERE_MAX],
       size_t *n, struct err *e)
{
    const struct state_value *tenant = &value[what->tenant];
    *n = 0;
    bool fits = add_part(where, n, what->column, strlen(what->column));
    for (unsigned i = 0; i < what->ids; i++)
        fits = fits && add_id(where, n, &value[what->id[i]]);
    if (fits && add_part(where, n, tenant->bytes, tenant->n))
        return 0;
    return err_set(e, ERR_DATA_LOSS, "%s: a row has a name that is too long", what->column);
}

int
sealing_need(struct state *s, const struct state_sealed *what, const struct state_value *value,
             uint8_t key[STATE_SEAL_KEY], struct err *e)
{
    const struct state_value *of = &value[what->tenant];
    char tenant[TENANT_MAX];
    const bool wants = what->begins || (what->column != NULL && value[what->value].n > 0);
    if (s->sealer.need == NULL || !wants)
        return 0;
    if (of->n >= sizeof tenant)
        return err_set(e, ERR_DATA_LOSS, "the name of a tenant is too long");
    memcpy(tenant, of->bytes, of->n);
    tenant[of->n] = '\0';
    return s->sealer.need(s->sealer.cookie, tenant, key, e);
}

int
sealing_seal(struct state *s, const struct state_sealed *what, const struct state_value *value,
             const uint8_t key[STATE_SEAL_KEY], uint8_t *out, struct err *e)
{
    const struct state_value *plain = &value[what->value];
    uint8_t where[WHERE_MAX];
    size_t n = 0;
    int r = locate(what, value, where, &n, e);
    return r < 0 ? r
                 : s->sealer.seal(s->sealer.cookie, key, &STATE_OF_BYTES(where, n), plain, out, e);
}

static int
damaged(const struct state_sealed *what, struct err *e)
{
    int r =
        err_set(e, ERR_DATA_LOSS, "%s: a sealed value in the database is damaged", what->column);
    err_detail(e, "STATE_DAMAGED", what->column, "restore a backup of stockade.db");
    return r;
}

int
sealing_open(struct state *s, const struct state_sealed *what, struct state_value *value,
             const struct state_value *key, uint8_t **out, struct err *e)
{
    struct state_value *v = &value[what->value];
    uint8_t where[WHERE_MAX];
    size_t n = 0;
    if (key->n == 0)
        return 0;
    if (key->n != STATE_SEAL_KEY || v->n < STATE_SEAL_OVER || s->sealer.open == NULL)
        return damaged(what, e);
    int r = locate(what, value, where, &n, e);
    if (r < 0)
        return r;
    uint8_t *plain = malloc(v->n - STATE_SEAL_OVER + 1);
    if (plain == NULL)
        return err_sys(e, ENOMEM, "read the state");
    r = s->sealer.open(s->sealer.cookie, key->bytes, &STATE_OF_BYTES(where, n), v, plain, e);
    v->n = r == 0 ? v->n - STATE_SEAL_OVER : 0;
    v->bytes = plain;
    v->kind = r == 0 ? v->kind : STATE_FORGOTTEN;
    *out = plain;
    return r < 0 ? err_wrap(e, "%s", what->column) : 0;
}

// ---- an earlier database

// What is plain: tenant, value, and the id of the row; and how it is replaced: by ?1 with the key ?2, where the row is ?3 and so on.
static const struct {
    const char *column;
    unsigned ids;
    const char *plain, *seal;
} tables[] = {
    {"idempotency.answer", 1,
     "SELECT tenant, answer, id FROM idempotency WHERE key IS NULL AND length(answer) > 0",
     "UPDATE idempotency SET answer = ?1, key = ?2 WHERE tenant = ?3 AND id = ?4"},
    {"approval.message", 1, "SELECT tenant, message, id FROM approval WHERE key IS NULL",
     "UPDATE approval SET message = ?1, key = ?2 WHERE tenant = ?3 AND id = ?4"},
    {"rule_file.message", 1, "SELECT tenant, message, name FROM rule_file WHERE key IS NULL",
     "UPDATE rule_file SET message = ?1, key = ?2 WHERE tenant = ?3 AND name = ?4"},
    {"api_key.label", 1,
     "SELECT tenant, label, id FROM api_key WHERE key IS NULL AND length(label) > 0",
     "UPDATE api_key SET label = '', sealed_label = ?1, key = ?2 WHERE tenant = ?3 AND id = ?4"},
    {"silence.message", 1, "SELECT tenant, message, id FROM silence WHERE key IS NULL",
     "UPDATE silence SET message = ?1, key = ?2 WHERE tenant = ?3 AND id = ?4"},
    {"acknowledged.message", 3,
     "SELECT tenant, message, instance, sequence, by_host FROM acknowledged WHERE key IS NULL",
     "UPDATE acknowledged SET message = ?1, key = ?2"
     " WHERE tenant = ?3 AND instance = ?4 AND sequence = ?5 AND by_host = ?6"},
};
enum { TENANT, VALUE, ID, ROW_MAX = ID + STATE_ID_MAX };
enum { TABLES_N = sizeof tables / sizeof tables[0] };

static int
execute(struct state *s, const char *sql, struct err *e)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : state_fail(s->db, rc, "seal the state", e);
}

static int
write_sealed(struct state *s, sqlite3_stmt *to, const struct state_value value[ROW_MAX],
             const uint8_t *sealed, const uint8_t key[STATE_SEAL_KEY], struct err *e)
{
    const struct state_value row[] = {STATE_OF_BYTES(sealed, value[VALUE].n + STATE_SEAL_OVER),
                                      STATE_OF_BYTES(key, STATE_SEAL_KEY),
                                      value[TENANT],
                                      value[ID],
                                      value[ID + 1],
                                      value[ID + 2]};
    const int n = sqlite3_bind_parameter_count(to);
    assert((size_t)n <= sizeof row / sizeof row[0]);
    for (int i = 0; i < n; i++)
        state_bind(to, i + 1, &row[i]);
    int rc = sqlite3_step(to);
    rc = rc == SQLITE_DONE && sqlite3_changes(s->db) != 1 ? SQLITE_CORRUPT : rc;
    (void)sqlite3_reset(to);
    (void)sqlite3_clear_bindings(to);
    return rc == SQLITE_DONE ? 0 : state_fail(s->db, rc, "seal the state", e);
}

static int
seal_value(struct state *s, const struct state_sealed *what, sqlite3_stmt *to,
           const struct state_value value[ROW_MAX], const uint8_t key[STATE_SEAL_KEY],
           struct err *e)
{
    uint8_t *sealed = malloc(value[VALUE].n + STATE_SEAL_OVER);
    if (sealed == NULL)
        return err_sys(e, ENOMEM, "seal the state");
    int r = sealing_seal(s, what, value, key, sealed, e);
    if (r == 0)
        r = write_sealed(s, to, value, sealed, key, e);
    free(sealed);
    return r;
}

static int
seal_row(struct state *s, size_t i, sqlite3_stmt *from, sqlite3_stmt *to, struct err *e)
{
    const struct state_sealed what = {
        tables[i].column, {ID, ID + 1, ID + 2}, tables[i].ids, TENANT, VALUE, false};
    struct state_value value[ROW_MAX] = {0};
    uint8_t key[STATE_SEAL_KEY];
    for (unsigned at = 0; at < ID + what.ids; at++)
        value[at] = state_column(from, (int)at);
    int r = sealing_need(s, &what, value, key, e);
    return r > 0 ? seal_value(s, &what, to, value, key, e) : r;
}

static int
seal_table(struct state *s, size_t i, uint64_t *n, struct err *e)
{
    sqlite3_stmt *from = NULL, *to = NULL;
    int rc = sqlite3_prepare_v2(s->db, tables[i].plain, -1, &from, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(s->db, tables[i].seal, -1, &to, NULL);
    int r = 0;
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(from);
        r = rc == SQLITE_ROW ? seal_row(s, i, from, to, e) : 0;
        if (r < 0 || rc != SQLITE_ROW)
            break;
        ++*n;
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = state_fail(s->db, rc, "seal the state", e);
    (void)sqlite3_finalize(from);
    (void)sqlite3_finalize(to);
    return r;
}

int
state_seal_rows(struct state *s, uint64_t *n, struct err *e)
{
    *n = 0;
    int r = execute(s, "BEGIN IMMEDIATE", e);
    for (size_t i = 0; i < TABLES_N && r == 0; i++)
        r = seal_table(s, i, n, e);
    if (r == 0 && *n > 0)
        r = execute(s, "INSERT OR IGNORE INTO scrub VALUES (1)", e);
    if (r == 0)
        r = execute(s, "COMMIT", e);
    if (r < 0 && sqlite3_get_autocommit(s->db) == 0)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return r < 0 ? err_wrap(e, "seal the columns of tenants") : 0;
}

static int
empty_journal(struct state *s, struct err *e)
{
    int rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return rc == SQLITE_OK ? 0 : state_fail(s->db, rc, "empty the journal", e);
}

int
state_scrub(struct state *s, struct err *e)
{
    sqlite3_stmt *t = NULL;
    int rc = sqlite3_prepare_v2(s->db, "SELECT 1 FROM scrub", -1, &t, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(t) : rc;
    (void)sqlite3_finalize(t);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_DONE ? 0 : state_fail(s->db, rc, "read the state", e);
    int r = empty_journal(s, e);
    r = r == 0 ? execute(s, "VACUUM", e) : r;
    r = r == 0 ? empty_journal(s, e) : r;
    return r == 0 ? execute(s, "DELETE FROM scrub", e) : r;
}
