// SPDX-License-Identifier: Apache-2.0
// See guest_box.h.
#include "tests/harness/guest_box.h"

#include "proto/fdpass.h"

int guest_exe = -1;

double
now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void
send_packet(int socket, const void *bytes, size_t n, const int *fds, unsigned fds_n)
{
    const struct fdpass m = {(void *)(uintptr_t)bytes, n, (int *)(uintptr_t)fds, fds_n};
    assert_int_equal(fdpass_send(socket, &m, 0), 0);
}

static void
send_request(int socket, const Stockade__Guest__Request *r, const int *fds, unsigned fds_n)
{
    static uint8_t bytes[256 * 1024];
    size_t n = stockade__guest__request__pack(r, bytes);
    send_packet(socket, bytes, n, fds, fds_n);
}

Stockade__Guest__Event *
next_event(int socket, int *fd)
{
    struct pollfd p = {.fd = socket, .events = POLLIN};
    assert_int_equal(poll(&p, 1, (int)scaled_ms(WAIT_MS)), 1);
    static uint8_t bytes[4096];
    int got = -1;
    struct fdpass m = {bytes, sizeof bytes, &got, 1};
    if (fdpass_receive(socket, &m, 0) <= 0)
        return NULL;
    if (fd != NULL)
        *fd = got;
    else if (got >= 0)
        (void)close(got);
    return stockade__guest__event__unpack(NULL, m.n, bytes);
}

static void
put_fd(int fd, int at)
{
    if (fd == at)
        (void)fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, at) < 0)
        inside_die("dup2");
}

// In the child: the same steps as the spawner's child after clone3.
static void
become_guest(int socket, int cgroup)
{
    struct err e = {0};
    int disk = -1;
    struct tree_sandbox s = inside_sandbox(16 << 20, 2048);
    if (tree_enter(in.tree, &s, &disk, &e) < 0) {
        (void)dprintf(2, "%s\n", e.text);
        _exit(90);
    }
    static const int kept[] = {CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_SETPCAP};
    int fds[] = {fcntl(socket, F_DUPFD, 20), fcntl(cgroup, F_DUPFD, 20),
                 fcntl(in.job_fd, F_DUPFD, 20), open("/dev/null", O_WRONLY),
                 fcntl(guest_exe, F_DUPFD_CLOEXEC, 20)};
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
    for (int i = 0; i < 4; i++)
        put_fd(fds[i], GUEST_FD_BROKER + i);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_load(&in.guest, &e) < 0)
        inside_die("filter");
    char *argv[] = {(char[]){"stockade-guest"}, NULL};
    char *env[] = {NULL};
    (void)syscall(SYS_execveat, fds[4], "", argv, env, AT_EMPTY_PATH);
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

double ready_us; // from clone3 to Ready

void
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
    wait_until(path, rmdir(path) == 0 || errno == ENOENT);
}

void
box_close(struct box *b)
{
    (void)close(b->socket);
    int status;
    assert_int_equal(waitpid(b->pid, &status, 0), b->pid);
    assert_true(WIFEXITED(status));
    char path[96];
    for (uint32_t i = 1; i == 1 || i <= b->jobs; i++) { // the first one is made in advance
        (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, i);
        rmdir_soon(path);
    }
    (void)snprintf(path, sizeof path, "%s/guest", b->cgroup);
    rmdir_soon(path);
    rmdir_soon(b->cgroup);
    struct stat st;
    assert_int_equal(stat(b->cgroup, &st), -1);
}

int
setup(void **state)
{
    static struct box b;
    box_open(&b);
    *state = &b;
    return 0;
}

int
teardown(void **state)
{
    box_close(*state);
    return 0;
}

uint32_t
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
    start.tasks_max = 256;
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

void
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

void
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

int
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

void
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

const char *
read_all(int fd)
{
    static char out[OUTPUT_MAX];
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, (int)scaled_ms(WAIT_MS)), 1);
        ssize_t got = read(fd, out + n, sizeof out - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    return out;
}

const char *
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

void
try_start(struct box *b, struct start *s)
{
    int auto_close input = -1;
    int auto_close output = -1;
    (void)start_job(b, s, &input, &output);
}
