// SPDX-License-Identifier: Apache-2.0
// client/cli/draft.c: a file that gets its name when all of it is there.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/cli/draft.h"

static int
make_folder(void **state)
{
    char path[] = "/tmp/stockade-draft-XXXXXX";
    *state = mkdtemp(path) != NULL && chdir(path) == 0 ? strdup(path) : NULL;
    return *state != NULL ? 0 : -1;
}

static int
remove_folder(void **state)
{
    (void)unlink("file");
    int r = rmdir(*state);
    free(*state);
    return r;
}

static int
count_names(void)
{
    int n = 0;
    DIR *all = opendir(".");
    for (const struct dirent *one = readdir(all); one != NULL; one = readdir(all))
        n += one->d_name[0] != '.';
    (void)closedir(all);
    return n;
}

static void
draft_has(struct draft *d, const char *target, const char *text)
{
    assert_int_equal(draft_begin(d, target), 0);
    assert_int_equal(write(d->fd, text, strlen(text)), strlen(text));
}

static void
assert_file(const char *wanted)
{
    char text[32] = "";
    FILE *f = fopen("file", "re");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    assert_int_equal(n, strlen(wanted));
    assert_string_equal(text, wanted);
}

static void
one_that_cannot_be_placed_leaves_nothing(void **state)
{
    struct draft d;
    (void)state;
    assert_int_equal(draft_begin(&d, "missing/file"), -ENOENT);
    assert_int_equal(mkdir("folder", 0700), 0);
    draft_has(&d, "folder", "text");
    assert_int_equal(draft_keep(&d, false), -EISDIR);
    draft_end(&d);
    assert_int_equal(rmdir("folder"), 0);
    assert_int_equal(count_names(), 0);
}

static void
it_has_no_name_until_it_is_kept(void **state)
{
    struct draft d;
    (void)state;
    draft_has(&d, "file", "one");
    assert_int_equal(count_names(), 0);
    draft_end(&d);
    assert_int_equal(count_names(), 0);
    draft_has(&d, "./file", "two");
    assert_int_equal(draft_keep(&d, true), 0);
    draft_end(&d);
    assert_file("two");
    assert_int_equal(count_names(), 1);
}

static void
it_replaces_a_file_when_it_is_kept(void **state)
{
    struct draft d;
    (void)state;
    draft_has(&d, "file", "one");
    assert_int_equal(draft_keep(&d, false), 0);
    draft_end(&d);
    draft_has(&d, "file", "two");
    assert_file("one");
    assert_int_equal(draft_keep(&d, false), 0);
    draft_end(&d);
    assert_file("two");
    assert_int_equal(count_names(), 1);
}

// Where the file system has none without a name: it is beside the target.
static void
one_with_a_name_is_renamed(void **state)
{
    struct draft d;
    (void)state;
    draft_has(&d, "file", "one");
    (void)close(d.fd);
    d.fd = open(d.beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    d.has_name = true;
    assert_int_equal(draft_keep(&d, true), 0);
    draft_end(&d);
    assert_file("");
    assert_int_equal(count_names(), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_cannot_be_placed_leaves_nothing, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_has_no_name_until_it_is_kept, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_replaces_a_file_when_it_is_kept, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(one_with_a_name_is_renamed, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
