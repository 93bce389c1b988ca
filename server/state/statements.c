// SPDX-License-Identifier: Apache-2.0
// Every statement of the running broker, as rows: what is read at the start, and what changes; and which values have content of a
// tenant. The last column of a query with one, and the last parameter of a change, is the number of the data key.
#include "private.h"

const struct state_statement state_queries[STATE_QUERIES_N] = {
    // the key of the hashes
    [STATE_SECRETS] = {"SELECT hash_key FROM secret", 1},
    // id, tenant, label, scopes, hint, hash, created, expires (0: never), revoked (0: not), maker
    [STATE_KEYS] =
        {"SELECT id, tenant, coalesce(sealed_label, label), scopes, hint, hash, created_ms,"
         " expires_ms, revoked_ms, maker, key FROM api_key ORDER BY created_ms, id",
         10},
    // seed, created, until (0: it signs)
    [STATE_SIGNING_KEYS] = {"SELECT seed, created_ms, until_ms FROM signing_key"
                            " WHERE until_ms = 0 OR until_ms > 1000 * unixepoch() ORDER BY rowid",
                            3},
    // block, tenant ("*": all)
    [STATE_REVOKED] = {"SELECT block, tenant FROM revoked_block", 2},
    // block, uses, expiry
    [STATE_USES] =
        {"SELECT block, uses, expires_ms FROM block_use WHERE expires_ms > 1000 * unixepoch()", 3},
    // number, digest of everything but the command line, message, id, tenant
    [STATE_APPROVALS] = {"SELECT number, around, message, id, tenant, key FROM approval"
                         " ORDER BY number",
                         5},
    // the proof of the master key
    [STATE_ENCRYPTION] = {"SELECT proof FROM encryption", 1},
    // number, tenant, wrapped key, created, forgotten (0: it was not)
    [STATE_DATA_KEYS] = {"SELECT id, tenant, wrapped, created_ms, forgotten_ms FROM data_key"
                         " ORDER BY created_ms, id",
                         5},
    // key, request, tenant, whether it is a stream, whether it has ended, code, expiry, answer; the one that expires first is the first
    [STATE_CALLS] = {"SELECT id, request, tenant, stream, ended, code, expires_ms, answer, key"
                     " FROM idempotency WHERE ended = 0 OR expires_ms > 1000 * unixepoch()"
                     " ORDER BY ended DESC, expires_ms",
                     8},
    // tenant, name, message
    [STATE_RULE_FILES] = {"SELECT tenant, name, message, key FROM rule_file ORDER BY tenant, name",
                          3},
    // message, id, tenant
    [STATE_SILENCES] = {"SELECT message, id, tenant, key FROM silence ORDER BY created_ms, id", 3},
    // tenant, message, the run of the broker, number, whether the host did
    [STATE_ACKNOWLEDGED] = {"SELECT tenant, message, instance, sequence, by_host, key"
                            " FROM acknowledged ORDER BY made_ms, instance, sequence, by_host",
                            5},
};

const struct state_statement state_changes[STATE_CHANGES_N] = {
    // the same values in the same order, but `revoked`
    [STATE_KEY_ADD] = {"INSERT INTO api_key (id, tenant, label, scopes, hint, hash, created_ms,"
                       " expires_ms, maker, sealed_label, key) VALUES (?1, ?2,"
                       " CASE WHEN ?10 IS NULL THEN ?3 ELSE '' END, ?4, ?5, ?6, ?7, ?8, ?9,"
                       " CASE WHEN ?10 IS NOT NULL THEN ?3 END, ?10)",
                       9},
    // id, time
    [STATE_KEY_REVOKE] = {"UPDATE api_key SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0", 2},
    // id
    [STATE_KEY_FORGET] = {"DELETE FROM api_key WHERE id = ?1", 1},
    // seed, time
    [STATE_SIGNING_ADD] = {"INSERT INTO signing_key (seed, created_ms) VALUES (?1, ?2)", 2},
    // until, seed of the one that signs now
    [STATE_SIGNING_RETIRE] =
        {"UPDATE signing_key SET until_ms = ?1 WHERE until_ms = 0 AND seed <> ?2", 2},
    // block, tenant, time
    [STATE_BLOCK_REVOKE] = {"INSERT OR IGNORE INTO revoked_block (block, tenant, revoked_ms)"
                            " VALUES (?1, ?2, ?3)",
                            3},
    // block, uses, expiry
    [STATE_USE] = {"INSERT INTO block_use (block, uses, expires_ms) VALUES (?1, ?2, ?3)"
                   " ON CONFLICT (block) DO UPDATE SET uses = max(uses, excluded.uses)",
                   3},
    // time
    [STATE_USES_FORGET] = {"DELETE FROM block_use WHERE expires_ms <= ?1", 1},
    // id, number, tenant, digest of everything but the command line, message
    [STATE_APPROVAL_PUT] = {"INSERT INTO approval (id, number, tenant, around, message, key)"
                            " VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
                            " ON CONFLICT (id) DO UPDATE SET message = excluded.message,"
                            " key = excluded.key",
                            5},
    // id
    [STATE_APPROVAL_FORGET] = {"DELETE FROM approval WHERE id = ?1", 1},
    // proof
    [STATE_ENCRYPTION_SET] = {"INSERT INTO encryption (id, proof) VALUES (1, ?1)", 1},
    // proof, number of the rotation
    [STATE_ENCRYPTION_ROTATE] =
        {"UPDATE encryption SET proof = ?1 WHERE NOT EXISTS (SELECT 1 FROM"
         " data_key WHERE forgotten_ms = 0 AND (round <> ?2 OR next IS NULL))",
         2},
    // number, tenant, wrapped key, time
    [STATE_DATA_KEY_ADD] = {"INSERT INTO data_key (id, tenant, wrapped, created_ms)"
                            " VALUES (?1, ?2, ?3, ?4)",
                            4},
    // number, wrapped key, number of the rotation
    [STATE_DATA_KEY_NEXT] =
        {"UPDATE data_key SET next = ?2, round = ?3 WHERE id = ?1 AND forgotten_ms = 0", 3},
    // number, time
    [STATE_DATA_KEY_FORGET] = {"UPDATE data_key SET wrapped = x'', next = NULL, forgotten_ms = ?2"
                               " WHERE id = ?1 AND forgotten_ms = 0",
                               2},
    // key, request, tenant, whether it is a stream; one that has expired may be there still
    [STATE_CALL_BEGIN] = {"INSERT OR REPLACE INTO idempotency (id, request, tenant, stream)"
                          " VALUES (?1, ?2, ?3, ?4)",
                          4},
    // key, code, expiry, answer (of length 0: none), tenant
    [STATE_CALL_END] = {"UPDATE idempotency SET ended = 1, code = ?2, expires_ms = ?3,"
                        " answer = nullif(?4, x''), key = ?6 WHERE id = ?1 AND tenant = ?5",
                        5},
    // key
    [STATE_CALL_FORGET] = {"DELETE FROM idempotency WHERE id = ?1", 1},
    // code, expiry
    [STATE_CALLS_LOST] = {"UPDATE idempotency SET ended = 1, code = ?1, expires_ms = ?2"
                          " WHERE ended = 0",
                          2},
    // time; not all at once, because other changes wait for it
    [STATE_CALLS_EXPIRE] = {"DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency"
                            " WHERE ended = 1 AND expires_ms <= ?1 LIMIT 4096)",
                            1},
    // tenant, name, message
    [STATE_RULE_FILE_PUT] = {"INSERT INTO rule_file (tenant, name, message, key)"
                             " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (tenant, name)"
                             " DO UPDATE SET message = excluded.message, key = excluded.key",
                             3},
    // tenant, name
    [STATE_RULE_FILE_FORGET] = {"DELETE FROM rule_file WHERE tenant = ?1 AND name = ?2", 2},
    // id, time, message, tenant
    [STATE_SILENCE_PUT] = {"INSERT INTO silence (id, created_ms, message, tenant, key)"
                           " VALUES (?1, ?2, ?3, ?4, ?5)",
                           4},
    // id
    [STATE_SILENCE_FORGET] = {"DELETE FROM silence WHERE id = ?1", 1},
    // the run of the broker, number, whether the host did, time, tenant, message
    [STATE_ACKNOWLEDGED_PUT] = {"INSERT OR REPLACE INTO acknowledged (instance, sequence, by_host,"
                                " made_ms, tenant, message, key)"
                                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                                6},
    // the run of the broker, number, whether the host did
    [STATE_ACKNOWLEDGED_FORGET] =
        {"DELETE FROM acknowledged WHERE instance = ?1 AND sequence = ?2 AND by_host = ?3", 3},
};

const struct state_sealed state_sealed_columns[STATE_QUERIES_N] = {
    [STATE_KEYS] = {"api_key.label", {0}, 1, 1, 2, false},
    [STATE_APPROVALS] = {"approval.message", {3}, 1, 4, 2, false},
    [STATE_CALLS] = {"idempotency.answer", {0}, 1, 2, 7, false},
    [STATE_RULE_FILES] = {"rule_file.message", {1}, 1, 0, 2, false},
    [STATE_SILENCES] = {"silence.message", {1}, 1, 2, 0, false},
    [STATE_ACKNOWLEDGED] = {"acknowledged.message", {2, 3, 4}, 3, 0, 1, false},
};

const struct state_sealed state_sealed_values[STATE_CHANGES_N] = {
    [STATE_KEY_ADD] = {"api_key.label", {0}, 1, 1, 2, false},
    [STATE_APPROVAL_PUT] = {"approval.message", {0}, 1, 2, 4, false},
    [STATE_CALL_BEGIN] = {NULL, {0}, 1, 2, 0, true},
    [STATE_CALL_END] = {"idempotency.answer", {0}, 1, 4, 3, false},
    [STATE_RULE_FILE_PUT] = {"rule_file.message", {1}, 1, 0, 2, false},
    [STATE_SILENCE_PUT] = {"silence.message", {0}, 1, 3, 2, false},
    [STATE_ACKNOWLEDGED_PUT] = {"acknowledged.message", {0, 1, 2}, 3, 4, 5, false},
};
