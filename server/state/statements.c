// SPDX-License-Identifier: Apache-2.0
// Every statement of the running broker, as rows: what is read at the start, and what changes.
#include "private.h"

const struct state_statement state_queries[STATE_QUERIES_N] = {
    // the key of the hashes
    [STATE_SECRETS] = {"SELECT hash_key FROM secret", 1},
    // id, tenant, label, scopes, hint, hash, created, expires (0: never), revoked (0: not), maker
    [STATE_KEYS] =
        {"SELECT id, tenant, label, scopes, hint, hash, created_ms, expires_ms, revoked_ms,"
         " maker FROM api_key ORDER BY created_ms, id",
         10},
};

const struct state_statement state_changes[STATE_CHANGES_N] = {
    // the same values in the same order, but `revoked`
    [STATE_KEY_ADD] = {"INSERT INTO api_key (id, tenant, label, scopes, hint, hash, created_ms,"
                       " expires_ms, maker) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                       9},
    // id, time
    [STATE_KEY_REVOKE] = {"UPDATE api_key SET revoked_ms = ?2 WHERE id = ?1 AND revoked_ms = 0", 2},
    // id
    [STATE_KEY_FORGET] = {"DELETE FROM api_key WHERE id = ?1", 1},
};
