// What the telemetry programs see of files: what is written, removed and renamed, and sensitive paths.
#include <linux/openat2.h>

#include "watch_job.h"

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
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0); // rename 1
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0); // ENOENT
    (void)syscall(SYS_unlinkat, AT_FDCWD, b, 0);               // unlink 1
    (void)syscall(SYS_unlinkat, AT_FDCWD, b, 0);               // ENOENT
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
    assert_int_equal(a->opens_write, 4);
    assert_int_equal(a->unlinks, 3);
    assert_int_equal(a->renames, 2);
#else
    assert_int_equal(a->opens_write, 2);
    assert_int_equal(a->unlinks, 1);
    assert_int_equal(a->renames, 1);
#endif
    assert_int_equal(a->opens_sensitive, 0);
    assert_int_equal(a->failures, 0);
}

// ---- files
static void
put_sensitive(const char *pattern, uint32_t rule)
{
    struct watch_sensitive entry = {.hash = WATCH_FNV, .rule = rule};
    for (const char *c = pattern; *c; c++)
        entry.hash = watch_fnv(entry.hash, (unsigned char)*c);
    uint32_t at = watch_sensitive_slot(entry.hash, rule % WATCH_SENSITIVE_PROBES);
    rig_put(rig.bpf->maps.sensitive, &at, &entry);
}

static int
open_one(void *arg)
{
    const char *const *path = arg;
    return syscall(SYS_openat, AT_FDCWD, *path, O_RDONLY | O_CLOEXEC) < 0;
}

static void
sensitive_paths_are_told_of_however_they_are_written_and_others_are_not(void **state)
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
        {"/proc/self/environ", 0},
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
        {"/home/agent/.ssh/id_rsa", 3},
        {".ssh", 3},
        {"../.ssh/", 3},
        {"/root/.aws/credentials", 4},
        {".aws/credentials", 4},
        {".aws/./credentials", 4},
    };
    struct job j = new_job("sensitive", 0);
    put_sensitive("/etc/shadow", 1);
    put_sensitive("/proc/#/environ", 2);
    put_sensitive(".ssh", 3);
    put_sensitive(".aws/credentials", 4);
    uint64_t told = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        drain();
        int failed = WEXITSTATUS(rig_run(j.job, open_one, (void *)(uintptr_t)&rows[i].path));
        drain();
        const struct seen *e = event(EVENT_OPEN, j.job, 0);
        told += rows[i].rule != 0;
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
    assert_int_equal(rig_account(&rig, j.job)->opens_sensitive, told);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

static int
open_long(void *arg)
{
    char path[2 * WATCH_PATH];
    memset(path, '/', sizeof path);
    memcpy(path, "/etc/shadow", 11);
    path[sizeof path - 1] = '\0';
    if (*(int *)arg) { // the pattern comes behind what is read
        memset(path + 1, 'x', WATCH_PATH);
        memcpy(path + WATCH_PATH, "/.ssh", 6);
    }
    (void)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    (void)syscall(SYS_openat, AT_FDCWD, NULL, O_RDONLY); // EFAULT
    return 0;
}

static void
of_a_long_path_the_beginning_counts(void **state)
{
    (void)state;
    struct job j = new_job("long", 0);
    int behind = 0;
    put_sensitive("/etc/shadow", 1);
    put_sensitive(".ssh", 3);
    drain();
    assert_int_equal(rig_run(j.job, open_long, &behind), 0);
    behind = 1;
    assert_int_equal(rig_run(j.job, open_long, &behind), 0);
    drain();
    assert_int_equal(count_events(EVENT_OPEN, j.job), 1);
    assert_int_equal(BODY(watch_open, event(EVENT_OPEN, j.job, 0))->path_n, WATCH_PATH - 1);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_written_removed_and_renamed_are_counted_when_it_succeeds),
        cmocka_unit_test(sensitive_paths_are_told_of_however_they_are_written_and_others_are_not),
        cmocka_unit_test(of_a_long_path_the_beginning_counts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
