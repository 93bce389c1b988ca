// SPDX-License-Identifier: Apache-2.0
// server/state: the database at the start, the queue, and what is on the disk when a process dies.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "proto/auto.h"
#include "server/state/state.h"
#include "server/vault/vault.h"

enum { KILLS_USUAL = 40 };

static char folder[64];

static int
set_up(void **unused)
{
    (void)unused;
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-state-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static const char *
path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int
tear_down(void **unused)
{
    static const char *const names[] = {"stockade.db", "stockade.db-wal", "stockade.db-journal",
                                        "copy.db"};
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

static void
edit(const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of("stockade.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

// Opens and closes it, with the writer, so that all is in the file.
static void
make(void)
{
    struct state *s = NULL;
    struct err e;
    assert_int_equal(state_open(folder, &s, &e), 0);
    state_close(s);
}

static void
refuses(enum err_code code, const char *reason)
{
    struct state *s = NULL;
    struct err e;
    assert_true(state_open(folder, &s, &e) < 0);
    assert_null(s);
    assert_int_equal(e.code, code);
    assert_string_equal(e.reason, reason);
    assert_true(e.hint[0] != '\0');
}

static void
damage(const char *bytes, size_t n, off_t at)
{
    int auto_close fd = open(path_of("stockade.db"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
}

static void
a_newer_schema_is_refused_and_left_as_it_is(void **unused)
{
    struct stat before, after;
    (void)unused;
    make();
    edit("PRAGMA user_version = 1000");
    assert_int_equal(stat(path_of("stockade.db"), &before), 0);
    refuses(ERR_FAILED_PRECONDITION, "STATE_NEWER");
    assert_int_equal(stat(path_of("stockade.db"), &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
}

static void
a_database_of_another_program_is_refused(void **unused)
{
    (void)unused;
    edit("CREATE TABLE theirs (a); PRAGMA application_id = 7");
    refuses(ERR_FAILED_PRECONDITION, "STATE_FOREIGN");
}

static void
a_file_that_is_no_database_is_refused(void **unused)
{
    char text[8192];
    (void)unused;
    memset(text, 'x', sizeof text);
    damage(text, sizeof text, 0);
    refuses(ERR_DATA_LOSS, "STATE_DAMAGED");
}

static void
a_damaged_page_is_refused(void **unused)
{
    char noise[4096];
    struct stat st;
    struct state *s = NULL;
    struct err e;
    (void)unused;
    make();
    assert_int_equal(stat(path_of("stockade.db"), &st), 0);
    assert_true(st.st_size >= 3 * 4096);
    memset(noise, 0xa5, sizeof noise);
    damage(noise, sizeof noise, st.st_size - 4096);
    assert_true(state_open(folder, &s, &e) < 0);
    assert_int_equal(e.code, ERR_DATA_LOSS);
}

static void
a_second_process_is_refused(void **unused)
{
    struct state *s = NULL;
    struct err e;
    (void)unused;
    assert_int_equal(state_open(folder, &s, &e), 0);
    refuses(ERR_FAILED_PRECONDITION, "STATE_IN_USE");
    state_close(s);
}

static void
a_link_in_place_of_the_file_is_refused(void **unused)
{
    struct state *s = NULL;
    struct err e;
    (void)unused;
    assert_int_equal(symlink("/tmp/elsewhere.db", path_of("stockade.db")), 0);
    assert_true(state_open(folder, &s, &e) < 0);
    assert_int_equal(access("/tmp/elsewhere.db", F_OK), -1);
}

static void
the_folder_and_the_file_are_closed_to_others(void **unused)
{
    struct stat st;
    (void)unused;
    assert_int_equal(chmod(folder, 0755), 0);
    make();
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(path_of("stockade.db"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static int
take_secret(void *cookie, const struct state_value *value, struct err *e)
{
    (void)e;
    assert_int_equal(value[0].kind, STATE_BYTES);
    assert_int_equal(value[0].n, 32);
    memcpy(cookie, value[0].bytes, 32);
    return 0;
}

static void
the_secret_is_made_once(void **unused)
{
    uint8_t first[32] = {0}, second[32] = {0};
    struct state *s = NULL;
    struct err e;
    (void)unused;
    assert_int_equal(state_open(folder, &s, &e), 0);
    assert_int_equal(state_read(s, STATE_SECRETS, take_secret, first, &e), 0);
    state_close(s);
    assert_false(sodium_is_zero(first, sizeof first));
    assert_int_equal(state_open(folder, &s, &e), 0);
    assert_int_equal(state_read(s, STATE_SECRETS, take_secret, second, &e), 0);
    state_close(s);
    assert_memory_equal(first, second, sizeof first);
}

// ---- changes

struct answers {
    uint64_t done, refused, rows;
    int32_t code;
};

static void
on_done(void *cookie, uint64_t rows, const struct err *e)
{
    struct answers *a = cookie;
    a->done++;
    a->rows += rows;
    if (e != NULL) {
        a->refused++;
        a->code = e->code;
    }
}

static int
add_key(struct state *s, unsigned number, state_done *done, void *cookie, struct err *e)
{
    char id[16];
    uint8_t hash[32] = {0};
    (void)snprintf(id, sizeof id, "key%u", number);
    memcpy(hash, &number, sizeof number);
    const struct state_value value[] = {
        STATE_OF_TEXT(id),       STATE_OF_TEXT("uid:1"),
        STATE_OF_TEXT("label"),  STATE_OF_TEXT("a b"),
        STATE_OF_TEXT("stk_12"), STATE_OF_BYTES(hash, sizeof hash),
        STATE_OF_NUMBER(1000),   STATE_OF_NUMBER(INT64_C(1) << 40),
        STATE_OF_TEXT("uid:0"),
    };
    return state_write(s, STATE_KEY_ADD, value, done, cookie, e);
}

static int
count_row(void *cookie, const struct state_value *value, struct err *e)
{
    (void)e;
    assert_int_equal(value[5].n, 32);
    ++*(unsigned *)cookie;
    return 0;
}

static unsigned
keys_on_disk(void)
{
    struct state *s = NULL;
    struct err e;
    unsigned n = 0;
    assert_int_equal(state_open(folder, &s, &e), 0);
    assert_int_equal(state_read(s, STATE_KEYS, count_row, &n, &e), 0);
    state_close(s);
    return n;
}

static void
start(struct state **s, uv_loop_t *loop)
{
    struct err e;
    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(state_open(folder, s, &e), 0);
    assert_int_equal(state_start(*s, loop, &e), 0);
}

static void
stop(struct state *s, uv_loop_t *loop)
{
    state_close(s);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void
a_refused_change_harms_no_other_of_its_transaction(void **unused)
{
    struct state *s = NULL;
    uv_loop_t loop;
    struct answers a = {0};
    struct err e;
    (void)unused;
    start(&s, &loop);
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(add_key(s, i == 20 ? 19 : i, on_done, &a, &e), 0);
    stop(s, &loop); // answers all
    assert_int_equal(a.done, 50);
    assert_int_equal(a.refused, 1);
    assert_int_equal(a.code, ERR_ALREADY_EXISTS);
    assert_int_equal(a.rows, 49);
    assert_int_equal(keys_on_disk(), 49);
}

static void
the_queue_has_an_end(void **unused)
{
    struct state *s = NULL;
    uv_loop_t loop;
    struct answers a = {0};
    struct err e;
    (void)unused;
    start(&s, &loop);
    // without a turn of the loop nothing leaves the queue, however fast the writer is
    for (unsigned i = 0; i < STATE_QUEUE_MAX; i++)
        assert_int_equal(add_key(s, i, on_done, &a, &e), 0);
    assert_true(add_key(s, STATE_QUEUE_MAX, on_done, &a, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "STATE_QUEUE");
    stop(s, &loop);
    assert_int_equal(a.done, STATE_QUEUE_MAX);
    assert_int_equal(a.refused, 0);
}

static void
a_change_too_large_is_refused(void **unused)
{
    struct state *s = NULL;
    uv_loop_t loop;
    struct err e;
    char *auto_free large = calloc(1, STATE_BYTES_MAX + 1);
    (void)unused;
    start(&s, &loop);
    const struct state_value value[] = {STATE_OF_BYTES(large, STATE_BYTES_MAX + 1)};
    assert_true(state_write(s, STATE_KEY_FORGET, value, NULL, NULL, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    stop(s, &loop);
}

static void
on_copied(void *cookie, int fd, uint64_t bytes, const struct err *e)
{
    assert_null(e);
    assert_true(bytes > 0);
    *(int *)cookie = fd;
}

static void
a_copy_is_a_whole_database(void **unused)
{
    struct state *s = NULL;
    uv_loop_t loop;
    struct err e;
    char bytes[4096];
    ssize_t n = 0;
    int fd = -1;
    (void)unused;
    start(&s, &loop);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(add_key(s, i, NULL, NULL, &e), 0);
    assert_int_equal(state_copy(s, on_copied, &fd, &e), 0);
    for (unsigned i = 10; i < 20; i++)
        assert_int_equal(add_key(s, i, NULL, NULL, &e), 0);
    stop(s, &loop);
    assert_true(fd >= 0);
    assert_int_equal(access(path_of("copy.db"), F_OK), -1);
    assert_int_equal(keys_on_disk(), 20);
    // as an operator restores it: in place of the database
    assert_int_equal(unlink(path_of("stockade.db")), 0);
    int auto_close to = open(path_of("stockade.db"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(to, bytes, (size_t)n), n);
    (void)close(fd);
    assert_int_equal(keys_on_disk(), 10);
}

// ---- kill -9

// Chains of changes of one kind, each begun when the one before is on the disk. From the second half of the kills on there is a master
// key: what is there is sealed, and so is what is written.
enum { OF_KEY, OF_REVOKED, OF_USE, OF_APPROVAL, OF_CALL, OF_RULES, KINDS };
enum { CHAINS_OF_KIND = 2 };

struct writing {
    struct state *s;
    unsigned *next; // number of the next change, of all chains
    unsigned kind, number;
    bool ends; // OF_CALL: the row is there, and gets its end
    int to;    // a pipe: one byte, the kind, for each change that was reported as made
};

static void report(void *cookie, uint64_t rows, const struct err *e);

static int
write_one(struct writing *w, struct err *e)
{
    uint8_t id[16] = {0};
    char name[32], of[8];
    memcpy(id, &w->number, sizeof w->number);
    (void)snprintf(of, sizeof of, "t%u", w->number % 8);
    (void)snprintf(name, sizeof name, "%08u", w->number);
    const struct state_value bytes = STATE_OF_BYTES(id, sizeof id), text = STATE_OF_TEXT(name),
                             tenant = STATE_OF_TEXT(of);
    const struct state_value number = STATE_OF_NUMBER(w->number);
    const struct state_value far = STATE_OF_NUMBER(INT64_C(1) << 50), none = STATE_OF_BYTES("", 0);
    const struct state_value revoked[] = {bytes, text, number}, use[] = {bytes, number, far},
                             approval[] = {text, number, tenant, none, bytes},
                             call[] = {bytes, bytes, tenant, number},
                             rules[] = {tenant, text, bytes},
                             end[] = {bytes, number, far, STATE_OF_BYTES(name, 8), tenant};
    static const enum state_change change[KINDS] = {STATE_KEY_ADD,    STATE_BLOCK_REVOKE,
                                                    STATE_USE,        STATE_APPROVAL_PUT,
                                                    STATE_CALL_BEGIN, STATE_RULE_FILE_PUT};
    const struct state_value *const values[KINDS] = {NULL, revoked, use, approval, call, rules};
    if (w->kind == OF_KEY)
        return add_key(w->s, w->number, report, w, e);
    return state_write(w->s, w->ends ? STATE_CALL_END : change[w->kind],
                       w->ends ? end : values[w->kind], report, w, e);
}

static void
report(void *cookie, uint64_t rows, const struct err *e)
{
    struct writing *w = cookie;
    struct err again;
    const char kind = (char)w->kind;
    const bool whole = w->kind != OF_CALL || w->ends;
    if (e != NULL || rows != 1 || (whole && write(w->to, &kind, 1) != 1))
        _exit(1);
    w->ends = !whole;
    w->number = whole ? (*w->next)++ : w->number;
    if (write_one(w, &again) < 0)
        _exit(2);
}

static void
never(uv_timer_t *t)
{
    (void)t;
}

// NULL: there is none.
static uint8_t *
master(bool sealed)
{
    uint8_t *key = sealed ? sodium_malloc(VAULT_MASTER) : NULL;
    if (key != NULL)
        memset(key, 7, VAULT_MASTER);
    return key;
}

// Writes as fast as it can until it is killed.
static _Noreturn void
child(int to, unsigned from, bool sealed)
{
    uv_loop_t loop;
    uv_timer_t alive; // the state keeps no loop alive
    struct state *s = NULL;
    struct vault *v = NULL;
    static struct writing w[KINDS * CHAINS_OF_KIND];
    struct err e;
    if (uv_loop_init(&loop) != 0 || state_open(folder, &s, &e) < 0 ||
        vault_open(s, master(sealed), &v, &e) < 0 || state_start(s, &loop, &e) < 0 ||
        uv_timer_init(&loop, &alive) != 0 || uv_timer_start(&alive, never, 3600000, 0) != 0)
        _exit(3);
    for (unsigned i = 0; i < sizeof w / sizeof w[0]; i++) {
        w[i] = (struct writing){.s = s, .next = &from, .kind = i % KINDS, .to = to};
        w[i].number = from++;
        if (write_one(&w[i], &e) < 0)
            _exit(4);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    _exit(5);
}

static int
count_ended(void *cookie, const struct state_value *value, struct err *e)
{
    unsigned *n = cookie;
    (void)e;
    *n += value[4].number != 0 && value[7].n == 8;
    return 0;
}

static int
count_any(void *cookie, const struct state_value *value, struct err *e)
{
    (void)value;
    (void)e;
    ++*(unsigned *)cookie;
    return 0;
}

// What is there of each kind. Checks the whole file, and, if it is sealed, each value.
static void
look_at_disk(unsigned found[KINDS], bool sealed)
{
    static const enum state_query query[KINDS] = {STATE_KEYS,      STATE_REVOKED, STATE_USES,
                                                  STATE_APPROVALS, STATE_CALLS,   STATE_RULE_FILES};
    struct vault *v = NULL;
    struct state *s = NULL;
    struct err e;
    sqlite3 *db = NULL;
    sqlite3_stmt *t = NULL;
    assert_int_equal(state_open(folder, &s, &e), 0);
    assert_int_equal(vault_open(s, master(sealed), &v, &e), 0);
    for (unsigned i = 0; i < KINDS; i++) {
        found[i] = 0;
        assert_int_equal(state_read(s, query[i],
                                    i == OF_CALL  ? count_ended
                                    : i == OF_KEY ? count_row
                                                  : count_any,
                                    &found[i], &e),
                         0);
    }
    state_close(s);
    vault_free(v);
    assert_int_equal(sqlite3_open(path_of("stockade.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &t, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(t), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(t, 0), "ok");
    (void)sqlite3_finalize(t);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

// After so many reports the process is killed, in the middle of the next transaction. STATE_KILLS: how often.
static void
what_was_reported_survives_kill_9(void **unused)
{
    const char *often = getenv("STATE_KILLS");
    const unsigned kills = often != NULL ? (unsigned)strtoul(often, NULL, 10) : KILLS_USUAL;
    unsigned reported[KINDS] = {0}, found[KINDS] = {0}, from = 0, all = 0, more = 0;
    (void)unused;
    for (unsigned i = 0; i < kills; i++) {
        int ends[2] = {-1, -1};
        char bytes[1];
        int status = 0;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        const pid_t pid = fork();
        const bool sealed = i >= kills / 2;
        if (pid == 0)
            child(ends[1], from, sealed);
        (void)close(ends[1]);
        const unsigned wanted = 1 + randombytes_uniform(40);
        for (unsigned got = 0; read(ends[0], bytes, 1) > 0; all++, got++) {
            reported[(unsigned)bytes[0]]++;
            if (got == wanted)
                assert_int_equal(kill(pid, SIGKILL), 0);
        }
        (void)close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        look_at_disk(found, sealed);
        for (unsigned k = 0; k < KINDS; k++) {
            assert_true(found[k] >= reported[k]);
            more += found[k] - reported[k];
            reported[k] = found[k];
        }
        from += 10000;
    }
    print_message("%u kills, %u changes reported, all there; %u more were made\n", kills, all,
                  more);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_newer_schema_is_refused_and_left_as_it_is),
        TEST(a_database_of_another_program_is_refused),
        TEST(a_file_that_is_no_database_is_refused),
        TEST(a_damaged_page_is_refused),
        TEST(a_second_process_is_refused),
        TEST(a_link_in_place_of_the_file_is_refused),
        TEST(the_folder_and_the_file_are_closed_to_others),
        TEST(the_secret_is_made_once),
        TEST(a_refused_change_harms_no_other_of_its_transaction),
        TEST(the_queue_has_an_end),
        TEST(a_change_too_large_is_refused),
        TEST(a_copy_is_a_whole_database),
        TEST(what_was_reported_survives_kill_9),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
