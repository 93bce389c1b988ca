// SPDX-License-Identifier: Apache-2.0
// client/cli/options.c and the tables of client/cli/commands.c and options_*.c.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/options.h"
#include "proto/words.h"

enum { WORDS_MAX = 600 };

struct line {
    struct options o;
    struct problem p;
    int rc;
};

// Parses "stockade NAME WORDS..."; the caller calls options_free().
static void
parse(struct line *l, const char *name, const char *const *words)
{
    static char *argv[WORDS_MAX];
    const struct command *c = command_find(name);
    int argc = 0;
    assert_non_null(c);
    memset(l, 0, sizeof *l);
    for (; words[argc] != NULL; argc++) {
        union {
            const char *from;
            char *to;
        } word = {.from = words[argc]};
        argv[argc] = word.to;
    }
    argv[argc] = NULL;
    l->rc = options_parse(&l->o, c->options, c->rest, argc, argv, &l->p);
}

#define PARSE(line, name, ...) parse(line, name, (const char *const[]){__VA_ARGS__, NULL})

static void
an_unknown_option_is_refused_and_the_nearest_one_is_named(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "run", "--memry", "5M", "true");
    assert_int_equal(l.rc, -EINVAL);
    assert_string_equal(l.p.why, "there is no option '--memry'");
    assert_string_equal(l.p.hint, "did you mean --memory?");
    PARSE(&l, "run", "--time", "5s", "true");
    assert_string_equal(l.p.hint, "did you mean --timeout?");
    PARSE(&l, "run", "--zzzzzzzz", "true");
    assert_int_equal(l.rc, -EINVAL);
    assert_string_equal(l.p.hint, "");
    PARSE(&l, "run", "-Z", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "ls", "--memory", "5M");
    assert_int_equal(l.rc, -EINVAL);
    assert_string_equal(command_nearest("exce"), "exec");
    assert_null(command_nearest("frobnicate"));
}

static void
a_wrong_or_missing_value_is_refused_with_an_example(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "run", "--memory", "0", "true");
    assert_int_equal(l.rc, -EINVAL);
    assert_non_null(strstr(l.p.why, "256M"));
    PARSE(&l, "run", "--timeout");
    assert_int_equal(l.rc, -EINVAL);
    assert_non_null(strstr(l.p.why, "needs a value"));
    PARSE(&l, "run", "--network", "wifi", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "--label", "novalue", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "--label", "=x", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "--env", "=x", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "--bill=yes", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "-o", "xml", "true");
    assert_int_equal(l.rc, -EINVAL);
    PARSE(&l, "run", "--template", "", "true");
    assert_int_equal(l.rc, -EINVAL);
    options_free(&l.o);
}

static void
more_pairs_than_fit_are_refused(void **state)
{
    static const char *words[WORDS_MAX];
    struct line l;
    size_t n = 0;
    (void)state;
    for (; n < 2 * OPTIONS_PAIRS_MAX;) {
        words[n++] = "-e";
        words[n++] = "A=1";
    }
    words[n] = NULL;
    parse(&l, "run", words);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.o.env_n, OPTIONS_PAIRS_MAX);
    options_free(&l.o);
    words[n++] = "-e";
    words[n++] = "A=1";
    words[n] = NULL;
    parse(&l, "run", words);
    assert_int_equal(l.rc, -EINVAL);
    options_free(&l.o);
}

static void
every_limit_lands_in_its_own_field(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "run", "--memory", "256M", "--cpus=0.5", "--cpu-time", "2s", "--timeout", "5s",
          "--pids", "10", "--files", "20", "--file-size", "1M", "--disk", "2M", "--inodes", "30",
          "--output", "4K", "true");
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.o.limits.memory_bytes, 268435456);
    assert_int_equal(l.o.limits.cpu_millis, 500);
    assert_int_equal(l.o.limits.cpu_time_ms, 2000);
    assert_int_equal(l.o.limits.wall_ms, 5000);
    assert_int_equal(l.o.limits.pids, 10);
    assert_int_equal(l.o.limits.files, 20);
    assert_int_equal(l.o.limits.file_size_bytes, 1048576);
    assert_int_equal(l.o.limits.disk_bytes, 2097152);
    assert_int_equal(l.o.limits.inodes, 30);
    assert_int_equal(l.o.limits.output_bytes, 4096);
    assert_int_equal(l.o.limits.cpu_weight, 0);
    assert_false(l.o.json);
}

static void
output_takes_a_size_or_a_format(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "run", "--output", "json", "true");
    assert_int_equal(l.rc, 0);
    assert_true(l.o.json);
    assert_int_equal(l.o.limits.output_bytes, 0);
    PARSE(&l, "ls", "-o", "json");
    assert_true(l.o.json);
    PARSE(&l, "ls", "-ojson", "--format=text");
    assert_false(l.o.json);
    PARSE(&l, "ls", "--output", "json");
    assert_int_equal(l.rc, 0);
    assert_true(l.o.json);
    PARSE(&l, "ls", "--output=xml");
    assert_string_equal(l.p.why, "--format: 'xml' is not one of text, json");
}

static void
the_command_begins_at_the_first_word_or_after_two_dashes(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "run", "--bill", "ls", "--memory", "5");
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.o.args_n, 3);
    assert_string_equal(l.o.args[0], "ls");
    assert_string_equal(l.o.args[1], "--memory");
    assert_null(l.o.args[3]);
    PARSE(&l, "run", "--", "--bill");
    assert_int_equal(l.o.args_n, 1);
    assert_string_equal(l.o.args[0], "--bill");
    assert_false(l.o.bill);
    PARSE(&l, "rm", "a", "-o", "json", "b");
    assert_int_equal(l.o.args_n, 2);
    assert_string_equal(l.o.args[1], "b");
    assert_true(l.o.json);
}

static void
letters_can_be_combined_and_followed_by_a_value(void **state)
{
    struct line l;
    (void)state;
    PARSE(&l, "exec", "-it", "-w/tmp", "-eA=b=c", "box", "sh");
    assert_int_equal(l.rc, 0);
    assert_true(l.o.interactive && l.o.terminal);
    assert_string_equal(l.o.workdir, "/tmp");
    assert_int_equal(l.o.env_n, 1);
    assert_string_equal(l.o.env[0].name, "A");
    assert_string_equal(l.o.env[0].value, "b=c");
    options_free(&l.o);
}

static void
a_variable_without_a_value_is_copied_if_it_is_set(void **state)
{
    struct line l;
    (void)state;
    assert_int_equal(setenv("STOCKADE_UNIT_TEST", "here", 1), 0);
    PARSE(&l, "run", "-e", "STOCKADE_UNIT_TEST", "-e", "STOCKADE_NOT_SET", "true");
    assert_int_equal(l.o.env_n, 1);
    assert_string_equal(l.o.env[0].name, "STOCKADE_UNIT_TEST");
    assert_string_equal(l.o.env[0].value, "here");
}

static void
distance_counts_single_edits(void **state)
{
    (void)state;
    assert_int_equal(words_distance("memory", "memory", 2), 0);
    assert_int_equal(words_distance("pdis", "pids", 2), 1);
    assert_int_equal(words_distance("mem", "memory", 2), 3);
    assert_int_equal(words_distance("", "ab", 2), 2);
    assert_int_equal(
        words_distance("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a", 2),
        3);
}

// No two options of a command have the same name or letter, and each has a text for --help.
static void
the_tables_are_unambiguous(void **state)
{
    (void)state;
    for (const struct command *c = commands; c->name != NULL; c++) {
        char letters[64] = "";
        const char *names[64];
        size_t n = 0;
        assert_non_null(c->run);
        assert_true(strlen(c->summary) > 5 && strlen(c->usage) > 1);
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++) {
                assert_true(strlen(r->help) > 5);
                assert_true((r->value == NULL) == (r->kind == OPTION_FLAG));
                for (size_t i = 0; i < n; i++)
                    assert_string_not_equal(names[i], r->name);
                names[n++] = r->name;
                if (r->letter != 0) {
                    assert_null(strchr(letters, r->letter));
                    letters[strlen(letters)] = r->letter;
                }
            }
    }
}

static void
an_invalid_destination_is_refused_with_the_invalid_part(void **state)
{
    static const struct {
        const char *value, *hint;
    } bad[] = {
        {"example.com:99999", "\"99999\" is not a port (1 to 65535, or A-B)"},
        {"example.com:90-80", "\"90-80\" is not a port"},
        {"example.com:0", "\"0\" is not a port"},
        {"example.com:https", "\"https\" is not a port"},
        {":443", "not a destination"},
        {"[2001:db8::1", "not a destination"},
        {"", "not a destination"},
    };
    (void)state;
    struct line l;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        PARSE(&l, "run", "--allow", bad[i].value, "true");
        assert_int_equal(l.rc, -EINVAL);
        assert_non_null(strstr(l.p.why, "--allow: '"));
        if (strstr(l.p.hint, bad[i].hint) == NULL)
            fail_msg("%s: %s", bad[i].value, l.p.hint);
        options_free(&l.o);
    }
}

static void
too_many_destinations_are_refused_with_their_maximum(void **state)
{
    static const char *words[2 * OPTIONS_LIST_MAX + 3];
    (void)state;
    struct line l;
    for (size_t i = 0; i <= OPTIONS_LIST_MAX; i++) {
        words[2 * i] = "--allow";
        words[2 * i + 1] = "example.com";
    }
    parse(&l, "run", words);
    assert_int_equal(l.rc, -EINVAL);
    assert_string_equal(l.p.hint, "at most 256 destinations");
    options_free(&l.o);
}

static void
only_too_many_labels_are_refused(void **state)
{
    static const char *words[2 * OPTIONS_LABELS_MAX + 3];
    (void)state;
    struct line l;
    for (size_t n = OPTIONS_LABELS_MAX; n <= OPTIONS_LABELS_MAX + 1; n++) {
        for (size_t i = 0; i < n; i++) {
            words[2 * i] = "--label";
            words[2 * i + 1] = "a=b";
        }
        words[2 * n] = NULL;
        parse(&l, "create", words);
        assert_int_equal(l.rc, n <= OPTIONS_LABELS_MAX ? 0 : -EINVAL);
        if (n > OPTIONS_LABELS_MAX)
            assert_non_null(strstr(l.p.why, "at most 32 of them"));
        options_free(&l.o);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_too_many_labels_are_refused),
        cmocka_unit_test(an_unknown_option_is_refused_and_the_nearest_one_is_named),
        cmocka_unit_test(a_wrong_or_missing_value_is_refused_with_an_example),
        cmocka_unit_test(more_pairs_than_fit_are_refused),
        cmocka_unit_test(every_limit_lands_in_its_own_field),
        cmocka_unit_test(output_takes_a_size_or_a_format),
        cmocka_unit_test(the_command_begins_at_the_first_word_or_after_two_dashes),
        cmocka_unit_test(letters_can_be_combined_and_followed_by_a_value),
        cmocka_unit_test(a_variable_without_a_value_is_copied_if_it_is_set),
        cmocka_unit_test(distance_counts_single_edits),
        cmocka_unit_test(an_invalid_destination_is_refused_with_the_invalid_part),
        cmocka_unit_test(too_many_destinations_are_refused_with_their_maximum),
        cmocka_unit_test(the_tables_are_unambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
