// SPDX-License-Identifier: Apache-2.0
// What the telemetry programs see of files: written, removed and renamed files, and sensitive paths.
#include <linux/openat2.h>

#include "server/anomaly/sensitive.h"
#include "tests/harness/watch_job.h"

// ---- files written

static int
touch_files(void *arg)
{
    const char *dir = arg;
    char a[300], b[300];
    struct open_how how = {.flags = O_RDWR};
    (void)snprintf(a, sizeof a, "%s/a", dir);
    (void)snprintf(b, sizeof b, "%s/b", dir);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, a, O_WRONLY | O_CREAT, 0600); // 1
    (void)syscall(SYS_close, fd);
    (void)syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, a, O_RDONLY));
    (void)syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, a, O_RDWR | O_PATH));
    (void)syscall(SYS_close, syscall(SYS_openat2, AT_FDCWD, a, &how, sizeof how)); // 2
    (void)syscall(SYS_openat, AT_FDCWD, "/nothing/there", O_WRONLY);
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0);                          // rename 1
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0);                          // ENOENT
    (void)syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, b, O_WRONLY | O_APPEND, 0)); // 3
    (void)syscall(SYS_linkat, AT_FDCWD, b, AT_FDCWD, a, 0);
    fd = (int)syscall(SYS_openat, AT_FDCWD, b,
                      O_RDWR);           // 4; a rewrite, but of the same file as before
    (void)syscall(SYS_ftruncate, fd, 0); // the same
    (void)syscall(SYS_close, fd);
    (void)syscall(SYS_truncate, b, 0);           // a rewrite
    (void)syscall(SYS_unlinkat, AT_FDCWD, a, 0); // unlink 0
    (void)syscall(SYS_unlinkat, AT_FDCWD, b, 0); // unlink 1
    (void)syscall(SYS_unlinkat, AT_FDCWD, b, 0); // ENOENT
#ifdef SYS_open
    (void)syscall(SYS_close, syscall(SYS_creat, a, 0600));             // 3
    (void)syscall(SYS_close, syscall(SYS_open, a, O_RDWR | O_APPEND)); // 4
    (void)syscall(SYS_rename, a, b);                                   // rename 2
    (void)syscall(SYS_unlink, b);                                      // unlink 2
    (void)syscall(SYS_mkdir, a, 0700);
    (void)syscall(SYS_rmdir, a); // unlink 3
#endif
    return 0;
}

static void
files_written_removed_and_renamed_are_counted_when_it_succeeds(void **state)
{
    (void)state;
    struct job j = new_job("files", WATCH_EVENTS);
    char dir[] = "/tmp/stockade-watch-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(rig_run(j.job, touch_files, dir), 0);
    assert_int_equal(rmdir(dir), 0);
    const struct watch_account *a = rig_account(&rig, j.job);
#ifdef SYS_open
    assert_int_equal(a->opens_write, 6);
    assert_int_equal(a->unlinks, 4);
    assert_int_equal(a->renames, 2);
#else
    assert_int_equal(a->opens_write, 4);
    assert_int_equal(a->unlinks, 2);
    assert_int_equal(a->renames, 1);
#endif
    assert_int_equal(a->opens_exclusive, 0);
    assert_int_equal(a->links, 1);
    assert_true(a->rewrites >= 2 && a->rewrites <= 3);
    assert_int_equal(a->opens_sensitive, 0);
    assert_int_equal(a->failures, 0);
}

static int
make_two_files(void *dir)
{
    if (chdir(dir) < 0)
        return 1;
    (void)close(open("a", O_CREAT | O_EXCL | O_WRONLY, 0600)); // 1
    (void)close(open("b", O_CREAT | O_EXCL | O_RDWR, 0600));   // 2
    (void)close(open("a", O_CREAT | O_WRONLY, 0600));
    (void)open("a", O_CREAT | O_EXCL | O_WRONLY, 0600); // EEXIST
    (void)unlink("a");
    (void)unlink("b");
    return 0;
}

static void
files_that_a_call_made_are_counted_apart(void **state)
{
    (void)state;
    struct job j = new_job("exclusive", WATCH_EVENTS);
    char dir[] = "/tmp/stockade-watch-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(rig_run(j.job, make_two_files, dir), 0);
    assert_int_equal(rmdir(dir), 0);
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_int_equal(a->opens_exclusive, 2);
    assert_int_equal(a->opens_write, 3);
}

// ---- sensitive paths

static struct sensitive_table table;

static void
put_sensitive(const char *pattern, uint32_t rule, uint32_t when)
{
    assert_true(anomaly_sensitive_add(&table, pattern, rule, when));
    assert_int_equal(anomaly_sensitive_write(&table, bpf_map__fd(rig.bpf->maps.sensitive),
                                             bpf_map__fd(rig.bpf->maps.sensitive_hints)),
                     0);
}

static int
open_one(void *arg)
{
    const char *const *path = arg;
    return syscall(SYS_openat, AT_FDCWD, *path, O_RDONLY | O_CLOEXEC) < 0;
}

static void
only_sensitive_paths_are_reported_in_any_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t rule; // 0: none
    } rows[] = {
        {"/etc/shadow2", 0},
        {"/etc/shado", 0},
        {"etc/shadow", 0},
        {"/x/etc/shadow", 0},
        {"/proc/12a/environ", 0},
        {"/home/agent/ssh/id", 0},
        {"/home/agent/.sshx", 0},
        {".aws/config", 0},
        {"x.aws/credentials", 0},
        {"/", 0},
        {"", 0},
        {"/etc/shadow", 1},
        {"//etc/./shadow", 1},
        {"/etc//shadow/", 1},
        {"/etc/shadow/below", 1},
        {"/proc/12345/environ", 2},
        {"/proc/1/environ", 2},
        {"/proc/self/environ", 2},
        {"/home/agent/.ssh/id_rsa", 3},
        {".ssh", 3},
        {"../.ssh/", 3},
        {"/root/.aws/credentials", 4},
        {".aws/credentials", 4},
        {".aws/./credentials", 4},
    };
    struct job j = new_job("sensitive", 0);
    put_sensitive("/etc/shadow", 1, 0);
    put_sensitive("/proc/#/environ", 2, 0);
    put_sensitive(".ssh", 3, 0);
    put_sensitive(".aws/credentials", 4, 0);
    uint64_t reported = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        drain();
        int failed = WEXITSTATUS(rig_run(j.job, open_one, (void *)(uintptr_t)&rows[i].path));
        drain();
        const struct seen *e = event(EVENT_OPEN, j.job, 0);
        reported += rows[i].rule != 0;
        if ((e != NULL) != (rows[i].rule != 0))
            fail_msg("%s is %s", rows[i].path, e ? "told of" : "not told of");
        if (!e)
            continue;
        const struct watch_open *b = BODY(watch_open, e);
        assert_int_equal(e->head.class, CLASS_FILE);
        assert_int_equal(b->rule, rows[i].rule);
        assert_int_equal(b->result < 0, failed);
        assert_int_equal(b->flags, O_RDONLY | O_CLOEXEC);
        assert_int_equal(b->path_n, strlen(rows[i].path));
        assert_memory_equal(b->path, rows[i].path, b->path_n);
    }
    assert_int_equal(rig_account(&rig, j.job)->opens_sensitive, reported);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

static int
open_long(void *arg)
{
    char path[2 * WATCH_PATH];
    memset(path, '/', sizeof path);
    memcpy(path, "/etc/shadow", 11);
    path[sizeof path - 1] = '\0';
    if (*(int *)arg) { // the pattern is after the part that is read
        memset(path + 1, 'x', WATCH_PATH);
        memcpy(path + WATCH_PATH, "/.ssh", 6);
    }
    (void)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    (void)syscall(SYS_openat, AT_FDCWD, NULL, O_RDONLY); // EFAULT
    return 0;
}

static void
a_path_counts_to_its_last_byte(void **state)
{
    (void)state;
    struct job j = new_job("long", 0);
    int behind = 0;
    put_sensitive("/etc/shadow", 1, 0);
    put_sensitive(".ssh", 3, 0);
    drain();
    assert_int_equal(rig_run(j.job, open_long, &behind), 0);
    behind = 1;
    assert_int_equal(rig_run(j.job, open_long, &behind), 0);
    drain();
    assert_int_equal(count_events(EVENT_OPEN, j.job), 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(BODY(watch_open, event(EVENT_OPEN, j.job, i))->path_n, WATCH_PATH - 1);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

// ---- other ways to a sensitive file

static char dir[] = "/tmp/stockade-watch-XXXXXX";
static char secret[300], other[300];

static long
open_at(int at, const char *path, int flags)
{
    return syscall(SYS_openat, at, path, flags);
}

static long
by_link(void)
{
    char link[300];
    (void)snprintf(link, sizeof link, "%s/link", dir);
    return open_at(AT_FDCWD, link, O_RDONLY);
}

static long
by_chdir(void)
{
    return syscall(SYS_chdir, dir) < 0 ? -1 : open_at(AT_FDCWD, "secret", O_RDONLY);
}

static long
by_descriptor(void)
{
    return open_at((int)open_at(AT_FDCWD, dir, O_PATH), "secret", O_RDONLY);
}

static long
by_dots(void)
{
    char path[400];
    (void)snprintf(path, sizeof path, "/proc/../usr/./bin/../..//%s", secret);
    return open_at(AT_FDCWD, path, O_RDONLY);
}

static long
by_root(void)
{
    char path[400];
    (void)snprintf(path, sizeof path, "/proc/self/root%s", secret);
    return open_at(AT_FDCWD, path, O_RDONLY);
}

static long
by_prefix(void)
{
    char path[1000];
    size_t n = 0;
    for (; n < 600; n += 2)
        path[n] = '/', path[n + 1] = '.';
    (void)snprintf(path + n, sizeof path - n, "%s", secret);
    return open_at(AT_FDCWD, path, O_RDONLY);
}

static long
by_path_alone(void)
{
    return open_at(AT_FDCWD, secret, O_PATH);
}

static long
by_old_call(void)
{
#ifdef SYS_open
    return syscall(SYS_open, secret, O_RDONLY);
#else
    return by_path_alone();
#endif
}

static long
look(void)
{
    struct stat s;
    return syscall(SYS_chdir, dir) < 0 ? -1 : syscall(SYS_newfstatat, AT_FDCWD, "secret", &s, 0);
}

static long
look_by_access(void)
{
    return syscall(SYS_faccessat, AT_FDCWD, secret, R_OK);
}

static long
link_it(void)
{
    return syscall(SYS_linkat, AT_FDCWD, secret, AT_FDCWD, other, 0);
}

static long
point_to_it(void)
{
    return syscall(SYS_symlinkat, secret, AT_FDCWD, other);
}

static long
move_it(void)
{
    return syscall(SYS_renameat2, AT_FDCWD, secret, AT_FDCWD, other, 0);
}

static long
move_into_its_place(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, other, O_CREAT | O_WRONLY, 0600);
    return fd < 0 ? -1 : syscall(SYS_renameat2, AT_FDCWD, other, AT_FDCWD, secret, 0);
}

static long
cut_it(void)
{
    return syscall(SYS_truncate, secret, 0);
}

static long
remove_it(void)
{
    return syscall(SYS_unlinkat, open_at(AT_FDCWD, dir, O_PATH), "secret", 0);
}

static long
execute_it(void)
{
    struct exec x = {"secret", {"secret", NULL}, -1};
    return syscall(SYS_chdir, dir) < 0 ? -1 : execute(&x);
}

static int
call_it(void *arg)
{
    long (*const *fn)(void) = arg;
    return (*fn)() < 0;
}

static void
make_files(void)
{
    char link[300];
    (void)snprintf(link, sizeof link, "%s/link", dir);
    (void)unlink(other);
    (void)unlink(secret);
    (void)unlink(link);
    int in = copy_of_true(false), out = open(secret, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    char bytes[4096];
    assert_true(out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(out, bytes, (size_t)n), n);
    (void)close(in);
    (void)close(out);
    assert_int_equal(symlink("secret", link), 0);
}

static void
no_other_way_to_a_sensitive_file_is_silent(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        long (*call)(void);
        uint32_t op;
    } rows[] = {
        {"a symbolic link", by_link, WATCH_FILE_OPEN},
        {"chdir", by_chdir, WATCH_FILE_OPEN},
        {"a descriptor", by_descriptor, WATCH_FILE_OPEN},
        {"..", by_dots, WATCH_FILE_OPEN},
        {"/proc/self/root", by_root, WATCH_FILE_OPEN},
        {"a long prefix", by_prefix, WATCH_FILE_OPEN},
        {"O_PATH", by_path_alone, WATCH_FILE_OPEN},
        {"open", by_old_call, WATCH_FILE_OPEN},
        {"stat", look, WATCH_FILE_LOOK},
        {"faccessat", look_by_access, WATCH_FILE_LOOK},
        {"link", link_it, WATCH_FILE_LINK},
        {"symlink", point_to_it, WATCH_FILE_SYMLINK},
        {"rename", move_it, WATCH_FILE_RENAME},
        {"rename into", move_into_its_place, WATCH_FILE_RENAME},
        {"truncate", cut_it, WATCH_FILE_TRUNCATE},
        {"unlink", remove_it, WATCH_FILE_UNLINK},
        {"exec", execute_it, WATCH_FILE_EXEC},
    };
    struct job j = new_job("ways", WATCH_EVENTS);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(secret, sizeof secret, "%s/secret", dir);
    (void)snprintf(other, sizeof other, "%s/other", dir);
    put_sensitive(secret, 5, 0);
    uint64_t opens = 0, looks = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_files();
        drain();
        long (*call)(void) = rows[i].call;
        if (WEXITSTATUS(rig_run(j.job, call_it, (void *)&call)) != 0)
            fail_msg("%s fails", rows[i].name);
        drain();
        const struct seen *e = event(EVENT_OPEN, j.job, 0);
        if (!e || count_events(EVENT_OPEN, j.job) != 1)
            fail_msg("%s: %zu events", rows[i].name, count_events(EVENT_OPEN, j.job));
        const struct watch_open *b = BODY(watch_open, e);
        assert_int_equal(b->rule, 5);
        assert_int_equal(b->op, rows[i].op);
        if (b->resolved_n != strlen(secret) || memcmp(b->resolved, secret, b->resolved_n) != 0)
            fail_msg("%s leads to %.*s", rows[i].name, (int)b->resolved_n, b->resolved);
        opens += b->op != WATCH_FILE_LOOK;
        looks += b->op == WATCH_FILE_LOOK;
    }
    assert_int_equal(rig_account(&rig, j.job)->opens_sensitive, opens);
    assert_int_equal(rig_account(&rig, j.job)->looks_sensitive, looks);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
    (void)unlink(other);
    (void)unlink(secret);
    char link[300];
    (void)snprintf(link, sizeof link, "%s/link", dir);
    (void)unlink(link);
    assert_int_equal(rmdir(dir), 0);
}

// Patterns that match only if the file exists, at the end of the path, or if the call was refused.
static void
a_pattern_may_depend_on_the_result_of_the_call(void **state)
{
    (void)state;
    static const char *const paths[] = {"/tmp/.netrc-of-nobody", "/usr/bin/.env/x", "/dev/null/x",
                                        "/usr/bin/true"};
    struct job j = new_job("when", 0);
    put_sensitive(".netrc-of-nobody", 6, WATCH_WHEN_THERE);
    put_sensitive("bin/true", 7, WATCH_WHEN_DENIED);
    put_sensitive("usr", 8, WATCH_WHEN_LAST);
    drain();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        (void)rig_run(j.job, open_one, (void *)(uintptr_t)&paths[i]);
    drain();
    assert_int_equal(count_events(EVENT_OPEN, j.job), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_written_removed_and_renamed_are_counted_when_it_succeeds),
        cmocka_unit_test(files_that_a_call_made_are_counted_apart),
        cmocka_unit_test(only_sensitive_paths_are_reported_in_any_spelling),
        cmocka_unit_test(a_path_counts_to_its_last_byte),
        cmocka_unit_test(no_other_way_to_a_sensitive_file_is_silent),
        cmocka_unit_test(a_pattern_may_depend_on_the_result_of_the_call),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
