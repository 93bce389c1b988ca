// The real guest in a real tree, driven over its socket as the broker does. Needs root.
//
// The test program becomes what the spawner is: it moves into the spawner's tiny root. Its parent only waits and removes
// the folders afterwards, which cannot be reached from there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>

#include "guest.pb-c.h"
#include "inside.h"
#include "proto/auto.h"

enum { OUTPUT_MAX = 65536, WAIT_MS = 120000 };

static struct inside in;
static int guest_exe = -1;

struct box {
    int socket;
    pid_t pid;
    char cgroup[64]; // below the mount at /c
    uint32_t jobs;
};

static double
now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

// Sends what was packed into bytes, with descriptors.
static void
send_packet(int socket, const void *bytes, size_t n, const int *fds, unsigned fds_n)
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov;
    memcpy(&iov.iov_base, &bytes, sizeof bytes);
    iov.iov_len = n;
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds_n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fds_n * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &m, MSG_NOSIGNAL), (ssize_t)n);
}

static void
send_request(int socket, const Stockade__Guest__Request *r, const int *fds, unsigned fds_n)
{
    static uint8_t bytes[256 * 1024];
    size_t n = stockade__guest__request__pack(r, bytes);
    send_packet(socket, bytes, n, fds, fds_n);
}

// The next event; NULL when the guest has gone. *fd: what came with it, or -1.
static Stockade__Guest__Event *
next_event(int socket, int *fd)
{
    struct pollfd p = {.fd = socket, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    static uint8_t bytes[4096];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return NULL;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int got = -1;
    if (c != NULL)
        memcpy(&got, CMSG_DATA(c), sizeof got);
    if (fd != NULL)
        *fd = got;
    else if (got >= 0)
        (void)close(got);
    return stockade__guest__event__unpack(NULL, (size_t)n, bytes);
}

static void
put_fd(int fd, int at)
{
    if (fd == at)
        (void)fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, at) < 0)
        inside_die("dup2");
}

// In the child: what the spawner's child does after clone3.
static void
become_guest(int socket, int cgroup)
{
    struct err e = {0};
    int disk = -1;
    struct tree_sandbox s = inside_sandbox(&in, 16 << 20, 2048);
    if (tree_enter(in.tree, &s, &disk, &e) < 0) {
        (void)dprintf(2, "%s\n", e.text);
        _exit(90);
    }
    static const int kept[] = {CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_SETPCAP};
    int fds[] = {fcntl(socket, F_DUPFD, 20), fcntl(cgroup, F_DUPFD, 20),
                 fcntl(in.job_fd, F_DUPFD, 20), fcntl(guest_exe, F_DUPFD_CLOEXEC, 20)};
    if (setns(in.userns_fd, CLONE_NEWUSER) < 0 || setgid(0) < 0 || setuid(0) < 0 ||
        setresgid(SANDBOX_UID_GUEST, SANDBOX_UID_GUEST, SANDBOX_UID_GUEST) < 0 ||
        prctl(PR_SET_KEEPCAPS, 1) < 0 ||
        setresuid(SANDBOX_UID_GUEST, SANDBOX_UID_GUEST, SANDBOX_UID_GUEST) < 0)
        inside_die("become the guest's user");
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        bits |= 1U << kept[i];
    const struct __user_cap_data_struct data[2] = {
        {.permitted = bits, .effective = bits, .inheritable = bits}};
    if (syscall(SYS_capset, &header, data) < 0)
        inside_die("capset");
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kept[i], 0, 0) < 0)
            inside_die("raise");
    for (int i = 0; i < 3; i++)
        put_fd(fds[i], GUEST_FD_BROKER + i);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_load(&in.guest, &e) < 0)
        inside_die("filter");
    char *argv[] = {(char[]){"stockade-guest"}, NULL};
    char *env[] = {NULL};
    (void)syscall(SYS_execveat, fds[3], "", argv, env, AT_EMPTY_PATH);
    inside_die("execute the guest");
}

static void
own(const char *dir, const char *file)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s%s", dir, file);
    if (chown(path, (uid_t)TEST_UID + SANDBOX_UID_GUEST, (gid_t)TEST_UID + SANDBOX_UID_GUEST) < 0)
        inside_die(path);
}

static double ready_us; // from clone3 to Ready

static void
box_open(struct box *b)
{
    static int count;
    *b = (struct box){.socket = -1};
    char guest[80];
    (void)snprintf(b->cgroup, sizeof b->cgroup, "/c/box%d", ++count);
    (void)snprintf(guest, sizeof guest, "%s/guest", b->cgroup);
    if (mkdir(b->cgroup, 0755) < 0 || mkdir(guest, 0755) < 0)
        inside_die("make cgroups");
    own(b->cgroup, "");
    own(b->cgroup, "/cgroup.procs");
    own(guest, "/cgroup.procs");
    int auto_close into = open(guest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int auto_close detached = open_tree(AT_FDCWD, b->cgroup, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int pair[2];
    if (into < 0 || detached < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        inside_die("open the box");
    struct clone_args args = {.flags = (INSIDE_NAMESPACES & ~(unsigned)CLONE_NEWCGROUP) |
                                       CLONE_INTO_CGROUP,
                              .exit_signal = SIGCHLD,
                              .cgroup = (unsigned)into};
    double start = now_us();
    b->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (b->pid == 0)
        become_guest(pair[1], detached);
    if (b->pid < 0)
        inside_die("clone3");
    (void)close(pair[1]);
    b->socket = pair[0];
    Stockade__Guest__Event *event = next_event(b->socket, NULL);
    ready_us = now_us() - start;
    assert_non_null(event);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_READY);
    assert_int_equal(event->ready->version, 1);
    stockade__guest__event__free_unpacked(event, NULL);
}

static void
rmdir_soon(const char *path)
{
    for (int i = 0; i < 2000 && rmdir(path) < 0; i++) {
        if (errno == ENOENT)
            return;
        (void)usleep(1000);
    }
}

// Closes the socket, which must end the guest and every job; then removes the cgroups.
static void
box_close(struct box *b)
{
    (void)close(b->socket);
    int status;
    assert_int_equal(waitpid(b->pid, &status, 0), b->pid);
    assert_true(WIFEXITED(status));
    char path[96];
    for (uint32_t i = 1; i <= b->jobs; i++) {
        (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, i);
        rmdir_soon(path);
    }
    (void)snprintf(path, sizeof path, "%s/guest", b->cgroup);
    rmdir_soon(path);
    rmdir_soon(b->cgroup);
    struct stat st;
    assert_int_equal(stat(b->cgroup, &st), -1);
}

static int
setup(void **state)
{
    static struct box b;
    box_open(&b);
    *state = &b;
    return 0;
}

static int
teardown(void **state)
{
    box_close(*state);
    return 0;
}

struct start {
    char *args[8];
    const char *workdir;
    char *path; // "PATH=..."
    bool terminal;
    int pipes; // descriptors to send; -1: three
};

// Sends a Start with fresh pipes. *output: our end of stdout and stderr, *input: of stdin.
static uint32_t
start_job(struct box *b, const struct start *s, int *input, int *output)
{
    Stockade__Guest__Start start = STOCKADE__GUEST__START__INIT;
    static char home[] = "HOME=/home/agent";
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    const char *env[] = {home, s->path != NULL ? s->path : path};
    start.job = ++b->jobs;
    while (s->args[start.n_args] != NULL)
        start.n_args++;
    memcpy(&start.args, &(const char *const *){(const char *const *)s->args}, sizeof start.args);
    start.n_env = 2;
    start.env = env;
    start.workdir = (char *)(uintptr_t)(s->workdir != NULL ? s->workdir : "/home/agent");
    start.files_max = 256;
    start.file_bytes_max = 8 << 20;
    start.cpu_seconds_max = 60;
    start.terminal = s->terminal;
    start.rows = 33;
    start.columns = 99;
    Stockade__Guest__Request request = STOCKADE__GUEST__REQUEST__INIT;
    request.request_case = STOCKADE__GUEST__REQUEST__REQUEST_START;
    request.start = &start;
    int in_pipe[2];
    int out_pipe[2];
    if (pipe2(in_pipe, O_CLOEXEC) < 0 || pipe2(out_pipe, O_CLOEXEC) < 0)
        inside_die("pipe");
    (void)fchmod(out_pipe[1], 0666);
    const int fds[] = {in_pipe[0], out_pipe[1], out_pipe[1]};
    send_request(b->socket, &request, fds,
                 s->terminal ? 0 : (unsigned)(s->pipes < 0 ? 3 : s->pipes));
    (void)close(in_pipe[0]);
    (void)close(out_pipe[1]);
    *input = in_pipe[1];
    *output = out_pipe[0];
    return b->jobs;
}

static void
send_simple(struct box *b, int what, uint32_t job, uint32_t signal_number, bool group)
{
    Stockade__Guest__Request r = STOCKADE__GUEST__REQUEST__INIT;
    Stockade__Guest__Signal s = STOCKADE__GUEST__SIGNAL__INIT;
    Stockade__Guest__Kill k = STOCKADE__GUEST__KILL__INIT;
    Stockade__Guest__Remove m = STOCKADE__GUEST__REMOVE__INIT;
    s.job = k.job = m.job = job;
    s.signal = signal_number;
    s.group = group;
    r.request_case = (Stockade__Guest__Request__RequestCase)what;
    if (what == STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL)
        r.signal = &s;
    else if (what == STOCKADE__GUEST__REQUEST__REQUEST_KILL)
        r.kill = &k;
    else
        r.remove = &m;
    send_request(b->socket, &r, NULL, 0);
}

static void
expect_started(struct box *b, uint32_t job, int *fd)
{
    Stockade__Guest__Event *event = next_event(b->socket, fd);
    assert_non_null(event);
    if (event->event_case == STOCKADE__GUEST__EVENT__EVENT_FAILED)
        fail_msg("%s", event->failed->text);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_STARTED);
    assert_int_equal(event->started->job, job);
    stockade__guest__event__free_unpacked(event, NULL);
}

// The wait status.
static int
expect_exited(struct box *b, uint32_t job)
{
    Stockade__Guest__Event *event = next_event(b->socket, NULL);
    assert_non_null(event);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_EXITED);
    assert_int_equal(event->exited->job, job);
    int status = (int)event->exited->status;
    stockade__guest__event__free_unpacked(event, NULL);
    return status;
}

static void
expect_failed(struct box *b, unsigned exit_code, const char *text)
{
    Stockade__Guest__Event *event = next_event(b->socket, NULL);
    assert_non_null(event);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_FAILED);
    assert_int_equal(event->failed->exit_code, exit_code);
    if (strstr(event->failed->text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", event->failed->text, text);
    stockade__guest__event__free_unpacked(event, NULL);
}

static const char *
read_all(int fd)
{
    static char out[OUTPUT_MAX];
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        ssize_t got = read(fd, out + n, sizeof out - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    return out;
}

// Runs a script to its end and gives what it printed.
static const char *
run_script(struct box *b, const char *script, int status)
{
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script},
                      .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    const char *out = read_all(output);
    int got = expect_exited(b, job);
    if (got != status)
        fail_msg("status %x, printed: %s", (unsigned)got, out);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_REMOVE, job, 0, false);
    return out;
}

static void
expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void
try_start(struct box *b, struct start *s)
{
    int auto_close input = -1;
    int auto_close output = -1;
    (void)start_job(b, s, &input, &output);
}

static void
a_command_that_is_not_there_exits_127(void **state)
{
    struct start s = {.args = {(char[]){"no-such-command"}}, .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 127, "execute no-such-command: No such file");
}

// A name that is cut in the middle of a character must not make the message one that the broker refuses.
static void
an_odd_name_is_told_in_plain_characters(void **state)
{
    char name[402] = "a";
    for (size_t i = 1; i + 2 < sizeof name; i += 2)
        (void)snprintf(name + i, sizeof name - i, "\xc3\xa9");
    struct start s = {.args = {name}, .pipes = -1};
    try_start(*state, &s);
    Stockade__Guest__Event *event = next_event(((struct box *)*state)->socket, NULL);
    assert_non_null(event);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_FAILED);
    for (const char *p = event->failed->text; *p != '\0'; p++)
        assert_true(*p >= ' ' && *p < 0x7f);
    stockade__guest__event__free_unpacked(event, NULL);
}

static void
a_file_that_is_not_executable_exits_126(void **state)
{
    struct start s = {.args = {(char[]){"/etc/passwd"}}, .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 126, "execute /etc/passwd: Permission denied");
}

static void
a_working_folder_that_is_not_there_is_told(void **state)
{
    struct start s = {.args = {(char[]){"true"}}, .workdir = "/nowhere", .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 126, "enter /nowhere: No such file");
}

static void
a_start_without_its_three_pipes_is_refused(void **state)
{
    struct start s = {.args = {(char[]){"true"}}, .pipes = 2};
    try_start(*state, &s);
    expect_failed(*state, 0, "2 descriptors");
}

static void
a_start_without_a_command_is_refused(void **state)
{
    struct start s = {.pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 0, "args");
}

static void
a_failed_start_leaves_no_cgroup(void **state)
{
    struct box *b = *state;
    struct start s = {.args = {(char[]){"no-such-command"}}, .pipes = -1};
    try_start(b, &s);
    expect_failed(b, 127, "");
    char path[96];
    (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, b->jobs);
    struct stat st;
    assert_int_equal(stat(path, &st), -1);
}

static void
bytes_that_are_no_request_end_the_sandbox(void **state)
{
    (void)state;
    struct box b;
    box_open(&b);
    send_packet(b.socket, "\xff\xff\xff", 3, NULL, 0);
    assert_null(next_event(b.socket, NULL));
    box_close(&b);
}

static void
exit_codes_and_signals_arrive_as_wait_has_them(void **state)
{
    (void)run_script(*state, "exit 7", 7 << 8);
    (void)run_script(*state, "kill -TERM $$", SIGTERM);
    assert_string_equal(run_script(*state, "echo out; echo err >&2; cat </dev/null", 0),
                        "out\nerr\n");
    assert_string_equal(run_script(*state, "echo again > /dev/stderr", 0), "again\n");
}

static void
a_job_is_the_agent_without_rights(void **state)
{
    const char *out = run_script(
        *state,
        "id; grep -E 'Uid|Groups|Cap|NoNew|Seccomp|Sig' /proc/self/status; echo cwd=$PWD; for i in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && echo open $i; done; true",
        0);
    expect_in(out, "uid=1000(agent) gid=1000(agent) groups=1000(agent)\n");
    expect_in(out, "Uid:\t1000\t1000\t1000\t1000\n");
    expect_in(out, "Groups:\t \n");
    expect_in(out,
              "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
              "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n");
    expect_in(out, "Seccomp:\t2\nSeccomp_filters:\t2\n");
    expect_in(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    expect_in(out, "cwd=/home/agent\nopen 0\nopen 1\nopen 2\n");
    assert_null(strstr(out, "open 3"));
}

static void
a_job_leads_a_session_and_has_its_limits(void **state)
{
    const char *out = run_script(
        *state,
        "ps -o sid= -p $$ | tr -d ' '; echo pid=$$; ulimit -Hn; ulimit -Hf;"
        " ulimit -Ht; ulimit -Hl; ulimit -Hr; umask; cat /proc/self/oom_score_adj; ulimit -v",
        0);
    int sid = 0;
    int pid = -1;
    (void)sscanf(out, "%d\npid=%d", &sid, &pid); // NOLINT(cert-err34-c)
    assert_int_equal(sid, pid);
    expect_in(out, "\n256\n16384\n60\n8192\n0\n0022\n1000\nunlimited\n");
}

static void
a_job_sees_only_processes_of_jobs(void **state)
{
    const char *out =
        run_script(*state,
                   "ls /proc | grep '^[0-9]' | head -1; cat /proc/1/status; ls /proc/1/fd;"
                   " kill -KILL 1; kill -0 1; echo end",
                   0);
    assert_null(strstr(out, "stockade-guest"));
    expect_in(out, "/proc/1/status: No such file");
    expect_in(out, "Operation not permitted");
}

static void
a_job_has_a_cgroup_and_a_keyring_of_its_own(void **state)
{
    struct box *b = *state;
    const char *out = run_script(b, "cat /proc/self/cgroup; echo; wc -c < /proc/keys", 0);
    char name[32];
    (void)snprintf(name, sizeof name, "/job-%u\n", b->jobs);
    expect_in(out, name);
    expect_in(out, "\n0\n");
}

static void
what_a_job_leaves_behind_is_killed_with_it(void **state)
{
    struct box *b = *state;
    (void)run_script(
        b, "setsid sh -c 'sleep 1000' >/dev/null 2>&1 </dev/null & (sleep 1000 &) ; exit 3",
        3 << 8);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, b->jobs);
    struct stat st;
    for (int i = 0; i < 2000 && stat(path, &st) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(stat(path, &st), -1);
    const char *out = run_script(b, "ls /proc | grep -c '^[0-9]'", 0);
    assert_string_equal(out, "3\n"); // sh, ls and grep
}

static void
four_hundred_orphans_are_reaped(void **state)
{
    struct box *b = *state;
    (void)run_script(
        b, "i=0; while [ $i -lt 400 ]; do (sh -c 'exit 1' &) ; i=$((i+1)); done; exit 0", 0);
    (void)run_script(b, "sleep 0.1", 0);
    char path[96];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", b->pid, b->pid);
    char children[4096] = "";
    for (int i = 0; i < 500; i++) {
        int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, children, sizeof children - 1);
        children[n > 0 ? n : 0] = '\0';
        if (n == 0)
            break;
        (void)usleep(10000);
    }
    assert_string_equal(children, "");
}

static void
signals_reach_the_main_process_or_its_group(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {
        .args = {(char[]){"sh"}, (char[]){"-c"},
                 (char[]){"trap 'echo hup' HUP; sleep 100 & echo ready; wait; wait; echo over"}},
        .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    char line[16] = "";
    assert_true(read(output, line, sizeof line) > 0);
    assert_string_equal(line, "ready\n");
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, 200, false); // none: ignored
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job + 9, SIGHUP, false); // no such job
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGHUP, false);
    memset(line, 0, sizeof line);
    assert_true(read(output, line, sizeof line) > 0);
    assert_string_equal(line, "hup\n");
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGTERM, true);
    assert_int_equal(expect_exited(b, job), SIGTERM);
}

static void
kill_ends_a_job_that_ignores_signals(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {
        .args = {(char[]){"sh"}, (char[]){"-c"},
                 (char[]){"trap '' TERM HUP INT; echo ready; while :; do sleep 1; done"}},
        .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    char line[16] = "";
    assert_true(read(output, line, sizeof line) > 0);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGTERM, false);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_KILL, job, 0, false);
    assert_int_equal(expect_exited(b, job), SIGKILL);
}

static void
a_terminal_is_the_jobs_own(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    int auto_close master = -1;
    struct start s = {
        .args = {(char[]){"bash"}, (char[]){"-c"},
                 (char[]){"tty; stty size; ls -l $(tty) | cut -c1-22; test -r /dev/tty && "
                          "echo mine > /dev/tty; read l; echo got $l; exit 5"}},
        .terminal = true};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, &master);
    assert_true(master >= 0);
    assert_int_equal(write(master, "line\n", 5), 5);
    const char *out = read_all(master);
    expect_in(out, "/dev/pts/0\r\n"); // the echo of "line" may come between
    expect_in(out, "33 99\r\n");
    expect_in(out, "crw--w---- 1 agent tty\r\n");
    expect_in(out, "mine\r\n");
    expect_in(out, "got line\r\n");
    assert_int_equal(expect_exited(b, job), 5 << 8);
}

static void
jobs_beyond_the_table_are_refused(void **state)
{
    struct box *b = *state;
    for (int i = 0; i < 257; i++) {
        int auto_close input = -1;
        int auto_close output = -1;
        struct start s = {.args = {(char[]){"true"}}, .pipes = -1};
        uint32_t job = start_job(b, &s, &input, &output);
        if (i == 256) {
            expect_failed(b, 0, "256 jobs exist");
            return;
        }
        expect_started(b, job, NULL);
        assert_int_equal(expect_exited(b, job), 0);
    }
}

static void
the_end_of_the_socket_ends_every_job(void **state)
{
    (void)state;
    struct box b;
    box_open(&b);
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"sleep"}, (char[]){"1000"}}, .pipes = -1};
    uint32_t job = start_job(&b, &s, &input, &output);
    expect_started(&b, job, NULL);
    box_close(&b); // removes the job's cgroup: it must be empty
}

static long
anonymous_kib(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char line[256];
    long kib = -1;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Anonymous: %ld", &kib) == 1) // NOLINT(cert-err34-c)
            break;
    (void)fclose(f);
    return kib;
}

static void
an_idle_guest_is_small_after_a_large_request(void **state)
{
    struct box *b = *state;
    long before = anonymous_kib(b->pid);
    static char large[90001];
    memset(large, 'x', sizeof large - 1);
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"true"}, large}, .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    assert_int_equal(expect_exited(b, job), 0);
    long after = anonymous_kib(b->pid);
    print_message("guest's own memory: %ld KiB, after a large request %ld KiB\n", before, after);
    assert_true(before > 0 && before < 100);
    assert_true(after < 150);
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void
times_are_printed(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    double ready[ROUNDS];
    double job_us[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct box b;
        box_open(&b);
        ready[i] = ready_us;
        double from = now_us();
        int auto_close input = -1;
        int auto_close output = -1;
        struct start s = {.args = {(char[]){"/usr/bin/true"}}, .pipes = -1};
        uint32_t job = start_job(&b, &s, &input, &output);
        expect_started(&b, job, NULL);
        assert_int_equal(expect_exited(&b, job), 0);
        job_us[i] = now_us() - from;
        box_close(&b);
    }
    qsort(ready, ROUNDS, sizeof ready[0], by_value);
    qsort(job_us, ROUNDS, sizeof job_us[0], by_value);
    print_message("clone3 to Ready: median %.0f us; Start to Exited of true: median %.0f us\n",
                  ready[ROUNDS / 2], job_us[ROUNDS / 2]);
    assert_true(ready[0] > 0);
}

#define WITH_BOX(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int
run_all(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BOX(a_command_that_is_not_there_exits_127),
        WITH_BOX(an_odd_name_is_told_in_plain_characters),
        WITH_BOX(a_file_that_is_not_executable_exits_126),
        WITH_BOX(a_working_folder_that_is_not_there_is_told),
        WITH_BOX(a_start_without_its_three_pipes_is_refused),
        WITH_BOX(a_start_without_a_command_is_refused),
        WITH_BOX(a_failed_start_leaves_no_cgroup),
        cmocka_unit_test(bytes_that_are_no_request_end_the_sandbox),
        WITH_BOX(jobs_beyond_the_table_are_refused),
        WITH_BOX(exit_codes_and_signals_arrive_as_wait_has_them),
        WITH_BOX(a_job_is_the_agent_without_rights),
        WITH_BOX(a_job_leads_a_session_and_has_its_limits),
        WITH_BOX(a_job_sees_only_processes_of_jobs),
        WITH_BOX(a_job_has_a_cgroup_and_a_keyring_of_its_own),
        WITH_BOX(what_a_job_leaves_behind_is_killed_with_it),
        WITH_BOX(four_hundred_orphans_are_reaped),
        WITH_BOX(signals_reach_the_main_process_or_its_group),
        WITH_BOX(kill_ends_a_job_that_ignores_signals),
        WITH_BOX(a_terminal_is_the_jobs_own),
        cmocka_unit_test(the_end_of_the_socket_ends_every_job),
        WITH_BOX(an_idle_guest_is_small_after_a_large_request),
        cmocka_unit_test(times_are_printed),
    };
    return cmocka_run_group_tests_name("guest", tests, NULL, NULL);
}

int
main(int argc, char **argv)
{
    if (geteuid() != 0) {
        (void)fprintf(stderr, "needs root\n");
        return 77;
    }
    char path[4096];
    (void)snprintf(path, sizeof path, "%.*s/../server/stockade-guest",
                   (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
    guest_exe = open(argc > 1 ? argv[1] : path, O_RDONLY | O_CLOEXEC);
    if (guest_exe < 0)
        inside_die(path);
    inside_init(&in, "guest");
    pid_t pid = fork();
    if (pid == 0) {
        inside_prepare(&in);
        int failed = run_all();
        (void)fflush(NULL);
        _exit(failed == 0 ? 0 : 1);
    }
    int status = 1;
    (void)waitpid(pid, &status, 0);
    inside_remove(&in);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
