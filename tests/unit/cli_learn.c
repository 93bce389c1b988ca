// SPDX-License-Identifier: Apache-2.0
// client/cli/learn.c: what is missing is said in the written policy, and no text of a job becomes a part of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "client/cli/learn.h"
#include "proto/validate.h"

#define JOB "0123456789abcdef0123456789abcdef"

static Stockade__V1__Record record;
static Stockade__V1__Completeness completeness;
static struct learnt_job job;

static void
reset(void)
{
    static const char *const args[] = {"echo", "a"};
    stockade__v1__record__init(&record);
    stockade__v1__completeness__init(&completeness);
    completeness.complete = true;
    record.completeness = &completeness;
    job = (struct learnt_job){
        .template = "wide", .id = JOB, .args = args, .args_n = 2, .record = &record, .ended = true};
}

// The policy; free it.
static char *
written(struct learning *l)
{
    char *text = NULL;
    size_t n = 0;
    struct err e;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    if (learning_write(l, f, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(fclose(f), 0);
    learning_free(l);
    return text;
}

static struct learning *
with_job(void)
{
    struct err e;
    struct learning *l = learning_new();
    assert_non_null(l);
    assert_int_equal(learning_add(l, &job, &e), 0);
    return l;
}

static void
assert_says(struct learning *l, const char *first, const char *second)
{
    char *text = written(l);
    if (strstr(text, first) == NULL || strstr(text, second) == NULL)
        fail_msg("neither \"%s\" nor \"%s\" may be missing in: %s", first, second, text);
    assert_non_null(strstr(text, "so it may be too narrow")); // the layer itself says so
    free(text);
}

static void
what_a_record_lacks_is_said(void **state)
{
    Stockade__V1__Lost lost = STOCKADE__V1__LOST__INIT, *all[] = {&lost};
    const char *missing[] = {"connect: off"};
    (void)state;
    reset();
    lost.event_class = "exec";
    lost.events = 7;
    completeness.lost = all;
    completeness.n_lost = 1;
    completeness.complete = false;
    completeness.missing = missing;
    completeness.n_missing = 1;
    assert_says(with_job(), "# INCOMPLETE: \"job 0123456789ab: 7 events of class exec were lost\"",
                "not watched: connect: off");
    reset();
    record.cut = true;
    assert_says(with_job(), "are not in its record", "# INCOMPLETE: not all");
    reset();
    job.ended = false;
    assert_says(with_job(), "it has not ended", "# INCOMPLETE: not all");
    reset();
    job.record = NULL;
    assert_says(with_job(), "nothing recorded what it did", "# INCOMPLETE: not all");
}

static void
what_does_not_fit_is_said(void **state)
{
    struct err e;
    char line[32];
    const char *args[] = {"sh", "-c", line};
    (void)state;
    reset();
    struct learning *l = with_job();
    job.args = args;
    job.args_n = 3;
    for (int i = 0; i < 70; i++) { // a rule has up to 64 lines
        (void)snprintf(line, sizeof line, "echo %d", i);
        assert_int_equal(learning_add(l, &job, &e), 0);
    }
    assert_says(l, "# ... and more that did not fit here: 6 times", "# INCOMPLETE: not all");
}

static void
a_complete_record_gives_a_policy_without_a_warning(void **state)
{
    (void)state;
    reset();
    char *text = written(with_job());
    assert_null(strstr(text, "INCOMPLETE"));
    assert_null(strstr(text, "too narrow"));
    assert_non_null(strstr(text, "\"echo a\" (job 0123456789ab)"));
    free(text);
}

// A job chooses its command: one with '*' must not become a pattern that allows others.
static void
a_command_that_would_mean_others_is_left_out(void **state)
{
    static const char *const wide[][3] = {{"*", NULL},          {"git", "*", NULL},
                                          {"sh", "-c", "ls *"}, {"a\nb", "c", NULL},
                                          {"\x01", NULL},       {"*", "", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        reset();
        job.args = wide[i];
        job.args_n = wide[i][1] == NULL ? 1 : wide[i][2] == NULL ? 2 : 3;
        char *text = written(with_job());
        assert_non_null(strstr(text, "would allow other commands"));
        assert_non_null(strstr(text, "# INCOMPLETE: \"job 0123456789ab: the command "));
        assert_null(strstr(text, "\n# command"));
        assert_null(strstr(text, "\n# line"));
        assert_null(strstr(strstr(text, "\nlayers:\n"), "commands:"));
        free(text);
    }
    static const char *const script[] = {"sh", "-c", "true\nfalse"};
    reset(); // which is shown as what it is
    job.args = script;
    job.args_n = 3;
    char *text = written(with_job());
    assert_null(strstr(text, "INCOMPLETE"));
    assert_non_null(strstr(text, "('*' stands for any text) \"sh -c true*false\""));
    free(text);
}

// For YAML a line ends at LF, CR, U+0085, U+2028 and U+2029.
static bool
ends_line(const char *p)
{
    return *p == '\n' || *p == '\r' || strncmp(p, "\xc2\x85", 2) == 0 ||
           strncmp(p, "\xe2\x80\xa8", 3) == 0 || strncmp(p, "\xe2\x80\xa9", 3) == 0;
}

// U+202E, which shows what follows from right to left.
static const char backwards[] = {'/', 'x', (char)0xe2, (char)0x80, (char)0xae, 'y', '\0'};

static void
no_text_of_a_job_is_more_than_a_text(void **state)
{
    static const char *const hostile[] = {"/x\nlayers: []\n#",
                                          "/x\r- y",
                                          "/x\xc2\x85layers: []",
                                          "/x\xe2\x80\xa8layers: []",
                                          "/x\xe2\x80\xa9layers: []",
                                          backwards,
                                          "/x\" \"#",
                                          "/x\xff\xc2layers",
                                          "/x\\",
                                          "/x\x1b[2Jlayers",
                                          "\xef\xbb\xbf/x",
                                          "/*",
                                          "*",
                                          "*.org",
                                          "@pypi",
                                          "10.0.0.0/8",
                                          "a b",
                                          ""};
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        Stockade__V1__Execution run = STOCKADE__V1__EXECUTION__INIT, *runs[] = {&run};
        Stockade__V1__Denial denial = STOCKADE__V1__DENIAL__INIT, *denials[] = {&denial};
        Stockade__V1__FileTransfer transfer = STOCKADE__V1__FILE_TRANSFER__INIT;
        Stockade__V1__FileOpen file = STOCKADE__V1__FILE_OPEN__INIT;
        Stockade__V1__Event event = STOCKADE__V1__EVENT__INIT;
        const char *reached[] = {hostile[i]}, *args[] = {"echo", hostile[i]};
        struct err e;
        reset();
        run.path = hostile[i];
        record.executed = runs;
        record.n_executed = 1;
        denial.operation = "dns";
        denial.destination = hostile[i];
        record.denials = denials;
        record.n_denials = 1;
        record.reached = reached;
        record.n_reached = 1;
        job.args = args;
        struct learning *l = with_job();
        transfer.direction = "in";
        transfer.path = hostile[i];
        file.operation = "open";
        file.resolved = hostile[i];
        event.template_ = "wide";
        event.process_id = JOB;
        event.detail_case = STOCKADE__V1__EVENT__DETAIL_TRANSFER;
        event.transfer = &transfer;
        assert_int_equal(learning_add_event(l, &event, &e), 0);
        event.detail_case = STOCKADE__V1__EVENT__DETAIL_FILE;
        event.file = &file;
        assert_int_equal(learning_add_event(l, &event, &e), 0);
        char *text = written(l); // which reads it back
        const char *layers = strstr(text, "\nlayers:\n");
        assert_non_null(layers);
        assert_null(strstr(layers + 1, "\nlayers:"));
        for (const char *p = text; p < layers; p++)
            assert_true(!ends_line(p) || (p[0] == '\n' && p[1] == '#'));
        const char *destinations =
            strstr(layers, "destinations: "); // of the rule that denies all others
        assert_non_null(destinations);
        assert_null(strstr(destinations + 1, "destinations: "));
        assert_null(strstr(text, backwards + 2));
        assert_null(strchr(text, '\x1b'));
        free(text);
    }
}

int
main(void)
{
    struct err e;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_record_lacks_is_said),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(a_command_that_would_mean_others_is_left_out),
        cmocka_unit_test(a_complete_record_gives_a_policy_without_a_warning),
        cmocka_unit_test(no_text_of_a_job_is_more_than_a_text),
    };
    if (sodium_init() < 0 || validate_init(&e) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
