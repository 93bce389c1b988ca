// SPDX-License-Identifier: Apache-2.0
// The files that a sandbox sees, and what it cannot undo. Needs root.
//
// As in guest.c the test program acts as the spawner; its parent process removes the folders afterwards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/harness/inside.h"
#include "proto/auto.h"
#include "server/spawner/tree_helper.h"
#include "server/spawner/tree_internal.h"
#include "tests/harness/wait.h"

static int stale_fd = -1;  // left by an earlier start, to be removed
static int locked_fd = -1; // the host's /usr/bin/env, with a lock

static bool
is_mapped(void)
{
    for (uint32_t i = 0; i < in.features.n; i++)
        if (strcmp(in.features.feature[i].name, "idmapped-mounts") == 0)
            return in.features.feature[i].available != 0;
    fail_msg("the feature is not told");
    return false;
}

// It must be refused before its layers are checked: there are none here.
static void
refuse(const struct spawn_root *r, unsigned fds_n, const char *text)
{
    struct err e = {0};
    struct err remark;
    uint32_t number = 0;
    int fds[SPAWN_ROOT_FDS_MAX] = {0};
    for (unsigned i = 0; i < fds_n; i++)
        assert_true((fds[i] = open("/proc/self/stat", O_RDONLY | O_CLOEXEC)) >= 0);
    assert_true(tree_root_add(in.tree, r, fds, fds_n, &number, &remark, &e) < 0);
    for (unsigned i = 0; i < fds_n; i++)
        assert_int_equal(fcntl(fds[i], F_GETFD), -1);
    expect_in(e.text, text);
}

static void
invalid_host_names_and_paths_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",    ".",   "..",  "a/b",     "-a",
                                        "a b", "a:b", "a,b", "\xc3\xa4"};
    const unsigned n = in.root.layers_n + 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct spawn_root r = in.root;
        (void)snprintf(r.hostname, sizeof r.hostname, "%s", names[i]);
        refuse(&r, n, "must be letters");
    }
    static const char *const paths[] = {"/",           "opt",     "/opt/",    "//opt",
                                        "/opt/../etc", "/opt/.",  "/etc/ssh", "/proc/1",
                                        "/dev",        "/sys/fs", "/tmp",     "/opt/.."};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct spawn_root r = in.root;
        (void)snprintf(r.at[r.layers_n - 1], sizeof r.at[0], "%s", paths[i]);
        refuse(&r, n, "must be absolute");
    }
    struct spawn_root r = in.root;
    memset(r.hostname, 'x', sizeof r.hostname);
    refuse(&r, n, "must be letters");
    r = in.root;
    refuse(&r, n - 1, "descriptors");
    r.layers_n = 1;
    refuse(&r, 2, "must be 2");
    r.layers_n = SPAWN_ROOT_LAYERS_MAX + 1;
    refuse(&r, SPAWN_ROOT_FDS_MAX, "must be 2");
    r = in.root;
    (void)snprintf(r.at[1], sizeof r.at[1], "/opt");
    refuse(&r, n, "skeleton and /usr");
    refuse(&in.root, n, "none of a mounted folder");
}

static void
a_sandbox_holds_this_and_nothing_of_the_host(void **state)
{
    (void)state;
    const char *out = inside_run("cd /; echo *; cat /proc/mounts /proc/self/mountinfo", AGENT);
    expect_in(out, "dev etc home");
    static const char *const absent[] = {"cgroup2",    "sysfs",         "ext4",
                                         in.state_dir, "stockade-test", "lost+found"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        if (strstr(out, absent[i]) != NULL)
            fail_msg("%s is in:\n%s", absent[i], out);
    out =
        inside_run("cat /etc/shadow /etc/gshadow /etc/machine-id; ls -A /etc/ssh /sys /run", AGENT);
    expect_in(out, "/etc/shadow: No such file");
    expect_in(out, "/etc/machine-id: No such file");
    expect_in(out, "'/etc/ssh': No such file");
    expect_in(out, "/run:\n\n/sys:\ndevices\nfs\n");
}

static void
only_these_devices_exist(void **state)
{
    (void)state;
    const char *out =
        inside_run("cd /dev; echo *; echo shm/* pts/*; stat -c '%n %F %t:%T %a' null zero "
                   "full random urandom tty; touch x; rm null; echo hi > /dev/shm/f && cat "
                   "/dev/shm/f; head -c4 /dev/zero | wc -c; : > /dev/null && echo null",
                   AGENT);
    expect_in(out, "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\n"
                   "shm/* pts/ptmx\n"
                   "null character special file 1:3 666\nzero character special file 1:5 666\n"
                   "full character special file 1:7 666\nrandom character special file 1:8 666\n"
                   "urandom character special file 1:9 666\ntty character special file 5:0 666\n");
    expect_in(out, "cannot touch 'x': Read-only file system");
    expect_in(out, "cannot remove 'null': Read-only file system");
    expect_in(out, "hi\n4\nnull\n");
}

// Root of the user namespace has every capability there, and no filter; still, all mounts are owned by the namespace
// above.
static void
nothing_of_it_can_be_undone_even_by_the_namespaces_root(void **state)
{
    (void)state;
    const char *out = inside_run(
        "id -u; umount /proc/kcore && echo undone; umount -l /proc && echo undone; "
        "mount -o remount,rw,bind /dev && echo undone; mount -t tmpfs x /mnt && echo undone; "
        "mount --bind /mnt /proc/sys && echo undone; "
        "unshare -m sh -c 'umount /proc/kcore && echo undone; umount /usr && echo undone; "
        "mount -o remount,rw,bind /dev && echo undone; "
        "mount -o remount,suid,bind / && echo undone; mount -o remount,rw,bind /proc/sys && "
        "echo undone; echo tried'; touch /dev/x && echo undone; touch /usr/written-by-a-sandbox; mknod /tmp/d b 8 0 && echo undone; "
        "chmod 777 /dev/null && echo undone; echo end",
        ROOT);
    assert_null(strstr(out, "undone"));
    // its own upper folder has the file
    assert_int_equal(access("/usr/written-by-a-sandbox", F_OK), -1);
    expect_in(out, "0\n");
    expect_in(out, "tried\n");
    expect_in(out, "end\n");
}

// As after pivot_root: even a process that may chroot, and so has a working directory outside of its root, reaches at
// most the sandbox's root.
static void
nothing_below_the_root_can_be_reached(void **state)
{
    (void)state;
    static const char climb[] =
        "import os\n"
        "os.mkdir('/tmp/x'); here = os.open('/', os.O_RDONLY); os.chroot('/tmp/x')\n"
        "os.fchdir(here)\n"
        "for i in range(40): os.chdir('..')\n"
        "os.chroot('.')\n"
        "print('top', *sorted(os.listdir('/')))\n"
        "for i in range(40): os.chdir('..')\n"
        "print('up', *sorted(os.listdir('.')))\n";
    char script[sizeof climb + 256];
    (void)snprintf(
        script, sizeof script,
        "echo top $(LC_ALL=C ls -A /); echo roots $(grep -c ' / / ' /proc/self/mountinfo); "
        "umount -l / && echo undone; unshare -m umount -l / && echo undone; "
        "python3 -c \"%s\"",
        climb);
    const char *out = inside_run(script, ROOT);
    assert_null(strstr(out, "undone"));
    expect_in(out, "\nroots 1\n");
    char seen[512];
    assert_int_equal(sscanf(out, "%511[^\n]", seen), 1);
    expect_in(seen, "top bin");
    const char *again = strstr(out + 1, "\ntop ");
    assert_non_null(again);
    assert_memory_equal(again + 1, seen, strlen(seen));
    const char *up = strstr(out, "\nup ");
    assert_non_null(up);
    assert_memory_equal(up + 4, seen + 4, strlen(seen) - 4);
}

static void
files_have_the_owners_that_they_have_on_the_host(void **state)
{
    (void)state;
    const char *out =
        inside_run("stat -c '%u %g %a %n' / /usr /usr/bin/env /etc/passwd /home/agent /tmp "
                   "/var/tmp /root /run; cd /tmp; touch f; stat -c %u f; touch /etc/x /x /usr/x",
                   AGENT);
    static const char *const root[] = {"65534 65534", "0 0"};
    const bool etc = in.tree->layers[in.tree->roots[0].layer[0]].idmapped;
    const bool usr = in.tree->layers[in.tree->roots[0].layer[1]].idmapped;
    assert_int_equal(is_mapped(), etc && usr);
    char line[128];
    (void)snprintf(line, sizeof line, "%s 755 /usr/bin/env\n%s 644 /etc/passwd\n", root[usr],
                   root[etc]);
    expect_in(out, line);
    expect_in(out, "0 0 755 /\n");
    expect_in(out, "1000 1000 755 /home/agent\n0 0 1777 /tmp\n0 0 1777 /var/tmp\n");
    expect_in(out, "\n1000\n");
    expect_in(out, "'/etc/x': Permission denied");
    expect_in(out, "'/x': Permission denied");
    expect_in(out, "'/usr/x': Permission denied");
}

// Whether readdir() and stat() of the host give the same inode numbers. In an overlay, folders may have two.
static bool host_agrees;

static bool
have_one_number_each(const char *path)
{
    DIR *d = opendir(path);
    bool agree = d != NULL;
    for (const struct dirent *one; agree && (one = readdir(d)) != NULL;) {
        struct stat st;
        agree = fstatat(dirfd(d), one->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                (st.st_ino == one->d_ino || strcmp(one->d_name, "..") == 0);
    }
    if (d != NULL)
        (void)closedir(d);
    return agree;
}

static void
errors_and_inode_numbers_are_those_of_any_host(void **state)
{
    (void)state;
    const char *out = inside_run(
        "rm /usr/none /usr/lib/none; rmdir /usr/none; mv /usr/none /usr/no; rm -f /usr/bin/env; "
        "mkdir -p /tmp/a/b && touch /tmp/f; python3 -c '\n"
        "import os\n"
        "for top in \"/usr/lib/python3\", \"/tmp\", \"/etc\":\n"
        "    found = [e for d, _, _ in os.walk(top) for e in os.scandir(d)]\n"
        "    bad = [e.path for e in found if e.inode() != e.stat(follow_symlinks=False).st_ino]\n"
        "    print(top, len(found) > 1, bad[:3])\n'",
        AGENT);
    expect_in(out, "cannot remove '/usr/none': No such file or directory");
    expect_in(out, "cannot remove '/usr/lib/none': No such file or directory");
    expect_in(out, "failed to remove '/usr/none': No such file or directory");
    expect_in(out, "cannot stat '/usr/none': No such file or directory");
    expect_in(out, "cannot remove '/usr/bin/env': Permission denied");
    expect_in(out, "/tmp True []\n/etc True []\n");
    if (host_agrees)
        expect_in(out, "/usr/lib/python3 True []\n");
}

static void
the_limits_of_disk_and_inodes_are_enforced(void **state)
{
    (void)state;
    const char *out = inside_run(
        "dd if=/dev/zero of=/tmp/big bs=1M count=100; rm /tmp/big; dd if=/dev/zero "
        "of=/dev/shm/big bs=1M count=100; rm /dev/shm/big; mkdir /tmp/many; cd /tmp/many; "
        "i=0; while [ $i -lt 5000 ] && : > $i; do i=$((i+1)); done 2>&1; echo made $i",
        AGENT);
    expect_in(out, "/tmp/big': No space left");
    expect_in(out, "/dev/shm/big': No space left");
    expect_in(out, "No space left on device");
    assert_null(strstr(out, "made 5000"));
}

static void
sandboxes_share_neither_files_nor_locks_nor_their_template(void **state)
{
    (void)state;
    const char *out =
        inside_run("echo one > /tmp/f; echo one > /home/agent/f; echo one > /dev/shm/f; "
                   "ls /tmp /home/agent /dev/shm | grep -c f",
                   AGENT);
    expect_in(out, "3\n");
    out = inside_run("echo mine >> /etc/hosts; mkdir /etc/new; ls -d /etc/new", ROOT);
    if (in.tree->layers[in.tree->roots[0].layer[0]].idmapped)
        expect_in(out, "/etc/new\n");
    out = inside_run(
        "ls /tmp /home/agent /dev/shm | grep -c f; grep -c mine /etc/hosts; ls -d /etc/new", AGENT);
    expect_in(out, "0\n0\n");
    expect_in(out, "'/etc/new': No such file");
    out = inside_run("flock -n /usr/bin/env true && echo free", AGENT);
    expect_in(out, "free\n");
}

// The process with this name (its first argument); 0: none.
static pid_t
process_called(const char *name)
{
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    int found = 0;
    for (struct dirent *d = readdir(proc); d != NULL && found == 0; d = readdir(proc)) {
        char path[300];
        char argument[64] = "";
        (void)snprintf(path, sizeof path, "/proc/%s/cmdline", d->d_name);
        int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, argument, sizeof argument - 1) > 0 && strcmp(argument, name) == 0)
            found = atoi(d->d_name);
    }
    (void)closedir(proc);
    return found;
}

// One sandbox holds locks on common files while another one tries to get them.
static void
no_inode_is_shared_not_even_a_devices(void **state)
{
    (void)state;
    static const char files[] =
        "/dev/null /dev /dev/urandom /proc/cmdline /proc/irq /usr /usr/bin/env /etc";
    int gate[2];
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char script[512];
        (void)snprintf(
            script, sizeof script,
            "exec bash -c 'n=3; for f in %s; do eval \"exec $n<$f\"; flock -n $n || echo busy $f; "
            "n=$((n+1)); done; echo held; exec -a holder-of-locks sleep 60'",
            files);
        const char *out = inside_run(script, ROOT); // without a filter, until the test ends it
        (void)!write(gate[1], out, strlen(out));
        _exit(0);
    }
    pid_t holder = 0;
    wait_until("the holder of the locks", (holder = process_called("holder-of-locks")) > 0);
    char script[512];
    (void)snprintf(script, sizeof script,
                   "for f in %s; do flock -n $f true || echo busy $f; done; echo tried", files);
    const char *out = inside_run(script, AGENT);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_string_equal(out, "tried\n");
    char held[256] = "";
    assert_true(read(gate[0], held, sizeof held - 1) > 0);
    assert_string_equal(held, "held\n");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(gate[0]);
    (void)close(gate[1]);
}

static void
the_names_of_users_and_hosts_are_the_sandboxs(void **state)
{
    (void)state;
    const char *out =
        inside_run("id; getent passwd 1000 65534; cat /etc/hostname; getent hosts sandbox; "
                   "cat /etc/resolv.conf; getent hosts example.com || echo none",
                   AGENT);
    expect_in(out, "uid=1000(agent) gid=1000(agent)");
    expect_in(out, "agent:x:1000:1000:agent:/home/agent:/bin/bash\n");
    expect_in(out, "nobody:x:65534");
    expect_in(out, "sandbox\n127.0.1.1");
    expect_in(out, "nameserver 127.0.0.1\n");
    expect_in(out, "none\n");
}

static void
a_stale_skeleton_is_removed(void **state)
{
    (void)state;
    const char *out = inside_run("ls -A / /etc | grep -c stale", AGENT);
    expect_in(out, "0\n");
    assert_int_equal(faccessat(stale_fd, "etc/stale", F_OK, 0), -1);
}

// Through the child's descriptor, from outside, while the sandbox is in use.
static void
a_disk_can_grow_and_shrink_but_not_below_its_use(void **state)
{
    (void)state;
    int pipes[2];
    int gate[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    pid_t pid = (pid_t)syscall(SYS_clone, INSIDE_NAMESPACES | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        struct err e;
        int disk = -1;
        struct tree_sandbox s = inside_sandbox(16 << 20, 512);
        if (tree_enter(in.tree, &s, &disk, &e) < 0)
            _exit(1);
        int fd = open("/tmp/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || posix_fallocate(fd, 0, 8 << 20) != 0)
            _exit(2);
        (void)!write(pipes[1], &disk, sizeof disk);
        char byte;
        (void)!read(gate[0], &byte, 1);
        _exit(posix_fallocate(fd, 0, 30 << 20) == 0 ? 0 : 3);
    }
    int number = -1;
    assert_int_equal(read(pipes[0], &number, sizeof number), (ssize_t)sizeof number);
    int auto_close pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int auto_close disk = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    assert_true(disk >= 0);
    struct err e = {0};
    assert_int_equal(tree_resize(in.tree, disk, 4 << 20, 512, &e), -EBUSY);
    expect_in(e.text, "more than the new limit");
    assert_int_equal(tree_resize(in.tree, disk, 16 << 20, 3, &e), -EBUSY);
    assert_int_equal(tree_resize(in.tree, disk, 9 << 20, 256, &e), 0);
    assert_int_equal(tree_resize(in.tree, disk, 64 << 20, 1024, &e), 0);
    assert_int_equal(write(gate[1], "x", 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        (void)close(pipes[i]);
        (void)close(gate[i]);
    }
}

struct program {
    const char *name;
    const char *script; // prints "works"
};

static const struct program programs[] = {
    {"bash", "bash -c 'for i in 1 2 3; do (true)& done; wait; cat <<< works'"},
    {"python3",
     "/usr/bin/python3 -c 'import os,sqlite3,ssl,threading,multiprocessing,socket,ctypes\n"
     "c=sqlite3.connect(\"x.db\"); c.execute(\"create table a(b)\"); c.commit()\n"
     "p=multiprocessing.Pool(2); assert p.map(abs,[-1,-2])==[1,2]\n"
     "socket.socketpair(); assert os.cpu_count()>0; print(\"works\")'"},
    {"node", "node -e 'new (require(\"worker_threads\").Worker)(\"console.log(\\\"works\\\")\","
             "{eval:true})'"},
    {"git", "git init -q r && cd r && echo x > y && git add y && git -c user.name=a -c "
            "user.email=a@b commit -qm z && git clone -q . ../s && test -f ../s/y && echo works"},
    {"gcc", "printf '#include <pthread.h>\\n#include <stdio.h>\\nvoid *f(void *a){puts(\"works\");"
            "return a;}int main(void){pthread_t t;pthread_create(&t,0,f,0);return "
            "pthread_join(t,0);}' > a.c && gcc a.c -o a -pthread && ./a"},
    {"java", "java -version 2>&1 | grep -q 'VM' && echo works"},
    {"sqlite3",
     "sqlite3 x.db \"create table a(b); insert into a values('works'); select * from a\""},
    {"perl", "perl -e 'if (!fork) { print \"works\\n\" } else { wait }'"},
    {"make", "printf 'all:\\n\\t@echo works\\n' > Makefile; make -sj2"},
    {"tar", "mkdir d && tar cz d | tar tz | grep -q d && echo works"},
    {"script", "script -qc 'tty >/dev/null && echo works' /dev/null"},
};

static void
everyday_programs_work_under_the_filter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        char script[1024];
        (void)snprintf(script, sizeof script,
                       "command -v %s >/dev/null || { echo absent; exit; }; %s", programs[i].name,
                       programs[i].script);
        const char *out = inside_run(script, AGENT);
        if (strcmp(out, "absent\n") == 0)
            print_message("%s is not on this machine\n", programs[i].name);
        else if (strstr(out, "works") == NULL)
            fail_msg("%s: %s", programs[i].name, out);
    }
}

// The guest of a sandbox that is being deleted may have ended before the spawner knows.
static void
the_mounts_of_a_process_that_has_ended_cannot_be_entered(void **state)
{
    (void)state;
    struct err e;
    siginfo_t info;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(0);
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(fd >= 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(tree_helper_enter(fd, &e) < 0);
    assert_int_equal(e.code, ERR_ABORTED);
    (void)close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int
run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_host_names_and_paths_are_refused),
        cmocka_unit_test(a_sandbox_holds_this_and_nothing_of_the_host),
        cmocka_unit_test(only_these_devices_exist),
        cmocka_unit_test(nothing_of_it_can_be_undone_even_by_the_namespaces_root),
        cmocka_unit_test(nothing_below_the_root_can_be_reached),
        cmocka_unit_test(files_have_the_owners_that_they_have_on_the_host),
        cmocka_unit_test(errors_and_inode_numbers_are_those_of_any_host),
        cmocka_unit_test(the_limits_of_disk_and_inodes_are_enforced),
        cmocka_unit_test(sandboxes_share_neither_files_nor_locks_nor_their_template),
        cmocka_unit_test(no_inode_is_shared_not_even_a_devices),
        cmocka_unit_test(the_names_of_users_and_hosts_are_the_sandboxs),
        cmocka_unit_test(a_stale_skeleton_is_removed),
        cmocka_unit_test(a_disk_can_grow_and_shrink_but_not_below_its_use),
        cmocka_unit_test(everyday_programs_work_under_the_filter),
        cmocka_unit_test(the_mounts_of_a_process_that_has_ended_cannot_be_entered),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}

// What an earlier start might have left.
static void
make_stale(void)
{
    char path[128];
    static const char *const parts[] = {"/templates", "/templates/default",
                                        "/templates/default/etc", "/templates/default/etc/stale",
                                        "/templates/default/stale"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", in.state_dir, parts[i]);
        if (mkdir(path, 0755) < 0)
            inside_die(path);
    }
    (void)snprintf(path, sizeof path, "%s/templates/default", in.state_dir);
    stale_fd = open(path, O_PATH | O_CLOEXEC);
    if (stale_fd < 0)
        inside_die(path);
}

// Before the holder leaves the host's mount namespace.
static void
prepare(void)
{
    make_stale();
    locked_fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    if (locked_fd < 0 || flock(locked_fd, LOCK_EX | LOCK_NB) < 0)
        inside_die("lock a file of the host");
}

int
main(void)
{
    host_agrees = have_one_number_each("/usr/lib/python3");
    return inside_main("tree", prepare, run_all);
}
