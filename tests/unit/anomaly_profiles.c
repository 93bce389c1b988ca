// SPDX-License-Identifier: Apache-2.0
// Profiles learn, freeze and compare; export and import keep every bit; an invalid file changes nothing.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "profile.pb-c.h"
#include "server/anomaly/profiles.h"

static struct bpf bpf;
static struct profiles *p;
static struct err e;

static int
set_up(void **state)
{
    (void)state;
    bpf = (struct bpf){0};
    for (int i = 0; i < BPF_FDS; i++)
        bpf.fd[i] = -1;
    bpf.profiles = calloc(WATCH_PROFILES, sizeof *bpf.profiles);
    bpf.profile_states = calloc(WATCH_PROFILES, sizeof *bpf.profile_states);
    p = calloc(1, sizeof *p);
    p->bpf = &bpf;
    p->sets_n = 2;
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(p->set[i].template, sizeof p->set[i].template, "t%u", i);
        p->set[i].wanted = 3;
        p->set[i].threshold = 8;
        profiles_reset(p, i);
    }
    memset(&e, 0, sizeof e);
    return sodium_init() < 0;
}

static int
tear_down(void **state)
{
    (void)state;
    free(bpf.profiles);
    free(bpf.profile_states);
    free(p);
    return 0;
}

static enum box_exe
runs(uint32_t template, uint64_t inode, const char *path)
{
    struct watch_exec x = {
        .exe = {.inode = inode, .size = 1, .magic = 2, .template = template, .owner = ~0U}};
    x.path_n = (uint32_t)strlen(path);
    memcpy(x.path, path, x.path_n);
    return profiles_exec(p, template, &x);
}

static enum box_exe
runs_own(uint32_t template)
{
    struct watch_exec x = {.exe = {.inode = 1, .template = template, .owner = 1000}};
    return profiles_exec(p, template, &x);
}

// Does what the kernel would do.
static void
set_bits(uint32_t slot, uint32_t first, uint32_t n, uint32_t step)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bit = (first + i * step) % WATCH_PROFILE_BITS;
        bpf.profiles[slot].bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
}

static void
a_kernel_without_profiles_learns_nothing(void **state)
{
    (void)state;
    struct profiles *none = calloc(1, sizeof *none);
    none->sets_n = 1;
    none->set[0].state = PROFILES_OFF;
    profiles_reset(none, 0);
    assert_int_equal(none->set[0].state, PROFILES_OFF);
    assert_true(profiles_import(none, 0, (const uint8_t *)"x", 1, false, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    free(none);
}

static void
an_empty_profile_cannot_be_frozen_or_exported(void **state)
{
    (void)state;
    uint8_t *bytes = NULL;
    size_t n = 0;
    assert_true(profiles_freeze(p, 0, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_true(profiles_export(p, 0, &bytes, &n, &e) < 0);
    assert_null(bytes);
    p->set[0].state = PROFILES_OFF;
    assert_true(profiles_freeze(p, 0, &e) < 0);
}

static void
after_its_runs_of_learning_new_executables_are_reported(void **state)
{
    (void)state;
    assert_int_equal(runs(0, 1, "/usr/bin/a"), BOX_EXE_KNOWN);
    assert_int_equal(runs(0, 2, "/usr/bin/b"), BOX_EXE_KNOWN);
    uint32_t slot = p->exe[0].slot;
    assert_in_range(slot, 1, WATCH_PROFILES - 1);
    assert_int_equal(bpf.profile_states[slot].mode, WATCH_PROFILE_LEARN);
    assert_false(profiles_run(p, 0));
    assert_false(profiles_run(p, 0));
    assert_true(profiles_run(p, 0));
    assert_int_equal(p->set[0].state, PROFILES_FROZEN);
    assert_int_equal(p->set[0].version, 1);
    assert_int_equal(bpf.profile_states[slot].mode, WATCH_PROFILE_JUDGE);
    assert_int_equal(bpf.profile_states[slot].threshold, 7); // more than 7 is reported
    assert_int_equal(runs(0, 1, "/usr/bin/a"), BOX_EXE_KNOWN);
    assert_int_equal(runs(0, 3, "/usr/bin/c"), BOX_EXE_NEW);
    // the other template continues to learn
    assert_int_equal(runs(1, 3, "/usr/bin/c"), BOX_EXE_KNOWN);
    assert_false(profiles_run(p, 0));
}

// The counts that the kernel would have after a run of the job.
static void
strays(uint32_t slot, uint32_t most)
{
    bpf.profile_states[slot].trigrams += 100;
    bpf.profile_states[slot].most = most;
    assert_false(profiles_run(p, 0));
}

static void
surprise_in_training_is_added_to_the_threshold(void **state)
{
    (void)state;
    p->set[0].wanted = 100;
    (void)runs(0, 1, "/usr/bin/a");
    (void)runs(0, 2, "/usr/bin/b");
    (void)runs(0, 3, "/usr/bin/c");
    (void)runs(1, 1, "/usr/bin/a");
    uint32_t a = p->exe[0].slot, b = p->exe[1].slot, c = p->exe[2].slot, other = p->exe[3].slot;
    bpf.profile_states[other].most = 55;
    strays(a, 180); // everything in the first run is new
    strays(a, 12);
    strays(a, 30);
    strays(a, 0);
    strays(b, 0);
    strays(b, WATCH_WINDOW + 55); // more than the kernel would count
    assert_int_equal(p->exe[0].runs, 4);
    assert_int_equal(p->exe[0].surprise, 30);
    assert_int_equal(p->exe[1].surprise, WATCH_WINDOW);
    assert_int_equal(p->exe[2].runs, 0);
    assert_int_equal(bpf.profile_states[other].most, 55); // another template's profile
    assert_int_equal(profiles_freeze(p, 0, &e), 0);
    assert_int_equal(bpf.profile_states[a].threshold, 8 + 30 - 1);
    assert_int_equal(bpf.profile_states[b].threshold, PROFILES_THRESHOLD_MAX - 1);
    assert_int_equal(bpf.profile_states[c].threshold, 8 - 1);
    p->set[0].threshold = 150; // above the maximum for `surprise`
    uint8_t *bytes = NULL;
    size_t n = 0;
    assert_int_equal(profiles_export(p, 0, &bytes, &n, &e), 0);
    profiles_reset(p, 0);
    assert_int_equal(profiles_import(p, 0, bytes, n, false, &e), 0);
    free(bytes);
    for (uint32_t i = 0; i < p->exes_n; i++)
        if (p->exe[i].key.template == 0 && p->exe[i].slot != 0)
            assert_int_equal(bpf.profile_states[p->exe[i].slot].threshold, 150 - 1);
}

static void
files_of_the_sandbox_are_learnt_as_one_fact_without_profile(void **state)
{
    (void)state;
    (void)runs(0, 1, "/usr/bin/a");
    assert_int_equal(profiles_freeze(p, 0, &e), 0);
    assert_int_equal(runs_own(0), BOX_EXE_NEW);
    assert_int_equal(runs_own(1), BOX_EXE_KNOWN);
    assert_true(p->set[1].own_files);
    (void)runs(1, 1, "/usr/bin/a");
    assert_int_equal(profiles_freeze(p, 1, &e), 0);
    assert_int_equal(runs_own(1), BOX_EXE_KNOWN);
    assert_int_equal(p->exes_n, 2);
}

static void
an_executable_of_another_template_is_not_used(void **state)
{
    (void)state;
    struct watch_exec x = {.exe = {.inode = 1, .template = 1, .owner = ~0U}};
    (void)profiles_exec(p, 0, &x);
    assert_int_equal(p->exes_n, 0);
}

static void
without_a_free_profile_an_executable_is_still_known(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= PROFILES_EXES + 10; i++)
        (void)runs(0, i, "/usr/bin/a");
    assert_int_equal(p->exes_n, PROFILES_EXES);
    assert_int_equal(p->exe[WATCH_PROFILES - 2].slot, WATCH_PROFILES - 1);
    assert_int_equal(p->exe[WATCH_PROFILES - 1].slot, 0);
    assert_true(p->left_out > 10);
    for (uint32_t i = 0; i < p->exes_n; i++) // each profile belongs to one executable
        for (uint32_t k = 0; k < i; k++)
            assert_true(p->exe[i].slot == 0 || p->exe[i].slot != p->exe[k].slot);
    profiles_reset(p, 0);
    assert_int_equal(p->exes_n, 0);
    (void)runs(1, 1, "/usr/bin/a");
    assert_int_not_equal(p->exe[0].slot, 0);
}

static void
a_reset_clears_the_profiles_of_one_template(void **state)
{
    (void)state;
    (void)runs(0, 1, "/usr/bin/a");
    (void)runs(1, 1, "/usr/bin/a");
    uint32_t gone = p->exe[0].slot;
    uint32_t kept = p->exe[1].slot;
    set_bits(gone, 5, 10, 1);
    set_bits(kept, 5, 10, 1);
    profiles_reset(p, 0);
    assert_int_equal(bpf.profile_states[gone].mode, WATCH_PROFILE_OFF);
    assert_int_equal(p->exes_n, 1);
    assert_int_equal(profiles_bits(p, &p->exe[0]), 10);
    for (uint64_t i = 2; i < WATCH_PROFILES; i++)
        (void)runs(0, i, "/usr/bin/b");
    assert_int_equal(image_count(&bpf.profiles[gone]), 0);
}

// Two executables, one with few bits and one with many.
static uint8_t *
example(size_t *n)
{
    uint8_t *bytes = NULL;
    (void)runs(0, 1, "/usr/bin/a");
    (void)runs(0, 2, "/usr/bin/b");
    (void)runs_own(0);
    set_bits(p->exe[0].slot, 0, 700, 373);
    set_bits(p->exe[0].slot, WATCH_PROFILE_BITS - 1, 1, 1);
    set_bits(p->exe[1].slot, 7, 20000, 13);
    (void)profiles_run(p, 0);
    assert_int_equal(profiles_export(p, 0, &bytes, n, &e), 0);
    return bytes;
}

static void
export_and_import_keep_every_bit(void **state)
{
    (void)state;
    size_t n = 0;
    uint8_t *bytes = example(&n);
    struct watch_profile *a = malloc(sizeof *a);
    struct watch_profile *b = malloc(sizeof *b);
    *a = bpf.profiles[p->exe[0].slot];
    *b = bpf.profiles[p->exe[1].slot];
    profiles_reset(p, 0);
    assert_int_equal(profiles_import(p, 0, bytes, n, true, &e), 0);
    assert_int_equal(p->set[0].state, PROFILES_LEARNING);
    assert_int_equal(p->set[0].runs, 1);
    assert_true(p->set[0].own_files);
    assert_string_equal(p->set[0].learnt_from, "");
    assert_int_equal(p->exes_n, 2);
    assert_string_equal(p->exe[1].path, "/usr/bin/b");
    assert_memory_equal(&bpf.profiles[p->exe[0].slot], a, sizeof *a);
    assert_memory_equal(&bpf.profiles[p->exe[1].slot], b, sizeof *b);
    uint8_t *again = NULL;
    size_t again_n = 0;
    assert_int_equal(profiles_export(p, 0, &again, &again_n, &e), 0);
    assert_int_equal(n, again_n);
    assert_memory_equal(bytes, again, n);
    free(a);
    free(b);
    free(bytes);
    free(again);
}

static void
an_import_is_frozen_and_has_a_newer_version(void **state)
{
    (void)state;
    size_t n = 0;
    uint8_t *bytes = example(&n);
    p->set[1].version = 9;
    assert_int_equal(profiles_import(p, 1, bytes, n, false, &e), 0);
    assert_int_equal(p->set[1].state, PROFILES_FROZEN);
    assert_int_equal(p->set[1].version, 10);
    assert_int_not_equal(p->set[1].frozen_s, 0);
    assert_string_equal(p->set[1].learnt_from, p->set[0].template);
    assert_int_equal(p->exe[2].key.template, 1);
    assert_int_equal(bpf.profile_states[p->exe[2].slot].mode, WATCH_PROFILE_JUDGE);
    assert_int_equal(runs(1, 1, "/usr/bin/a"), BOX_EXE_KNOWN);
    assert_int_equal(runs(1, 7, "/usr/bin/x"), BOX_EXE_NEW);
    free(bytes);
}

static void
every_changed_byte_and_every_truncation_is_detected(void **state)
{
    (void)state;
    size_t n = 0;
    uint8_t *bytes = example(&n);
    struct image_head head;
    for (size_t i = 0; i < n; i += 1 + i / 97) {
        uint8_t was = bytes[i];
        bytes[i] ^= (uint8_t)(1U << (i % 8));
        assert_true(image_read(bytes, n, &head, NULL, NULL, &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        bytes[i] = was;
        assert_true(image_read(bytes, i, &head, NULL, NULL, &e) < 0);
    }
    assert_int_equal(image_read(bytes, n, &head, NULL, NULL, &e), 0);
    free(bytes);
}

// Reads the bytes with a correct sum.
static int
reads(uint8_t *bytes, size_t n)
{
    struct image_head head;
    (void)crypto_generichash(bytes + n - 32, 32, bytes, n - 32, NULL, 0);
    return image_read(bytes, n, &head, NULL, NULL, &e);
}

// Reads a message made by the test, with a correct sum.
static int
reads_message(Stockade__Profile__Profile *m)
{
    uint8_t sum[32] = {0};
    m->sum = (ProtobufCBinaryData){sizeof sum, sum};
    size_t n = stockade__profile__profile__get_packed_size(m);
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    assert_int_equal(stockade__profile__profile__pack(m, bytes), n);
    int r = reads(bytes, n);
    free(bytes);
    return r;
}

static void
a_file_of_an_older_version_is_refused_by_name(void **state)
{
    (void)state;
    static uint8_t bytes[100] = {'S', 'T', 'K', 'P', 'R', 'O', 'F', 2};
    struct image_head head;
    assert_true(image_read(bytes, sizeof bytes, &head, NULL, NULL, &e) < 0);
    assert_non_null(strstr(e.text, "another version: reset the template"));
    assert_true(reads(bytes, sizeof bytes) < 0);
    assert_non_null(strstr(e.text, "another version: reset the template"));
}

static Stockade__Profile__Profile lie;
static Stockade__Profile__Executable lies[2];
static Stockade__Profile__Executable *lies_at[] = {&lies[0], &lies[1]};

static void
restore_truth(void)
{
    static uint8_t path[] = "/usr/bin/a";
    static uint8_t distances[] = {1, 0x80, 1};
    lie = (Stockade__Profile__Profile)STOCKADE__PROFILE__PROFILE__INIT;
    lie.version = 3;
    lie.template_ = "t0";
    lie.executables = lies_at;
    lie.n_executables = 2;
    for (uint64_t i = 0; i < 2; i++) {
        lies[i] = (Stockade__Profile__Executable)STOCKADE__PROFILE__EXECUTABLE__INIT;
        lies[i].inode = i + 1;
        lies[i].path = (ProtobufCBinaryData){sizeof path - 1, path};
        lies[i].distances = (ProtobufCBinaryData){sizeof distances, distances};
    }
}

static void
is_refused(const char *word)
{
    assert_true(reads_message(&lie) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    if (strstr(e.text, word) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", word, e.text);
    restore_truth();
}

static void
an_invalid_file_with_a_correct_sum_is_refused(void **state)
{
    (void)state;
    static uint8_t zero[] = {1, 0};
    static uint8_t beyond[] = {0xff, 0xff, 0x7f};
    static uint8_t endless[] = {0x80, 0x80, 0x80, 1};
    static uint8_t cut[] = {0x80};
    static uint8_t nul[] = "/a\0b";
    static uint8_t big[WATCH_PROFILE_BITS / 8 + 1];
    static char name[65];
    static Stockade__Profile__Executable *many[IMAGE_EXES_MAX + 1];
    restore_truth();
    assert_int_equal(reads_message(&lie), 0);
    lie.version = 4;
    is_refused("another version");
    lie.template_ = "a/b";
    is_refused("name");
    lie.template_ = "";
    is_refused("name");
    memset(name, 'a', sizeof name - 1);
    lie.template_ = name;
    is_refused("name");
    lie.frozen_s = 253402300800ULL;
    is_refused("time");
    for (size_t i = 0; i <= IMAGE_EXES_MAX; i++)
        many[i] = &lies[0];
    lie.executables = many;
    lie.n_executables = IMAGE_EXES_MAX + 1;
    is_refused("too many executables");
    lies[1].inode = 1;
    is_refused("executable 1: is there twice");
    lies[0].surprise = WATCH_WINDOW + 1;
    is_refused("surprises");
    lies[0].path = (ProtobufCBinaryData){WATCH_PATH, big};
    is_refused("path");
    lies[0].path = (ProtobufCBinaryData){4, nul};
    is_refused("NUL");
    lies[1].distances = (ProtobufCBinaryData){sizeof zero, zero};
    is_refused("executable 1: an invalid distance");
    lies[0].distances = (ProtobufCBinaryData){sizeof beyond, beyond};
    is_refused("distance");
    lies[0].distances = (ProtobufCBinaryData){sizeof endless, endless};
    is_refused("distance");
    lies[0].distances = (ProtobufCBinaryData){sizeof cut, cut};
    is_refused("distance");
    lies[0].bits = (ProtobufCBinaryData){sizeof big - 1, big};
    is_refused("bits"); // and distances as well
    lies[0].distances.len = 0;
    lies[0].bits = (ProtobufCBinaryData){sizeof big, big};
    is_refused("bits");
}

static void
the_same_executable_twice_is_refused(void **state)
{
    (void)state;
    static const struct watch_profile bits;
    struct image_head head = {.exes = 2, .template = "t"};
    struct image_exe one = {.key = {.inode = 5}, .path = "/x"};
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct image_writer *w = image_begin(&head, &e);
    assert_non_null(w);
    assert_int_equal(image_add(w, &one, &bits, &e), 0);
    assert_int_equal(image_add(w, &one, &bits, &e), 0);
    assert_true(image_add(w, &one, &bits, &e) < 0); // more than the announced number
    assert_int_equal(image_end(w, &bytes, &n, &e), 0);
    assert_true(image_read(bytes, n, &head, NULL, NULL, &e) < 0);
    assert_non_null(strstr(e.text, "twice"));
    free(bytes);
    image_free(w);
}

static void
a_refused_import_changes_nothing(void **state)
{
    (void)state;
    size_t n = 0;
    uint8_t *bytes = example(&n);
    assert_int_equal(profiles_freeze(p, 0, &e), 0);
    bytes[n - 1] ^= 1;
    assert_true(profiles_import(p, 0, bytes, n, false, &e) < 0);
    assert_int_equal(p->exes_n, 2);
    assert_int_equal(p->set[0].version, 1);
    assert_int_equal(runs(0, 1, "/usr/bin/a"), BOX_EXE_KNOWN);
    free(bytes);
}

static void
profiles_that_are_too_large_together_are_refused(void **state)
{
    (void)state;
    for (uint64_t i = 1; i < 200; i++) {
        (void)runs(0, i, "/usr/bin/a");
        set_bits(p->exe[i - 1].slot, 0, 100000, 1);
    }
    uint8_t *bytes = NULL;
    size_t n = 0;
    assert_true(profiles_export(p, 0, &bytes, &n, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_null(bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(a_kernel_without_profiles_learns_nothing),
        T(an_empty_profile_cannot_be_frozen_or_exported),
        T(after_its_runs_of_learning_new_executables_are_reported),
        T(surprise_in_training_is_added_to_the_threshold),
        T(files_of_the_sandbox_are_learnt_as_one_fact_without_profile),
        T(an_executable_of_another_template_is_not_used),
        T(without_a_free_profile_an_executable_is_still_known),
        T(a_reset_clears_the_profiles_of_one_template),
        T(export_and_import_keep_every_bit),
        T(an_import_is_frozen_and_has_a_newer_version),
        T(every_changed_byte_and_every_truncation_is_detected),
        T(a_file_of_an_older_version_is_refused_by_name),
        T(an_invalid_file_with_a_correct_sum_is_refused),
        T(the_same_executable_twice_is_refused),
        T(a_refused_import_changes_nothing),
        T(profiles_that_are_too_large_together_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
