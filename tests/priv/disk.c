// SPDX-License-Identifier: Apache-2.0
// Disks through the real spawner and stockade-disk, mounted in real sandboxes: limits hold, content is kept, and nothing is left,
// neither a loop device nor a mount nor a file.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "server/sandbox/spawn.h"
#include "tests/harness/swaps.h"

static const struct spawn_disk first = {SPAWN_DISK_VOLUME, "first"};
static const struct spawn_disk second = {SPAWN_DISK_VOLUME, "second"};
enum { MIB = 1024 * 1024 };

static struct spawn_reply
reply_of(struct wait *w)
{
    until(w->called > 0);
    assert_int_equal(w->called, 1);
    return w->reply;
}

static struct spawn_reply
make(const struct spawn_disk *d, uint64_t bytes, uint32_t inodes)
{
    struct err e;
    struct wait w = {.called = 0};
    assert_int_equal(spawn_disk_make(srv.spawn, d, bytes, inodes, on_done, &w, &e), 0);
    return reply_of(&w);
}

// Its descriptor shows how full the disk is, and reads nothing.
static void
on_opened(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    struct statfs fs;
    char byte;
    on_done(cookie, r, fds);
    assert_int_equal(r->fds, r->ok ? 1u << SPAWN_FD_DISK : 0);
    if (!r->ok)
        return;
    assert_int_equal(fcntl(fds[SPAWN_FD_DISK], F_GETFL) & O_PATH, O_PATH);
    assert_int_equal(fstatfs(fds[SPAWN_FD_DISK], &fs), 0);
    assert_true(fs.f_blocks > 0 && fs.f_bfree <= fs.f_blocks);
    assert_int_equal(read(fds[SPAWN_FD_DISK], &byte, 1), -1);
    assert_int_equal(close(fds[SPAWN_FD_DISK]), 0);
    fds[SPAWN_FD_DISK] = -1;
}

static struct spawn_reply
open_disk(const struct spawn_disk *d)
{
    struct err e;
    struct wait w = {.called = 0};
    assert_int_equal(spawn_disk_open(srv.spawn, d, on_opened, &w, &e), 0);
    return reply_of(&w);
}

static struct spawn_reply
remove_disk(const struct spawn_disk *d)
{
    struct err e;
    struct wait w = {.called = 0};
    assert_int_equal(spawn_disk_remove(srv.spawn, d, on_done, &w, &e), 0);
    return reply_of(&w);
}

static struct spawn_reply
close_disk(uint32_t number)
{
    struct err e;
    struct wait w = {.called = 0};
    assert_int_equal(spawn_disk_close(srv.spawn, number, on_done, &w, &e), 0);
    return reply_of(&w);
}

static struct spawn_reply
mount_in(const struct sandbox *s, uint32_t disk, const char *at, bool read_only)
{
    struct err e;
    struct wait w = {.called = 0};
    const struct spawn_mount m = {.disk = disk, .read_only = read_only, .at = at};
    assert_int_equal(spawn_mount(srv.spawn, s->slot, s->generation, &m, on_done, &w, &e), 0);
    return reply_of(&w);
}

#define assert_ok(reply)                                                                           \
    do {                                                                                           \
        struct spawn_reply r_ = (reply);                                                           \
        if (!r_.ok)                                                                                \
            fail_msg("%s", r_.err.text);                                                           \
    } while (0)

#define assert_refused(reply, c)                                                                   \
    do {                                                                                           \
        struct spawn_reply r_ = (reply);                                                           \
        assert_int_equal(r_.ok, 0);                                                                \
        if (r_.err.code != (c))                                                                    \
            fail_msg("%d: %s", r_.err.code, r_.err.text);                                          \
    } while (0)

// A new disk of that size, open. Its number.
static uint32_t
opened(const struct spawn_disk *d, uint64_t bytes, uint32_t inodes)
{
    assert_ok(make(d, bytes, inodes));
    struct spawn_reply r = open_disk(d);
    assert_ok(r);
    return r.layer;
}

// Removes the box, which the disk's last user is, then the disk.
static void
drop(uint32_t number, const struct spawn_disk *d)
{
    forget_box(box);
    box = NULL;
    assert_ok(close_disk(number));
    assert_ok(remove_disk(d));
}

static unsigned
loops_of_state(void)
{
    char path[64], line[512];
    unsigned n = 0;
    for (int i = 0; i < 64; i++) {
        (void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        n += fgets(line, sizeof line, f) != NULL &&
             strstr(line, core_broker()->config.state_dir) != NULL;
        (void)fclose(f);
    }
    return n;
}

static unsigned
entries_of(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    for (const struct dirent *it = d != NULL ? readdir(d) : NULL; it != NULL; it = readdir(d))
        n += it->d_name[0] != '.';
    if (d != NULL)
        (void)closedir(d);
    return n;
}

static unsigned
files_of_state(void)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/disks", core_broker()->config.state_dir);
    return entries_of(path);
}

static void
until_nothing_is_left(void)
{
    wait_until("the loop devices are free", loops_of_state() == 0);
    assert_int_equal(files_of_state(), 0);
}

// ---- what is refused

static void
what_does_not_exist_cannot_be_used(void **state)
{
    (void)state;
    assert_refused(open_disk(&first), ERR_NOT_FOUND);
    assert_refused(mount_in(box, 0, "/data", false), ERR_NOT_FOUND);
    assert_refused(close_disk(7), ERR_NOT_FOUND);
    assert_ok(remove_disk(&first));
}

static void
a_second_one_of_the_name_is_refused(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 4 * MIB, 100);
    assert_refused(make(&first, 4 * MIB, 100), ERR_ALREADY_EXISTS);
    assert_refused(open_disk(&first), ERR_ALREADY_EXISTS);
    assert_refused(remove_disk(&first), ERR_FAILED_PRECONDITION); // it is open
    drop(n, &first);
    until_nothing_is_left();
}

static void
more_than_the_host_has_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    assert_refused(make(&first, SPAWN_DISK_BYTES_MAX, 100), ERR_RESOURCE_EXHAUSTED);
    until_nothing_is_left();
}

static void
the_folders_of_the_sandbox_are_no_places(void **state)
{
    (void)state;
    static const char *const bad[] = {"/",       "",         "data", "/etc",   "/etc/x",
                                      "/proc/1", "/dev/shm", "/usr", "/usr/x", "/a/../etc",
                                      "/a//b",   "/a/",      "/tmp", "/run/x", "/sys"};
    uint32_t n = opened(&first, 4 * MIB, 100);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(mount_in(box, n, bad[i], false), ERR_INVALID_ARGUMENT);
    assert_sh("ln -s /etc link; touch file; pwd", "/home/agent\n");
    assert_refused(mount_in(box, n, "/home/agent/link", false), ERR_FAILED_PRECONDITION);
    assert_refused(mount_in(box, n, "/home/agent/link/x", false), ERR_FAILED_PRECONDITION);
    assert_refused(mount_in(box, n, "/home/agent/file", false), ERR_FAILED_PRECONDITION);
    assert_refused(mount_in(box, n, "/bin/x", false), ERR_FAILED_PRECONDITION);
    assert_ok(mount_in(box, n, "/data", false));
    assert_refused(mount_in(box, n, "/data", false), ERR_INVALID_ARGUMENT);
    assert_refused(mount_in(box, n, "/data/x", false), ERR_INVALID_ARGUMENT);
    assert_refused(close_disk(n), ERR_FAILED_PRECONDITION);
    drop(n, &first);
    until_nothing_is_left();
}

// ---- what works

static void
files_belong_to_the_job_and_stay(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 8 * MIB, 100);
    assert_ok(mount_in(box, n, "/data", false));
    assert_sh("ls -A /data; echo hi > /data/A; mkdir /data/D; stat -c '%u %g %a' /data /data/A",
              "1000 1000 755\n1000 1000 644\n");
    forget_box(box);
    assert_int_equal(make_box(state), 0);
    assert_ok(mount_in(box, n, "/home/agent/deep/data", false));
    assert_sh("cat deep/data/A; echo more >> deep/data/A; stat -c %u deep deep/data",
              "hi\n1000\n1000\n");
    forget_box(box);
    box = NULL;
    assert_ok(close_disk(n));
    struct spawn_reply r = open_disk(&first); // waits for the kernel to let it go
    assert_ok(r);
    assert_int_equal(make_box(state), 0);
    assert_ok(mount_in(box, r.layer, "/data", true));
    assert_sh("cat /data/A; echo no > /data/A; true",
              "hi\nmore\nsh: 1: cannot create /data/A: Read-only file system\n");
    drop(r.layer, &first);
    until_nothing_is_left();
}

static void
two_sandboxes_share_one(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 8 * MIB, 100);
    struct sandbox *a = box;
    assert_ok(mount_in(a, n, "/data", false));
    assert_int_equal(make_box(state), 0);
    struct sandbox *b = box;
    assert_ok(mount_in(b, n, "/mnt", true));
    box = a;
    assert_sh("echo from a > /data/A", "");
    box = b;
    assert_sh("cat /mnt/A; stat -c %u /mnt/A", "from a\n1000\n");
    forget_box(a);
    assert_sh("cat /mnt/A", "from a\n");
    drop(n, &first);
    until_nothing_is_left();
}

static void
bytes_and_inodes_are_bounded_and_nothing_is_lost(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 8 * MIB, 64);
    assert_ok(mount_in(box, n, "/data", false));
    assert_sh("cd /data; head -c 8000000 /dev/zero > A && wc -c < A; rm A", "8000000\n");
    assert_sh(
        "cd /data; echo kept > K; head -c 20000000 /dev/zero 2>/dev/null > A; echo $?; cat K; rm A; echo more > L; cat L",
        "1\nkept\nmore\n");
    assert_sh(
        "cd /data; i=0; while true > f$i; do i=$((i + 1)); done 2>/dev/null; [ $i -ge 60 ] && [ $i -le 100 ] && echo $? ; cat K",
        "0\nkept\n");
    drop(n, &first);
    until_nothing_is_left();
}

static void
hostile_content_is_kept_and_harmless(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 16 * MIB, 8000);
    assert_ok(mount_in(box, n, "/data", false));
    assert_sh(
        "cd /data; cp /usr/bin/id id; chmod 6755 id; ./id -u; mknod dev b 7 0 2>&1 | wc -l; ln -s /etc/shadow out; touch \"$(printf '\\377\\n')\"; mkfifo fifo; ls | wc -l",
        "1000\n1\n4\n");
    assert_sh(
        "cd /data; python3 -c \"\nimport os\nfor i in range(3000):\n    os.mkdir('d'); os.chdir('d')\n\"; echo $?",
        "0\n");
    drop(n, &first);
    until_nothing_is_left();
}

static void
it_stays_over_snapshots_and_is_not_part_of_them(void **state)
{
    (void)state;
    uint32_t n = opened(&first, 8 * MIB, 100);
    uint32_t m = opened(&second, 8 * MIB, 100);
    assert_ok(mount_in(box, n, "/data", false));
    assert_ok(mount_in(box, m, "/home/agent/sub/here", true));
    // a folder above it moves, and the next root has it where it belongs
    assert_sh("echo 1 > /data/A; echo 1 > B; mv sub away; mkdir sub", "");
    uint32_t layer = swap();
    assert_sh("echo 2 > /data/A; echo 2 > B; cat /data/A B; ls away sub",
              "2\n2\naway:\nhere\n\nsub:\nhere\n");
    restore(layer);
    assert_sh("cat /data/A B; touch sub/here/x 2>/dev/null; echo $?", "2\n1\n1\n");
    assert_sh("grep -c ' /data \\| /home/agent/sub/here ' /proc/self/mounts; touch away/here/x",
              "2\n");
    forget_box(box);
    box = NULL;
    assert_ok(close_disk(m));
    assert_ok(remove_disk(&second));
    assert_ok(close_disk(n));
    assert_ok(remove_disk(&first));
    until_nothing_is_left();
}

static unsigned
spawner_descriptors(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", spawn_pid(srv.spawn));
    return entries_of(path);
}

static void
the_spawner_keeps_no_descriptor(void **state)
{
    (void)state;
    unsigned before = spawner_descriptors();
    for (int i = 0; i < 5; i++) {
        uint32_t n = opened(&first, 4 * MIB, 100);
        assert_int_equal(box == NULL ? make_box(state) : 0, 0);
        assert_ok(mount_in(box, n, "/data", false));
        drop(n, &first);
        if (i == 0)
            before = spawner_descriptors();
    }
    wait_until("helpers are reaped", spawner_descriptors() <= before);
    until_nothing_is_left();
}

static int
start(void **state)
{
    int r = start_core(state);
    const struct spawn_feature *f = r == 0 ? broker_feature(core_broker(), "disks") : NULL;
    if (f == NULL || f->available) {
        (void)printf("disks: %s\n", f == NULL ? "" : f->detail);
        return r;
    }
    (void)printf("skipped: %s\n", f->detail);
    (void)stop_core(state);
    exit(77);
}

int
main(void)
{
#define TAKEN(name) cmocka_unit_test_setup_teardown(name, make_box, remove_box)
    const struct CMUnitTest tests[] = {
        TAKEN(what_does_not_exist_cannot_be_used),
        TAKEN(a_second_one_of_the_name_is_refused),
        TAKEN(more_than_the_host_has_is_refused_and_leaves_nothing),
        TAKEN(the_folders_of_the_sandbox_are_no_places),
        TAKEN(files_belong_to_the_job_and_stay),
        TAKEN(two_sandboxes_share_one),
        TAKEN(bytes_and_inodes_are_bounded_and_nothing_is_lost),
        TAKEN(hostile_content_is_kept_and_harmless),
        TAKEN(it_stays_over_snapshots_and_is_not_part_of_them),
        TAKEN(the_spawner_keeps_no_descriptor),
    };
    return cmocka_run_group_tests(tests, start, stop_core);
}
