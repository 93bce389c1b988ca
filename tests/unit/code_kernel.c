// SPDX-License-Identifier: Apache-2.0
// server/code/kernel: what is a frame, and what is refused.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/code/kernel.h"
#include "server/code/language.h"

static int
read_text(const char *text, struct kernel_frame *f)
{
    struct err e;
    return kernel_frame_read((const uint8_t *)text, strlen(text), f, &e);
}

static void
lines_that_are_not_of_a_frame_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\n",
                                        "garbage\n",
                                        "stdout\n",
                                        "stdout 1\n",
                                        "stdout 1 3 4\nabc",
                                        "stdout  1 3\nabc",
                                        " stdout 1 3\nabc",
                                        "stdout 1 3 \nabc",
                                        "stdout 1 -3\nabc",
                                        "stdout x 3\nabc",
                                        "stdout 1 0\n",
                                        "stdout 1 49153\n",
                                        "stdout 1 9999999999999999999\n",
                                        "stdout 99999999999999999999 1\na",
                                        "ready 0 0 2\n",
                                        "ready 0 1 1\na",
                                        "ready 0 0\n",
                                        "result 1 1 m\na",
                                        "result 1 1 x text/plain\na",
                                        "result 1 1 m+. text/plain\na",
                                        "result 1 1 m++ text/plain\na",
                                        "result 1 1 m. text\na",
                                        "result 1 1 m. t\x01/plain\na",
                                        "done 1 0 1 maybe\n",
                                        "done 1 0 -1 ok\n",
                                        "done 1 0 4294967296 ok\n",
                                        "done 1 1 1 ok\na",
                                        "done 1 0 1 ok more\n"};
    struct kernel_frame f;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (read_text(wrong[i], &f) >= 0)
            fail_msg("%s was read", wrong[i]);
    char line[KERNEL_HEAD_MAX + 1];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    assert_true(read_text(line, &f) < 0);
}

static void
a_frame_that_is_not_complete_needs_more(void **state)
{
    (void)state;
    static const char whole[] = "result 7 3 m. text/plain\nabc";
    struct kernel_frame f;
    struct err e;
    for (size_t n = 0; n < sizeof whole - 1; n++)
        assert_int_equal(kernel_frame_read((const uint8_t *)whole, n, &f, &e), 0);
    assert_int_equal(read_text(whole, &f), sizeof whole - 1);
    assert_int_equal(f.kind, KERNEL_RESULT);
    assert_true(f.run == 7 && f.main && f.last && !f.more && f.n == 3);
    assert_string_equal(f.mime, "text/plain");
    assert_memory_equal(f.payload, "abc", 3);
    assert_int_equal(read_text("done 8 0 5 interrupted\nstdout", &f), 23);
    assert_true(f.count == 5 && f.status == CODE_INTERRUPTED);
}

static void
the_texts_of_an_error_become_valid_utf8(void **state)
{
    (void)state;
    static const char payload[] = "N\xff\0v\xc3(\0t\0more";
    char out[3 * sizeof payload + 3];
    struct kernel_error k;
    kernel_error_read((const uint8_t *)payload, sizeof payload - 1, out, &k);
    assert_string_equal(k.name, "N\xef\xbf\xbd");
    assert_string_equal(k.value, "v\xef\xbf\xbd(");
    assert_string_equal(k.traceback, "t");
    kernel_error_read((const uint8_t *)"", 0, out, &k);
    assert_string_equal(k.traceback, "");
}

static void
a_language_is_found_by_its_names(void **state)
{
    (void)state;
    struct err e = {.text = ""};
    assert_null(language_find("cobol", &e));
    assert_non_null(strstr(e.text, "cobol: not python, bash or javascript"));
    assert_string_equal(language_find("", &e)->name, "python");
    assert_string_equal(language_find("py", &e)->name, "python");
    assert_string_equal(language_find("sh", &e)->name, "bash");
    assert_string_equal(language_find("node", &e)->name, "javascript");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_are_not_of_a_frame_are_refused),
        cmocka_unit_test(a_frame_that_is_not_complete_needs_more),
        cmocka_unit_test(the_texts_of_an_error_become_valid_utf8),
        cmocka_unit_test(a_language_is_found_by_its_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
