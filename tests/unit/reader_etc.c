// SPDX-License-Identifier: Apache-2.0
// The part of /etc that sandboxes see.
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
#include "server/reader/etc.h"
#include "server/reader/skeleton.h"

static char folder[64];
static int top = -1;

static void
put(const char *path, const char *text, mode_t mode)
{
    int fd = openat(top, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
}

static bool
exists(const char *path)
{
    struct stat st;
    return fstatat(top, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void
files_that_may_contain_secrets_are_not_on_the_list(void **state)
{
    (void)state;
    static const char *const names[] = {
        "passwd",
        "shadow",
        "shadow-",
        "gshadow",
        "group",
        "sudoers",
        "sudoers.d",
        "ssh",
        "ssl",
        "ssl/private",
        "environment",
        "environment.d",
        "gitconfig",
        "npmrc",
        "pip.conf",
        "wgetrc",
        "machine-id",
        "krb5.keytab",
        "crypttab",
        "fstab",
        "hosts",
        "hostname",
        "resolv.conf",
        "docker",
        "kubernetes",
        "wireguard",
        "NetworkManager",
        "cron.d",
        "postgresql",
        "mysql",
        "maven",
        "apt",
        "default",
        "profile.d",
        "pam.d",
        ".pwd.lock",
        "pki",
        "pki/tls",
        "pki/tls/private",
        "letsencrypt",
        "java/../shadow",
        "",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (etc_allowed(names[i], false) || etc_allowed(names[i], true))
            fail_msg("%s is allowed", names[i]);
}

static void
files_that_programs_need_are_on_the_list(void **state)
{
    (void)state;
    static const char *const names[] = {"alternatives", "ld.so.cache", "ld.so.conf.d",
                                        "ssl/certs",    "localtime",   "java-17-openjdk",
                                        "python3.11",   "mime.types",  "services"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(etc_allowed(names[i], false));
}

static void
a_copy_contains_only_public_files_and_links(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(top, "from", 0755), 0);
    assert_int_equal(mkdirat(top, "to", 0755), 0);
    assert_int_equal(mkdirat(top, "from/ssl", 0755), 0);
    assert_int_equal(mkdirat(top, "from/ssl/certs", 0755), 0);
    assert_int_equal(mkdirat(top, "from/ssl/private", 0755), 0);
    assert_int_equal(mkdirat(top, "from/vim", 0755), 0);
    assert_int_equal(mkdirat(top, "from/perl", 0700), 0);
    put("from/services", "http 80/tcp\n", 0644);
    put("from/shadow", "root:x\n", 0644);
    put("from/magic", "hidden\n", 0640);
    put("from/ssl/certs/a.pem", "-----BEGIN CERTIFICATE-----\n", 0644);
    put("from/ssl/certs/b.pem", "-----BEGIN EC PRIVATE KEY-----\n", 0644);
    put("from/ssl/private/c.pem", "secret\n", 0644);
    put("from/vim/run", "#!/bin/sh\n", 04755);
    put("from/perl/inside", "x\n", 0644);
    assert_int_equal(symlinkat("../shadow", top, "from/localtime"), 0);
    assert_int_equal(mkfifoat(top, "from/rpc", 0644), 0);
    int auto_close from = openat(top, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int auto_close to = openat(top, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e = {0};
    if (etc_copy(from, to, false, &e) < 0)
        fail_msg("%s", e.text);
    static const char *const absent[] = {"to/shadow",      "to/magic", "to/ssl/certs/b.pem",
                                         "to/ssl/private", "to/perl",  "to/rpc"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (exists(absent[i]))
            fail_msg("%s was copied", absent[i]);
    assert_true(exists("to/services"));
    assert_true(exists("to/ssl/certs/a.pem"));
    struct stat st;
    assert_int_equal(fstatat(top, "to/vim/run", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    char target[32] = "";
    assert_int_equal(readlinkat(top, "to/localtime", target, sizeof target - 1), 9);
    assert_string_equal(target,
                        "../shadow"); // unchanged: in a sandbox it leads to the sandbox's file
}

static void
an_old_folder_is_removed_with_its_contents_only(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(top, "kept", 0755), 0);
    put("kept/file", "x", 0644);
    assert_int_equal(mkdirat(top, "old", 0755), 0);
    assert_int_equal(mkdirat(top, "old/deep", 0700), 0);
    assert_int_equal(symlinkat("../kept", top, "old/link"), 0);
    assert_int_equal(mkfifoat(top, "old/fifo", 0), 0);
    struct err e = {0};
    assert_int_equal(skeleton_remove(top, "old", &e), 0);
    assert_false(exists("old"));
    assert_true(exists("kept/file"));
    assert_int_equal(skeleton_remove(top, "old", &e), 0);
    assert_int_equal(symlinkat("kept", top, "link"), 0);
    assert_true(skeleton_remove(top, "link", &e) < 0);
    assert_true(exists("kept/file"));
}

static int
setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-etc-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0;
}

static int
teardown(void **state)
{
    (void)state;
    struct err e;
    (void)unlinkat(top, "link", 0);
    static const char *const names[] = {"from", "to", "kept", "old"};
    for (size_t i = 0; i < 4; i++)
        if (skeleton_remove(top, names[i], &e) < 0)
            return -1;
    (void)close(top);
    return rmdir(folder);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_may_contain_secrets_are_not_on_the_list),
        cmocka_unit_test(files_that_programs_need_are_on_the_list),
        cmocka_unit_test(a_copy_contains_only_public_files_and_links),
        cmocka_unit_test(an_old_folder_is_removed_with_its_contents_only),
    };
    return cmocka_run_group_tests_name("reader_etc", tests, setup, teardown);
}
