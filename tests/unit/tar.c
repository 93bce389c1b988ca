// SPDX-License-Identifier: Apache-2.0
// Archives: 25 hostile ones (check 25), and trees that come back as they were.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/tar.h"

enum { ARCHIVE_MAX = 1 << 20 };

static struct {
    uint8_t bytes[ARCHIVE_MAX];
    size_t n, at;
} archive;
static char folder_path[] = "/tmp/stockade-tar-XXXXXX";
static int folder = -1;
static const struct tar_bounds bounds = {.bytes = 1 << 20, .entries = 1000};

static int
setup(void **state)
{
    (void)state;
    memset(folder_path + sizeof folder_path - 7, 'X', 6);
    assert_non_null(mkdtemp(folder_path));
    folder = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(folder, "in", 0755), 0);
    archive.n = archive.at = 0;
    return 0;
}

static int
teardown(void **state)
{
    char command[64];
    (void)state;
    (void)close(folder);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder_path);
    return system(command); // NOLINT(cert-env33-c): a path of ours
}

// One header, with a right checksum.
static void
add(char type, const char *name, const char *link, const char *data, size_t n)
{
    uint8_t *b = archive.bytes + archive.n;
    unsigned sum = 0;
    memset(b, 0, TAR_BLOCK);
    (void)snprintf((char *)b, 100, "%s", name);
    (void)snprintf((char *)b + 100, 8, "%07o", 04755U);
    (void)snprintf((char *)b + 124, 12, "%011o", (unsigned)n);
    b[156] = (uint8_t)type;
    (void)snprintf((char *)b + 157, 100, "%s", link);
    (void)snprintf((char *)b + 257, 6, "ustar");
    memset(b + 263, '0', 2);
    memset(b + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += b[i];
    (void)snprintf((char *)b + 148, 7, "%06o", sum);
    archive.n += TAR_BLOCK;
    if (n > 0 && data != NULL) {
        memcpy(archive.bytes + archive.n, data, n);
        archive.n += (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    }
}

static ssize_t
read_archive(void *cookie, void *bytes, size_t n, struct err *e)
{
    (void)cookie;
    (void)e;
    size_t part = archive.n - archive.at < n ? archive.n - archive.at : n;
    memcpy(bytes, archive.bytes + archive.at, part);
    archive.at += part;
    return (ssize_t)part;
}

static int
unpack(bool links_inside, struct tar_counts *counts, struct err *e)
{
    static const struct tar_source source = {.read = read_archive};
    int auto_close in = openat(folder, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return tar_unpack(in, links_inside, &bounds, &source, counts, e);
}

// Nothing lies beside "in".
static void
assert_nothing_outside(void)
{
    assert_int_equal(faccessat(folder, "evil", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    assert_int_equal(access("/tmp/stockade-evil", F_OK), -1);
}

static void
assert_refused(int code, const char *words)
{
    struct tar_counts counts;
    struct err e = {0};
    memset(archive.bytes + archive.n, 0, 2 * (size_t)TAR_BLOCK);
    archive.n += 2 * (size_t)TAR_BLOCK;
    assert_true(unpack(true, &counts, &e) < 0);
    if (e.code != code || strstr(e.text, words) == NULL)
        fail_msg("code %d, %s", e.code, e.text);
    assert_nothing_outside();
    archive.n = archive.at = 0;
}

static void
names_that_lead_out_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"../evil", "a/../../evil", "..", "a/..", "./../evil"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        add('0', names[i], "", "x", 1);
        assert_refused(ERR_INVALID_ARGUMENT, "'..'");
    }
    add('0', "/tmp/stockade-evil", "", "x", 1);
    assert_refused(ERR_INVALID_ARGUMENT, "absolute");
    add('L', "././@LongLink", "", "../evil", 8);
    add('0', "harmless", "", "x", 1);
    assert_refused(ERR_INVALID_ARGUMENT, "'..'");
    add('x', "pax", "", "17 path=../evil1\n", 17);
    add('0', "harmless", "", "x", 1);
    assert_refused(ERR_INVALID_ARGUMENT, "'..'");
}

static void
no_file_goes_through_a_link(void **state)
{
    (void)state;
    add('2', "up", "..", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "leads out");
    struct tar_counts counts;
    struct err e = {0};
    add('2', "up", "..", NULL, 0);
    add('0', "up/evil", "", "x", 1);
    assert_true(unpack(false, &counts, &e) < 0);
    assert_non_null(strstr(e.text, "on the way"));
    assert_nothing_outside();
    archive.n = archive.at = 0;
    add('2', "d", "/tmp", NULL, 0);
    add('5', "d/stockade-evil", "", NULL, 0);
    assert_true(unpack(false, &counts, &e) < 0);
    assert_nothing_outside();
    archive.n = archive.at = 0;
    add('2', "f", "../evil", NULL, 0);
    add('0', "f", "", "x", 1); // replaces the link
    memset(archive.bytes + archive.n, 0, 2 * (size_t)TAR_BLOCK);
    archive.n += 2 * (size_t)TAR_BLOCK;
    assert_int_equal(unpack(false, &counts, &e), 0);
    assert_nothing_outside();
}

static void
hard_links_lead_to_files_of_the_archive_alone(void **state)
{
    (void)state;
    add('1', "h", "/etc/passwd", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "absolute");
    add('1', "h", "../x", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "'..'");
    add('1', "h", "nothing", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "hard link");
    add('2', "l", "a", NULL, 0);
    add('1', "h", "l", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "hard link");
}

static void
devices_and_damaged_headers_are_refused(void **state)
{
    (void)state;
    static const char types[] = "346S";
    for (const char *t = types; *t != '\0'; t++) {
        add(*t, "special", "", NULL, 0);
        assert_refused(ERR_INVALID_ARGUMENT, "only files");
    }
    add('0', "f", "", "x", 1);
    archive.bytes[0] ^= 1;
    assert_refused(ERR_INVALID_ARGUMENT, "checksum");
    add('x', "pax", "", "99 path=x\n", 10);
    assert_refused(ERR_INVALID_ARGUMENT, "damaged");
    add('x', "pax", "", "22 GNU.sparse.major=1\n", 22);
    assert_refused(ERR_INVALID_ARGUMENT, "sparse");
    char deep[TAR_NAME_MAX] = "";
    for (int i = 0; i <= TAR_LEVELS_MAX; i++)
        (void)strncat(deep, "d/", sizeof deep - strlen(deep) - 1);
    add('L', "././@LongLink", "", deep, strlen(deep) + 1);
    add('5', "d", "", NULL, 0);
    assert_refused(ERR_INVALID_ARGUMENT, "levels");
}

static void
bombs_end_at_their_bounds(void **state)
{
    (void)state;
    add('0', "big", "", NULL, (size_t)1 << 30);
    assert_refused(ERR_RESOURCE_EXHAUSTED, "more than");
    for (int i = 0; i < 1100; i++)
        add('5', "same", "", NULL, 0);
    assert_refused(ERR_RESOURCE_EXHAUSTED, "more than 1000 files");
    add('x', "pax", "", "29 size=18446744073709551615\n", 29);
    add('0', "f", "", "x", 1);
    assert_refused(ERR_INVALID_ARGUMENT, "no number");
}

static void
a_cut_archive_is_reported(void **state)
{
    (void)state;
    struct tar_counts counts;
    struct err e = {0};
    static const size_t ends[] = {0, 100, TAR_BLOCK, TAR_BLOCK + 5, 2 * TAR_BLOCK};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        archive.n = archive.at = 0;
        add('0', "f", "", "0123456789", 10);
        archive.n = ends[i];
        assert_true(unpack(true, &counts, &e) < 0);
        assert_int_equal(e.code, ERR_DATA_LOSS);
        assert_string_equal(e.reason, "ARCHIVE_CUT");
    }
}

static void
duplicates_are_replaced_and_set_id_bits_dropped(void **state)
{
    (void)state;
    struct tar_counts counts;
    struct stat st;
    struct err e = {0};
    add('0', "f", "", "first", 5);
    add('0', "./f", "", "second", 6);
    memset(archive.bytes + archive.n, 0, 2 * (size_t)TAR_BLOCK);
    archive.n += 2 * (size_t)TAR_BLOCK;
    assert_int_equal(unpack(true, &counts, &e), 0);
    assert_int_equal(fstatat(folder, "in/f", &st, 0), 0);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(st.st_mode & 07777, 0755);
}

static int
write_archive(void *cookie, const void *bytes, size_t n, struct err *e)
{
    (void)cookie;
    if (n > sizeof archive.bytes - archive.n)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the test's archive is full");
    memcpy(archive.bytes + archive.n, bytes, n);
    archive.n += n;
    return 0;
}

static void
a_tree_comes_back_as_it_was(void **state)
{
    (void)state;
    static const struct tar_sink sink = {.write = write_archive};
    struct tar_counts packed, unpacked;
    struct err e = {0};
    char command[600];
    (void)snprintf(
        command, sizeof command,
        "cd %s && mkdir -p from/a/b from/empty && printf hello > from/a/f && chmod 640 from/a/f && : > from/zero &&"
        " ln -s a/f from/l && head -c 100000 /dev/urandom > \"from/a/b/$(printf %%0150d 7)\" &&"
        " printf x > \"$(printf 'from/\\377\\n')\" && mkfifo from/fifo",
        folder_path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a command of ours
    int auto_close from = openat(folder, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(tar_pack(from, ".", ".", &bounds, &sink, &packed, &e), 0);
    assert_int_equal(packed.skipped, 1);
    assert_int_equal(unpack(true, &unpacked, &e), 0);
    assert_int_equal(unpacked.entries, packed.entries);
    assert_int_equal(unpacked.bytes, packed.bytes);
    (void)snprintf(
        command, sizeof command,
        "cd %s && rm from/fifo && diff -r from in && test -h in/l && test $(stat -c %%a in/a/f) = 640",
        folder_path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a command of ours
    (void)snprintf(command, sizeof command, "%s/a.tar", folder_path);
    int auto_close out = open(command, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(out, archive.bytes, archive.n), archive.n);
    (void)snprintf(command, sizeof command,
                   "cd %s && mkdir gnu && tar -C gnu -xf a.tar && diff -r from gnu", folder_path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a command of ours
}

static void
links_stay_or_lead_out(void **state)
{
    (void)state;
    assert_true(tar_link_stays("a", "b"));
    assert_true(tar_link_stays("a/b", "../c"));
    assert_true(tar_link_stays("a/b/c", "../.././d/e"));
    assert_true(tar_link_stays("./a//b", ".././c"));
    assert_false(tar_link_stays("a/b/c", "../../d/../e")); // d may be a link
    assert_false(tar_link_stays("a/b", "c/.."));
    assert_false(tar_link_stays("./b", "../c")); // "." is no folder
    assert_false(tar_link_stays(".//./b", "../c"));
    assert_false(tar_link_stays("b/", "../c"));
    assert_false(tar_link_stays("a", "../b"));
    assert_false(tar_link_stays("a/b", "../../c"));
    assert_false(tar_link_stays("a/b", "c/../../../d"));
    assert_false(tar_link_stays("a", "/etc"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_that_lead_out_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_file_goes_through_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(hard_links_lead_to_files_of_the_archive_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(devices_and_damaged_headers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(bombs_end_at_their_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cut_archive_is_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(duplicates_are_replaced_and_set_id_bits_dropped, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_tree_comes_back_as_it_was, setup, teardown),
        cmocka_unit_test(links_stay_or_lead_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
