// SPDX-License-Identifier: Apache-2.0
// server/vault: keys and sealed values that are wrong, damaged, moved or forgotten are refused, and what a rotation, a migration or a
// kill leaves can be read.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "proto/auto.h"
#include "server/state/state.h"
#include "server/vault/vault.h"
#include "tests/harness/vault_box.h"
#include "tests/harness/wait.h"

enum { KILLS = 12, OWNERS = 64 };
#define MARK "Xyzzy-Plugh-0123456789"

static int
put_rules(const char *tenant, const char *name, const char *text, struct err *e)
{
    const struct state_value row[] = {STATE_OF_TEXT(tenant), STATE_OF_TEXT(name),
                                      STATE_OF_BYTES(text, strlen(text))};
    return state_write(vault_box.state, STATE_RULE_FILE_PUT, row, NULL, NULL, e);
}

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    (void)rows;
    vault_box_on_done(cookie, e);
}

// Everything that was queued is on the disk.
static void
wait_for_the_writer(void)
{
    struct err e, done = {.code = ERR_UNKNOWN};
    const struct state_value no_time[] = {STATE_OF_NUMBER(0)};
    assert_int_equal(
        state_write(vault_box.state, STATE_USES_FORGET, no_time, on_written, &done, &e), 0);
    vault_box_wait_for(&done);
}

// One value of each column: of a call, an approval, a file of rules, a key, a silence, and an acknowledged finding.
static void
put_all(const char *tenant, uint8_t number)
{
    struct err e;
    uint8_t id[16];
    char name[16];
    memset(id, number, sizeof id);
    (void)snprintf(name, sizeof name, "%s-%u", tenant, number);
    const struct state_value of = STATE_OF_TEXT(tenant), text = STATE_OF_TEXT(name),
                             mark = STATE_OF_BYTES(MARK, sizeof MARK - 1),
                             one = STATE_OF_BYTES(id, sizeof id), none = STATE_OF_BYTES("", 0),
                             empty = STATE_OF_TEXT(""), number_of = STATE_OF_NUMBER(number),
                             far = STATE_OF_NUMBER(INT64_C(1) << 50);
    uint8_t hash[32];
    memset(hash, number, sizeof hash);
    const struct state_value call[] = {one, one, of, number_of},
                             end[] = {one, number_of, far, mark, of},
                             approval[] = {text, number_of, of, none, mark},
                             key[] = {text,  of,    STATE_OF_TEXT(MARK),
                                      empty, empty, STATE_OF_BYTES(hash, sizeof hash),
                                      far,   far,   text},
                             silence[] = {text, number_of, mark, of},
                             acknowledged[] = {
                                 STATE_OF_TEXT("run"), number_of, number_of, far, of, mark};
    assert_int_equal(state_write(vault_box.state, STATE_CALL_BEGIN, call, NULL, NULL, &e), 0);
    assert_int_equal(state_write(vault_box.state, STATE_CALL_END, end, NULL, NULL, &e), 0);
    assert_int_equal(state_write(vault_box.state, STATE_APPROVAL_PUT, approval, NULL, NULL, &e), 0);
    assert_int_equal(put_rules(tenant, name, MARK, &e), 0);
    assert_int_equal(state_write(vault_box.state, STATE_KEY_ADD, key, NULL, NULL, &e), 0);
    assert_int_equal(state_write(vault_box.state, STATE_SILENCE_PUT, silence, NULL, NULL, &e), 0);
    assert_int_equal(
        state_write(vault_box.state, STATE_ACKNOWLEDGED_PUT, acknowledged, NULL, NULL, &e), 0);
}

static const struct {
    enum state_query query;
    unsigned value;
} columns[] = {{STATE_CALLS, 7}, {STATE_APPROVALS, 2}, {STATE_RULE_FILES, 2},
               {STATE_KEYS, 2},  {STATE_SILENCES, 0},  {STATE_ACKNOWLEDGED, 1}};
// Rows of the last two go with their data key.
enum { COLUMNS = sizeof columns / sizeof columns[0], STAYING = COLUMNS - 2 };

struct seen {
    unsigned value, marks, forgotten, others;
};

static int
look(void *cookie, const struct state_value *v, struct err *e)
{
    struct seen *s = cookie;
    const struct state_value *it = &v[s->value];
    (void)e;
    if (it->kind == STATE_FORGOTTEN)
        s->forgotten++;
    else if (it->n == sizeof MARK - 1 && memcmp(it->bytes, MARK, it->n) == 0)
        s->marks++;
    else
        s->others++;
    return 0;
}

// Reads all columns after an opening.
static struct seen
look_at_all(void)
{
    struct seen all = {0};
    struct err e;
    for (size_t i = 0; i < COLUMNS; i++) {
        struct seen one = {.value = columns[i].value};
        assert_int_equal(state_read(vault_box.state, columns[i].query, look, &one, &e), 0);
        all.marks += one.marks;
        all.forgotten += one.forgotten;
        all.others += one.others;
    }
    return all;
}

static void
expect(uint8_t byte, unsigned marks, unsigned forgotten)
{
    struct err e;
    assert_int_equal(vault_box_begin(byte, &e), 0);
    const struct seen all = look_at_all();
    assert_int_equal(all.marks, marks);
    assert_int_equal(all.forgotten, forgotten);
    assert_int_equal(all.others, 0);
    vault_box_close_only();
}

// How often the mark is in the files of the database.
static unsigned
marks_on_disk(void)
{
    static const char *const names[] = {"stockade.db", "stockade.db-wal"};
    unsigned n = 0;
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(vault_box_path_of(names[i]), "re");
        if (f == NULL)
            continue;
        static char bytes[4 << 20];
        const size_t size = fread(bytes, 1, sizeof bytes, f);
        assert_int_equal(fclose(f), 0);
        for (const char *at = bytes, *end = bytes + size;
             (at = memmem(at, (size_t)(end - at), MARK, sizeof MARK - 1)) != NULL; at++)
            n++;
    }
    return n;
}

// SQL function: a blob with one bit that was changed.
static void
flip(sqlite3_context *c, int n, sqlite3_value **argument)
{
    unsigned char bytes[256];
    const size_t size = (size_t)sqlite3_value_bytes(argument[0]);
    const size_t at = (size_t)sqlite3_value_int(argument[1]);
    (void)n;
    assert_true(size <= sizeof bytes && at < size);
    memcpy(bytes, sqlite3_value_blob(argument[0]), size);
    bytes[at] ^= 1;
    sqlite3_result_blob(c, bytes, (int)size, SQLITE_TRANSIENT);
}

static void
edit(const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(vault_box_path_of("stockade.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_create_function(db, "flip", 2, SQLITE_UTF8, NULL, flip, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void
does_not_open(uint8_t byte, enum err_code code, const char *reason)
{
    struct err e;
    assert_true(vault_box_begin(byte, &e) < 0);
    assert_int_equal(e.code, code);
    assert_string_equal(e.reason, reason);
}

static void
another_master_key_or_none_is_refused(void **unused)
{
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    vault_box_stop();
    does_not_open(2, ERR_FAILED_PRECONDITION, "ENCRYPTION_KEY");
    does_not_open(0, ERR_FAILED_PRECONDITION, "ENCRYPTION_KEY");
    expect(1, COLUMNS, 0);
}

static void
a_wrapped_key_with_a_flipped_bit_or_of_another_tenant_is_refused(void **unused)
{
    static const char *const changes[] = {
        "UPDATE data_key SET wrapped = (SELECT max(wrapped) FROM data_key)", // of one of the two
        "UPDATE data_key SET tenant = 'c' WHERE tenant = 'a'",
        "UPDATE data_key SET wrapped = flip(wrapped, 3) WHERE tenant = 'a'",
        "UPDATE data_key SET wrapped = flip(wrapped, 40) WHERE tenant = 'a'",
        "UPDATE data_key SET wrapped = flip(wrapped, 71) WHERE tenant = 'a'",
    };
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    put_all("b", 2);
    vault_box_stop();
    edit("CREATE TABLE spare AS SELECT * FROM data_key");
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        edit(changes[i]);
        does_not_open(1, ERR_DATA_LOSS, "");
        edit("UPDATE data_key SET wrapped = (SELECT wrapped FROM spare s WHERE s.id = data_key.id),"
             " tenant = (SELECT tenant FROM spare s WHERE s.id = data_key.id)");
    }
    expect(1, 2 * COLUMNS, 0);
}

// Each of them is found when its column is read.
static void
values_that_were_changed_cut_or_moved_are_refused(void **unused)
{
    static const struct {
        const char *change;
        enum state_query query;
    } moves[] = {
        {"UPDATE rule_file SET message = flip(message, 0) WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET message = flip(message, 30) WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET message = flip(message, 59) WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET message = substr(message, 1, length(message) - 1) WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE rule_file SET message = substr(message, 1, 39) WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE rule_file SET message = x'' WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET name = 'a-9' WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET tenant = 'b' WHERE name = 'a-1'", STATE_RULE_FILES},
        {"UPDATE rule_file SET message = (SELECT message FROM rule_file WHERE name = 'a-3')"
         " WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE rule_file SET message = (SELECT message FROM rule_file WHERE name = 'b-2'),"
         " key = (SELECT key FROM rule_file WHERE name = 'b-2') WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE rule_file SET message = (SELECT message FROM approval WHERE id = 'a-1')"
         " WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE rule_file SET key = (SELECT key FROM rule_file WHERE name = 'b-2')"
         " WHERE name = 'a-1'",
         STATE_RULE_FILES},
        {"UPDATE approval SET message = (SELECT message FROM approval WHERE id = 'a-3')"
         " WHERE id = 'a-1'",
         STATE_APPROVALS},
        {"UPDATE approval SET tenant = 'b' WHERE id = 'a-1'", STATE_APPROVALS},
        {"UPDATE idempotency SET answer = (SELECT answer FROM idempotency WHERE stream = 2)"
         " WHERE stream = 1",
         STATE_CALLS},
        {"UPDATE idempotency SET tenant = 'b' WHERE stream = 1", STATE_CALLS},
        {"UPDATE api_key SET sealed_label = (SELECT sealed_label FROM api_key WHERE id = 'a-3')"
         " WHERE id = 'a-1'",
         STATE_KEYS},
        {"UPDATE silence SET message = (SELECT message FROM silence WHERE id = 'a-3')"
         " WHERE id = 'a-1'",
         STATE_SILENCES},
        {"UPDATE silence SET tenant = 'b' WHERE id = 'a-1'", STATE_SILENCES},
        {"UPDATE acknowledged SET instance = 'other' WHERE sequence = 1", STATE_ACKNOWLEDGED},
        {"UPDATE acknowledged SET sequence = 9 WHERE sequence = 1", STATE_ACKNOWLEDGED},
        {"UPDATE acknowledged SET by_host = 0 WHERE sequence = 1", STATE_ACKNOWLEDGED},
        {"UPDATE acknowledged SET tenant = 'b' WHERE sequence = 1", STATE_ACKNOWLEDGED},
    };
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    put_all("b", 2);
    put_all("a", 3);
    vault_box_stop();
    edit("CREATE TABLE r AS SELECT * FROM rule_file; CREATE TABLE p AS SELECT * FROM approval;"
         "CREATE TABLE i AS SELECT * FROM idempotency; CREATE TABLE k AS SELECT * FROM api_key;"
         "CREATE TABLE s AS SELECT * FROM silence; CREATE TABLE c AS SELECT * FROM acknowledged");
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        struct seen one = {0};
        struct err e = {.code = ERR_OK};
        edit(moves[i].change);
        assert_int_equal(vault_box_begin(1, &e), 0);
        assert_true(state_read(vault_box.state, moves[i].query, look, &one, &e) < 0);
        assert_int_equal(e.code, ERR_DATA_LOSS);
        assert_string_equal(e.reason, "STATE_DAMAGED");
        assert_null(strstr(e.text, "Xyzzy"));
        vault_box_close_only();
        edit("DELETE FROM rule_file; INSERT INTO rule_file SELECT * FROM r; DELETE FROM approval;"
             "INSERT INTO approval SELECT * FROM p; DELETE FROM idempotency;"
             "INSERT INTO idempotency SELECT * FROM i; DELETE FROM api_key;"
             "INSERT INTO api_key SELECT * FROM k; DELETE FROM silence;"
             "INSERT INTO silence SELECT * FROM s; DELETE FROM acknowledged;"
             "INSERT INTO acknowledged SELECT * FROM c");
    }
    expect(1, 3 * COLUMNS, 0);
}

static void
a_value_whose_data_key_has_no_row_is_not_written(void **unused)
{
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    vault_box_stop();
    edit(
        "PRAGMA foreign_keys = OFF; UPDATE rule_file SET key = x'00112233445566778899aabbccddeeff'");
    struct err e;
    assert_true(state_open(vault_box.folder, &vault_box.state, &e) < 0); // foreign_key_check
    assert_int_equal(e.code, ERR_DATA_LOSS);
    vault_box.state = NULL;
}

static void
nothing_sealed_is_on_the_disk_in_clear(void **unused)
{
    (void)unused;
    vault_box_start(0);
    put_all("a", 1);
    vault_box_stop();
    assert_true(marks_on_disk() >= COLUMNS); // the mark would be found
    (void)vault_box_tear_down(NULL);
    (void)vault_box_set_up(NULL);
    vault_box_start(1);
    put_all("a", 1);
    vault_box_stop();
    assert_int_equal(marks_on_disk(), 0);
    expect(1, COLUMNS, 0);
}

// Also in free pages, and in the journal of a broker that was killed.
static void
what_was_plain_is_sealed_at_the_next_start_and_leaves_no_trace(void **unused)
{
    struct err e;
    (void)unused;
    const pid_t pid = fork();
    if (pid == 0) {
        vault_box_start(0);
        for (uint8_t i = 1; i < 200; i++)
            put_all(i % 2 == 0 ? "a" : "b", i);
        for (unsigned i = 0; i < 100; i++) // versions that were replaced
            (void)put_rules("a", "b", MARK, &e);
        wait_for_the_writer();
        (void)kill(getpid(), SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(marks_on_disk() > COLUMNS);
    assert_int_equal(vault_box_begin(1, &e), 0);
    assert_int_equal(look_at_all().marks, 199 * COLUMNS + 1);
    assert_int_equal(marks_on_disk(), 0); // while it runs
    vault_box_close_only();
    assert_int_equal(marks_on_disk(), 0);
    expect(1, 199 * COLUMNS + 1, 0);
}

static int
look_at_owner(void *cookie, const struct state_value *v, struct err *e)
{
    char *owners = cookie;
    const size_t n = strlen(owners);
    (void)e;
    (void)snprintf(owners + n, OWNERS - n, "%.*s ", (int)v[2].n, (const char *)v[2].bytes);
    return 0;
}

// They had no column for it.
static void
silences_of_an_earlier_schema_are_sealed_with_the_key_of_whom_they_are_about(void **unused)
{
    struct err e, done = {.code = ERR_UNKNOWN};
    char owners[OWNERS] = "";
    (void)unused;
    vault_box_start(0);
    vault_box_stop();
    edit("DROP TRIGGER data_key_forgotten; DROP TABLE silence; DROP TABLE acknowledged;"
         "CREATE TABLE silence (id TEXT PRIMARY KEY NOT NULL, created_ms INTEGER NOT NULL,"
         " message BLOB NOT NULL) STRICT, WITHOUT ROWID;"
         "CREATE TABLE acknowledged (instance TEXT NOT NULL, sequence INTEGER NOT NULL,"
         " by_host INTEGER NOT NULL, made_ms INTEGER NOT NULL, tenant TEXT NOT NULL,"
         " message BLOB NOT NULL, PRIMARY KEY (instance, sequence, by_host)) STRICT, WITHOUT ROWID;"
         "INSERT INTO silence VALUES ('1', 1, CAST(x'1201613a16' || '" MARK "' AS BLOB)),"
         " ('2', 2, CAST(x'12012a3a16' || '" MARK "' AS BLOB)), ('3', 3, x'12ff'), ('4', 4, x'');"
         "INSERT INTO acknowledged VALUES ('run', 1, 1, 1, 'a', CAST('" MARK "' AS BLOB));"
         "PRAGMA user_version = 8");
    assert_true(marks_on_disk() >= 3);
    vault_box_start(1);
    assert_int_equal(marks_on_disk(), 0);
    assert_int_equal(vault_forget(vault_box.vault, "a", vault_box_on_done, &done, &e), 0);
    vault_box_wait_for(&done);
    vault_box_stop();
    assert_int_equal(vault_box_begin(1, &e), 0);
    assert_int_equal(state_read(vault_box.state, STATE_SILENCES, look_at_owner, owners, &e), 0);
    assert_string_equal(owners, "uid:0 uid:0 uid:0 ");
    assert_int_equal(state_read(vault_box.state, STATE_ACKNOWLEDGED, look_at_owner, owners, &e), 0);
    assert_string_equal(owners, "uid:0 uid:0 uid:0 ");
    vault_box_close_only();
}

// At a random time of it.
static void
a_kill_during_the_migration_leaves_one_state_or_the_other(void **unused)
{
    unsigned sealed = 0, plain = 0;
    (void)unused;
    vault_box_start(0);
    for (uint8_t i = 1; i < 200; i++)
        put_all(i % 2 == 0 ? "a" : "b", i);
    vault_box_stop();
    edit("CREATE TABLE before (x)"); // a copy of the plain database, beside it
    char save[160], back[256];
    (void)snprintf(save, sizeof save, "cp %s/stockade.db %s.plain", vault_box.folder,
                   vault_box.folder);
    (void)snprintf(back, sizeof back, "cp %s.plain %s/stockade.db; rm -f %s/stockade.db-wal",
                   vault_box.folder, vault_box.folder, vault_box.folder);
    assert_int_equal(system(save), 0); // NOLINT(cert-env33-c)
    unsigned whole_ms = 0;             // without a kill
    for (unsigned i = 0; i < KILLS; i++) {
        struct err e;
        int status = 0;
        const uint64_t began = uv_hrtime();
        const pid_t pid = fork();
        if (pid == 0)
            _exit(vault_box_begin(1, &e) == 0 ? 0 : 1);
        if (i > 0) {
            time_passes("at a random time of it", randombytes_uniform(whole_ms + 1));
            (void)kill(pid, SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        whole_ms = i == 0 ? (unsigned)((uv_hrtime() - began) / 1000000) : whole_ms;
        const unsigned before = marks_on_disk();
        plain += before > 0;
        sealed += before == 0;
        expect(1, 199 * COLUMNS, 0);
        assert_int_equal(marks_on_disk(), 0);
        assert_int_equal(system(back), 0); // NOLINT(cert-env33-c)
    }
    print_message("killed %d times: %u left plain values, %u did not\n", KILLS - 1, plain, sealed);
    (void)snprintf(save, sizeof save, "%s.plain", vault_box.folder);
    (void)unlink(save);
}

static void
a_forgotten_tenant_is_unreadable_and_no_other(void **unused)
{
    struct err e, done = {.code = ERR_UNKNOWN};
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    put_all("b", 2);
    assert_true(vault_forget(vault_box.vault, "c", vault_box_on_done, &done, &e) < 0);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(vault_forget(vault_box.vault, "a", vault_box_on_done, &done, &e), 0);
    assert_true(put_rules("a", "meanwhile", MARK, &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(put_rules("b", "meanwhile", MARK, &e), 0);
    vault_box_wait_for(&done);
    assert_int_equal(put_rules("a", "anew", MARK, &e), 0); // with a new key
    vault_box_stop();
    expect(1, COLUMNS + 2, STAYING);
    // without a master key as well, when all were forgotten
    vault_box_start(1);
    for (unsigned i = 0; i < 2; i++) {
        done.code = ERR_UNKNOWN;
        assert_int_equal(
            vault_forget(vault_box.vault, i == 0 ? "a" : "b", vault_box_on_done, &done, &e), 0);
        vault_box_wait_for(&done);
    }
    vault_box_stop();
    expect(0, 0, 2 * STAYING + 2);
}

static void
a_rotation_keeps_values_readable_and_admits_none_of_a_new_tenant_meanwhile(void **unused)
{
    struct err e, done = {.code = ERR_UNKNOWN};
    uint8_t next[VAULT_MASTER];
    (void)unused;
    memset(next, 2, sizeof next);
    vault_box_start(1);
    put_all("a", 1);
    assert_int_equal(vault_rotate(vault_box.vault, next, vault_box_on_done, &done, &e), 0);
    assert_int_equal(put_rules("a", "meanwhile", MARK, &e), 0);
    assert_true(put_rules("b", "meanwhile", MARK, &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    vault_box_wait_for(&done);
    assert_int_equal(put_rules("b", "after", MARK, &e), 0);
    vault_box_stop();
    does_not_open(1, ERR_FAILED_PRECONDITION, "ENCRYPTION_KEY");
    expect(2, COLUMNS + 2, 0);
}

// A kill in the middle: each change of the rotation but the last is there.
static void
a_rotation_that_was_cut_off_changes_nothing(void **unused)
{
    (void)unused;
    vault_box_start(1);
    put_all("a", 1);
    put_all("b", 2);
    vault_box_stop();
    edit("UPDATE data_key SET next = zeroblob(72), round = 5");
    expect(1, 2 * COLUMNS, 0);
    edit("DELETE FROM encryption"); // the data keys still have to be ours
    does_not_open(2, ERR_DATA_LOSS, "");
    expect(1, 2 * COLUMNS, 0);
}

static void
a_damaged_proof_or_one_of_another_version_is_refused(void **unused)
{
    (void)unused;
    vault_box_start(1);
    vault_box_stop();
    edit("CREATE TABLE spare AS SELECT proof FROM encryption;"
         "UPDATE encryption SET proof = flip(proof, 71)");
    does_not_open(1, ERR_FAILED_PRECONDITION, "ENCRYPTION_KEY");
    edit("UPDATE encryption SET proof = zeroblob(72)");
    does_not_open(1, ERR_FAILED_PRECONDITION, "ENCRYPTION_KEY");
    edit("UPDATE encryption SET proof = (SELECT proof FROM spare)");
    expect(1, 0, 0);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, vault_box_set_up, vault_box_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(another_master_key_or_none_is_refused),
        TEST(a_damaged_proof_or_one_of_another_version_is_refused),
        TEST(a_wrapped_key_with_a_flipped_bit_or_of_another_tenant_is_refused),
        TEST(values_that_were_changed_cut_or_moved_are_refused),
        TEST(a_value_whose_data_key_has_no_row_is_not_written),
        TEST(a_forgotten_tenant_is_unreadable_and_no_other),
        TEST(a_rotation_that_was_cut_off_changes_nothing),
        TEST(a_rotation_keeps_values_readable_and_admits_none_of_a_new_tenant_meanwhile),
        TEST(nothing_sealed_is_on_the_disk_in_clear),
        TEST(what_was_plain_is_sealed_at_the_next_start_and_leaves_no_trace),
        TEST(silences_of_an_earlier_schema_are_sealed_with_the_key_of_whom_they_are_about),
        TEST(a_kill_during_the_migration_leaves_one_state_or_the_other),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
