// SPDX-License-Identifier: Apache-2.0
// server/audit and proto/audit.h: the chain, trees, proofs, what a killed broker leaves, and a disk that is full.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/audit.h"
#include "proto/audit_verify.h"
#include "proto/auto.h"
#include "server/audit/audit.h"
#include "tests/harness/trail.h"
#include "tests/harness/wait.h"

enum { KILLS_USUAL = 25, LEAVES = 70, CALLS = 300 };

// ---- the tests

static void
a_changed_byte_is_named_with_its_record(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    size_t n, at;
    trail_make(50);
    uint8_t *auto_free bytes = trail_read(trail_path(1), &n);
    const struct audit_frame f = trail_frame(bytes, n, 20, &at);
    bytes[at + AUDIT_HEAD + f.n - 3] ^= 1;
    trail_write(trail_path(1), bytes, n);
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(seen.problems[AUDIT_CHANGED], 1);
    assert_int_equal(trail_problems(&seen), 1);
    assert_non_null(strstr(seen.text, "record 21"));
    assert_false(v.whole);
}

static void
a_record_that_was_taken_out_is_missing(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    size_t n, at;
    trail_make(50);
    uint8_t *auto_free bytes = trail_read(trail_path(1), &n);
    const struct audit_frame f = trail_frame(bytes, n, 20, &at);
    memmove(bytes + at, bytes + at + f.bytes, n - at - f.bytes);
    trail_write(trail_path(1), bytes, n - f.bytes);
    (void)trail_verify(&seen);
    assert_int_equal(seen.problems[AUDIT_MISSING], 1);
    assert_non_null(strstr(seen.text, "21"));
}

static void
two_records_that_changed_places_are_named(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    size_t n, first, second;
    trail_make(50);
    uint8_t *auto_free bytes = trail_read(trail_path(1), &n);
    const struct audit_frame f = trail_frame(bytes, n, 20, &first);
    const struct audit_frame g = trail_frame(bytes, n, 21, &second);
    uint8_t both[2048];
    assert_true(f.bytes + g.bytes <= sizeof both);
    memcpy(both, bytes + second, g.bytes);
    memcpy(both + g.bytes, bytes + first, f.bytes);
    memcpy(bytes + first, both, f.bytes + g.bytes);
    trail_write(trail_path(1), bytes, n);
    (void)trail_verify(&seen);
    assert_true(seen.problems[AUDIT_REORDERED] >= 1);
}

// Every record from one on is written again, with a good chain, and without the key that signs.
static void
a_chain_that_was_made_anew_does_not_match_what_was_signed(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    size_t n, at = 0;
    uint8_t head[AUDIT_HASH] = {0};
    trail_make(50);
    uint8_t *auto_free bytes = trail_read(trail_path(1), &n);
    struct audit_frame f;
    for (unsigned i = 0; at < n; i++, at += f.bytes) {
        uint8_t *record = bytes + at + AUDIT_HEAD;
        assert_int_equal(audit_frame_read(bytes + at, n - at, &f), 1);
        if (i == 20)
            record[f.n - 1] = '8'; // of the tenant
        if (i > 20) {              // sequence, then the tag and length of `previous`
            const size_t previous = 1 + (i + 1 > 127 ? 2 : 1) + 2;
            memcpy(record + previous, head, AUDIT_HASH);
        }
        audit_hash(record, f.n, head);
        memcpy(record + f.n, head, AUDIT_HASH);
    }
    trail_write(trail_path(1), bytes, n);
    (void)trail_verify(&seen);
    assert_true(seen.problems[AUDIT_CHANGED] >= 1);
    assert_int_equal(seen.problems[AUDIT_MISSING] + seen.problems[AUDIT_REORDERED], 0);
    assert_non_null(strstr(seen.text, "signed"));
}

static void
another_key_is_refused(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    char path[128];
    trail_make(10);
    (void)snprintf(path, sizeof path, "%s/audit.pub", trail_folder);
    int auto_close fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "00000000", 8, sizeof AUDIT_KEY_PREFIX - 1), 8);
    (void)trail_verify(&seen);
    assert_true(seen.problems[AUDIT_FOREIGN] >= 1);
}

static void
a_torn_end_is_kept_and_the_chain_goes_on(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct stat before, after;
    trail_make(50);
    assert_int_equal(stat(trail_path(1), &before), 0);
    assert_int_equal(truncate(trail_path(1), before.st_size - 7), 0);
    (void)trail_verify(&seen);
    assert_int_equal(seen.problems[AUDIT_TORN], 1);
    trail_make(5);
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
    assert_true(v.whole && v.recovered == 1 && v.files == 2);
    assert_int_equal(stat(trail_path(1), &after), 0);
    assert_int_equal(after.st_size, before.st_size - 7);
}

static void
a_chain_runs_over_files_and_starts(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct audit_settings s = trail_settings();
    s.rotate_bytes = 4096;
    for (unsigned round = 0; round < 3; round++) {
        struct audit *a = trail_open(&s);
        for (unsigned i = 0; i < CALLS; i++) {
            trail_call(a, "/stockade.v1.SandboxService/Create");
            if (i % 50 == 0)
                assert_int_equal(trail_wait(a).code, 0);
        }
        audit_close(a, 0);
    }
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
    assert_true(v.whole && v.files > 3);
    assert_int_equal(v.calls, 3 * CALLS);
    assert_int_equal(v.not_signed, 0);
}

static void
old_files_go_and_the_log_says_so(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct audit_settings s = trail_settings();
    s.rotate_bytes = 4096;
    s.keep = 2;
    struct audit *a = trail_open(&s);
    for (unsigned i = 0; i < CALLS; i++) {
        trail_call(a, "/stockade.v1.SandboxService/Create");
        assert_int_equal(trail_wait(a).code, 0);
    }
    audit_close(a, 0);
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
    assert_int_equal(v.files, 2);
    assert_true(v.first > 1);
    assert_int_not_equal(access(trail_path(1), F_OK), 0);
}

static void
each_record_of_a_tree_has_a_proof_and_no_other(void **unused)
{
    (void)unused;
    uint8_t leaf[LEAVES][AUDIT_HASH], scratch[LEAVES][AUDIT_HASH], root[AUDIT_HASH];
    uint8_t path[AUDIT_PATH_MAX][AUDIT_HASH];
    ProtobufCBinaryData data[AUDIT_PATH_MAX];
    for (unsigned i = 0; i < LEAVES; i++)
        audit_hash((const uint8_t *)&i, sizeof i, leaf[i]);
    for (size_t n = 1; n <= LEAVES; n++) {
        audit_tree_root((const uint8_t(*)[AUDIT_HASH])leaf, n, scratch, root);
        for (size_t i = 0; i < n; i++) {
            const size_t steps =
                audit_tree_path((const uint8_t(*)[AUDIT_HASH])leaf, n, i, scratch, path);
            for (size_t k = 0; k < steps; k++)
                data[k] = (ProtobufCBinaryData){AUDIT_HASH, path[k]};
            assert_true(audit_tree_has(leaf[i], i, n, data, steps, root));
            assert_false(audit_tree_has(leaf[(i + 1) % LEAVES], i, n, data, steps, root));
            assert_false(audit_tree_has(leaf[i], i, n, data, steps + 1, root));
            if (n > 1)
                assert_false(audit_tree_has(leaf[i], i ^ 1, n, data, steps, root));
            if (steps > 0)
                assert_false(audit_tree_has(leaf[i], i, n, data, steps - 1, root));
        }
    }
}

// RLIMIT_FSIZE is a full disk that needs no file system: write(2) fails with EFBIG.
static void
a_full_disk_refuses_changes_and_recovers_by_itself(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct err e;
    struct rlimit old, small;
    struct audit_settings s = trail_settings();
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct audit *a = trail_open(&s);
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, 0);
    assert_int_equal(audit_admit(a, &e), 0);
    small = old;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct err why = {0};
    for (unsigned i = 0; i < CALLS && why.code == 0; i++) {
        trail_call(a, "/stockade.v1.SandboxService/Create");
        why = trail_wait(a);
    }
    assert_int_equal(why.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(why.reason, "AUDIT_FULL");
    assert_true(audit_admit(a, &e) < 0);
    assert_string_equal(e.reason, "AUDIT_FULL");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    wait_within("changes are allowed again", WAIT_MS, audit_admit(a, &e) == 0)(void)
        uv_run(&trail_loop, UV_RUN_NOWAIT);
    trail_call(a, "/stockade.v1.SandboxService/Delete");
    assert_int_equal(trail_wait(a).code, 0);
    audit_close(a, 0);
    (void)trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
}

// A queue that is full: what did not fit is counted, and the log says how much.
static void
what_finds_no_room_is_counted_in_the_log(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct err e;
    struct rlimit old, small;
    struct audit_settings s = trail_settings();
    s.records = AUDIT_RECORDS_MAX;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct audit *a = trail_open(&s);
    assert_int_equal(trail_wait(a).code, 0);
    small = old;
    small.rlim_cur = 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const unsigned many = AUDIT_QUEUE_BYTES / 20;
    for (unsigned i = 0; i < many; i++)
        trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    wait_within("changes are allowed again", WAIT_MS, audit_admit(a, &e) == 0)
    {
        (void)uv_run(&trail_loop, UV_RUN_NOWAIT);
        trail_call(a, "/stockade.v1.SandboxService/Delete");
    }
    audit_close(a, 0);
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
    assert_true(v.missed > 0);
    assert_true(v.calls + v.missed > many);
}

static void
kill_it(void)
{
    (void)kill(getpid(), SIGKILL);
}

// A child writes; it is killed at a random moment; the log is whole, and what it waited for is in it.
static void
on_rekeyed(struct audit_rekey *w, const struct err *e)
{
    (void)w;
    assert_null(e);
}

static void
what_is_no_list_of_keys_is_refused(void **unused)
{
    uint8_t keys[AUDIT_KEYS_MAX][AUDIT_KEY];
    char text[AUDIT_KEYS_TEXT + 128], more[AUDIT_KEYS_TEXT + 128];
    static const char *const wrong[] = {"", "\n \n", "stockade-audit-key", "ab",
                                        "stockade-audit-key 0\n"};
    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(audit_keys_read(wrong[i], keys), 0);
    randombytes_buf(keys, sizeof keys);
    const size_t n = audit_keys_write((const uint8_t(*)[AUDIT_KEY])keys, AUDIT_KEYS_MAX, text);
    assert_int_equal(n, strlen(text));
    uint8_t again[AUDIT_KEYS_MAX][AUDIT_KEY];
    assert_int_equal(audit_keys_read(text, again), AUDIT_KEYS_MAX);
    assert_memory_equal(again, keys, sizeof keys);
    (void)snprintf(more, sizeof more, "%s%.84s", text, text); // one too many
    assert_int_equal(audit_keys_read(more, again), 0);
    text[n - 3] = 'g'; // of the last one
    assert_int_equal(audit_keys_read(text, again), 0);
}

static void
a_kill_at_any_moment_leaves_a_log_that_can_be_checked(void **unused)
{
    (void)unused;
    const char *more = getenv("STOCKADE_AUDIT_KILLS");
    const unsigned kills = more != NULL ? (unsigned)atoi(more) : KILLS_USUAL;
    struct trail_seen seen;
    uint64_t promised = 0;
    for (unsigned i = 0; i < kills; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct audit_settings s = trail_settings();
            s.sync = i % 8 == 0 ? AUDIT_SYNC_ALWAYS : AUDIT_SYNC_INTERVAL;
            s.rotate_bytes = i % 3 == 0 ? 8192 : s.rotate_bytes;
            s.keep = 0;
            (void)close(ends[0]);
            (void)uv_loop_fork(&trail_loop);
            struct audit *a = trail_open(&s);
            struct audit_rekey rekey = {.done = on_rekeyed};
            struct err e;
            if (i < AUDIT_KEYS_MAX - 2 && i % 2 == 0)
                assert_int_equal(audit_rekey(a, &rekey, &e), 0);
            for (;;) {
                const unsigned batch = 1 + randombytes_uniform(40);
                for (unsigned k = 0; k < batch; k++)
                    trail_call(a, "/stockade.v1.SandboxService/Create");
                if (trail_wait(a).code != 0 || write(ends[1], &batch, sizeof batch) != sizeof batch)
                    kill_it();
            }
        }
        (void)close(ends[1]);
        time_passes("a kill at a random moment", 1 + randombytes_uniform(20));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        unsigned batch;
        while (read(ends[0], &batch, sizeof batch) == sizeof batch)
            promised += batch;
        (void)close(ends[0]);
    }
    trail_make(0);
    const struct audit_verified v = trail_verify(&seen);
    if (trail_problems(&seen) > 0)
        fail_msg("%s", seen.text);
    assert_true(v.whole);
    assert_true(v.calls >= promised);
    print_message("%u kills, %llu calls promised, %llu there, %u torn ends\n", kills,
                  (unsigned long long)promised, (unsigned long long)v.calls, v.recovered);
}

static void
a_key_that_others_can_write_is_refused(void **unused)
{
    (void)unused;
    struct audit *a = NULL;
    struct err e;
    char path[128];
    const struct audit_settings s = trail_settings();
    trail_make(1);
    (void)snprintf(path, sizeof path, "%s/audit.key", trail_folder);
    assert_int_equal(chmod(path, 0666), 0);
    assert_true(audit_open(&s, trail_folder, "", &a, &e) < 0);
    assert_string_equal(e.reason, "AUDIT_FILE");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 3), 0);
    assert_true(audit_open(&s, trail_folder, "", &a, &e) < 0);
    assert_string_equal(e.reason, "AUDIT_KEY");
}

// Nor while the first one is in the middle of a record, where the second would go on in another file.
static void
two_brokers_do_not_write_to_one_log(void **unused)
{
    (void)unused;
    struct audit *second = NULL;
    struct err e;
    struct stat st;
    const struct audit_settings s = trail_settings();
    struct audit *a = trail_open(&s);
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, 0);
    assert_int_equal(stat(trail_path(1), &st), 0);
    assert_int_equal(truncate(trail_path(1), st.st_size - 7), 0);
    assert_true(audit_open(&s, trail_folder, "", &second, &e) < 0);
    assert_string_equal(e.reason, "AUDIT_IN_USE");
    audit_close(a, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, trail_set_up, trail_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_changed_byte_is_named_with_its_record),
        TEST(a_record_that_was_taken_out_is_missing),
        TEST(two_records_that_changed_places_are_named),
        TEST(a_chain_that_was_made_anew_does_not_match_what_was_signed),
        TEST(another_key_is_refused),
        TEST(a_torn_end_is_kept_and_the_chain_goes_on),
        TEST(a_chain_runs_over_files_and_starts),
        TEST(old_files_go_and_the_log_says_so),
        TEST(each_record_of_a_tree_has_a_proof_and_no_other),
        TEST(a_full_disk_refuses_changes_and_recovers_by_itself),
        TEST(what_finds_no_room_is_counted_in_the_log),
        TEST(what_is_no_list_of_keys_is_refused),
        TEST(a_kill_at_any_moment_leaves_a_log_that_can_be_checked),
        TEST(a_key_that_others_can_write_is_refused),
        TEST(two_brokers_do_not_write_to_one_log),
    };
    return sodium_init() >= 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
