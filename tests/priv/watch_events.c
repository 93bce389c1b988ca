// SPDX-License-Identifier: Apache-2.0
// Events of the telemetry programs: exec, exit, signals, files, dangerous calls, OOM.
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/socket.h>

#include "tests/harness/watch_job.h"

// ---- processes

static uint64_t
hash_of(const char *const *argv)
{
    uint64_t hash = WATCH_FNV;
    size_t n = 0;
    for (; *argv; argv++) {
        for (size_t i = 0; i <= strlen(*argv) && n < WATCH_ARGS; i++, n++)
            hash = watch_fnv(hash, (unsigned char)(*argv)[i]);
    }
    return hash;
}

static void
an_exec_event_has_path_arguments_and_file(void **state)
{
    (void)state;
    struct job j = new_job("exec", WATCH_EVENTS);
    struct exec x = {"/usr/../bin/true", {"first", "", "third one", NULL}, -1};
    drain();
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    struct watch_exe_key key = key_of("/usr/bin/true", 3);
    struct watch_exe known = {0};
    rig_put(rig.bpf->maps.exes, &key, &known);
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 2);
    for (size_t i = 0; i < 2; i++) {
        const struct seen *e = event(EVENT_EXEC, j.job, i);
        const struct watch_exec *b = BODY(watch_exec, e);
        assert_int_equal(e->head.class, CLASS_PROCESS);
        assert_int_equal(e->head.slot, j.entry.slot);
        assert_int_equal(e->head.generation, 7);
        assert_string_equal(e->head.comm, "true");
        assert_int_equal(b->path_n, strlen(x.path));
        assert_memory_equal(b->path, x.path, strlen(x.path));
        assert_true(b->args_hash == hash_of(x.argv));
        assert_memory_equal(&b->exe, &key, sizeof key);
        assert_int_equal(b->known, i);
        assert_int_equal(b->memfd, 0);
        assert_int_equal(b->args_n, sizeof "first\0\0third one");
        assert_memory_equal(b->argv, "first\0\0third one", b->args_n);
        assert_int_equal(b->parent, getpid());
        char cwd[4096];
        assert_non_null(getcwd(cwd, sizeof cwd));
        size_t n = strlen(cwd) < WATCH_CWD ? strlen(cwd) : WATCH_CWD;
        assert_int_equal(b->cwd_n, n);
        assert_memory_equal(b->cwd, cwd + strlen(cwd) - n, n);
    }
    assert_int_equal(bpf_map_delete_elem(bpf_map__fd(rig.bpf->maps.exes), &key), 0);
    assert_int_equal(rig_account(&rig, j.job)->execs, 2);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

static void
arguments_beyond_the_hashed_part_do_not_change_the_hash(void **state)
{
    (void)state;
    struct job j = new_job("args", WATCH_EVENTS);
    static char large[3 * WATCH_ARGS];
    memset(large, 'a', sizeof large - 1);
    struct exec x = {"/usr/bin/true", {large, NULL}, -1};
    drain();
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    large[WATCH_ARGS] = 'b';
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    large[WATCH_ARGS - 1] = 'b';
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    drain();
    uint64_t hash[3];
    for (size_t i = 0; i < 3; i++)
        hash[i] = BODY(watch_exec, event(EVENT_EXEC, j.job, i))->args_hash;
    assert_true(hash[2] == hash_of(x.argv));
    assert_true(hash[0] == hash[1]);
    assert_true(hash[1] != hash[2]);
}

static void
a_failed_exec_is_not_counted(void **state)
{
    (void)state;
    struct job j = new_job("noexec", WATCH_EVENTS);
    struct exec x = {"/etc/passwd", {"x", NULL}, -1};
    drain();
    assert_int_equal(WEXITSTATUS(rig_run(j.job, execute, &x)), 99);
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 0);
    assert_int_equal(rig_account(&rig, j.job)->execs, 0);
}

static void
a_file_without_a_name_alarms_even_if_events_are_off(void **state)
{
    (void)state;
    struct job j = new_job("memfd", 0);
    int fds[2] = {copy_of_true(true), copy_of_true(false)};
    struct exec ordinary = {"/usr/bin/true", {"true", NULL}, -1};
    drain();
    for (int i = 0; i < 2; i++) {
        struct exec x = {"", {"true", NULL}, fds[i]};
        assert_int_equal(rig_run(j.job, execute, &x), 0);
        (void)close(fds[i]);
    }
    assert_int_equal(rig_run(j.job, execute, &ordinary), 0);
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 2);
    for (size_t i = 0; i < 2; i++) {
        const struct seen *e = event(EVENT_EXEC, j.job, i);
        assert_int_equal(e->head.class, CLASS_ALARM);
        assert_int_equal(BODY(watch_exec, e)->memfd, 1);
        assert_true(now_ns() - e->head.time_ns < 60000000000ull);
    }
    assert_int_equal(rig_account(&rig, j.job)->memfd_execs, 2);
    assert_int_equal(rig_account(&rig, j.job)->execs, 3);
}

// Which descriptors are a socket, and of which pair; 0: unchanged.
struct spoken {
    const char *which;
};

static int
execute_on_sockets(void *arg)
{
    const struct spoken *s = arg;
    static const struct exec x = {"/usr/bin/true", {"true", NULL}, -1};
    int pair[3][2];
    for (int i = 0; i < 3; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair[i]) < 0)
            return 98;
    for (int i = 0; i < 3; i++)
        if (s->which[i] != '0')
            (void)dup2(pair[s->which[i] - '1'][0], i);
    union {
        const struct exec *from;
        void *to;
    } exec = {.from = &x};
    return execute(exec.to);
}

static void
a_program_that_speaks_to_one_socket_alone_alarms_and_to_three_does_not(void **state)
{
    (void)state;
    static const struct spoken rows[] = {{"000"}, {"123"}, {"110"}, {"011"}, {"121"}, {"111"}};
    struct job j = new_job("socket", 0);
    drain();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        union {
            const struct spoken *from;
            void *to;
        } arg = {.from = &rows[i]};
        assert_int_equal(rig_run(j.job, execute_on_sockets, arg.to), 0);
    }
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 1);
    const struct seen *e = event(EVENT_EXEC, j.job, 0);
    assert_int_equal(e->head.class, CLASS_ALARM);
    assert_int_equal(BODY(watch_exec, e)->socket, 1);
    assert_int_equal(BODY(watch_exec, e)->memfd, 0);
    assert_int_equal(rig_account(&rig, j.job)->execs, 6);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

static int
open_sockets(void *arg)
{
    static const int ordinary[][2] = {
        {AF_INET, SOCK_STREAM}, {AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC}, {AF_UNIX, SOCK_SEQPACKET},
        {AF_NETLINK, SOCK_RAW}, {AF_INET, SOCK_DGRAM | SOCK_NONBLOCK},
    };
    static const int strange[][2] = {
        {AF_INET, SOCK_RAW | SOCK_CLOEXEC},
        {AF_INET6, SOCK_RAW},
        {AF_PACKET, SOCK_RAW},
        {AF_VSOCK, SOCK_STREAM},
        {AF_ALG, SOCK_SEQPACKET},
    };
    (void)arg;
    for (size_t i = 0; i < sizeof ordinary / sizeof ordinary[0]; i++)
        (void)syscall(SYS_socket, ordinary[i][0], ordinary[i][1], 0);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        (void)syscall(SYS_socket, strange[i][0], strange[i][1], 255);
    return 0;
}

static void
only_unusual_sockets_are_reported(void **state)
{
    (void)state;
    struct job j = new_job("sockets", 0);
    drain();
    assert_int_equal(rig_run(j.job, open_sockets, NULL), 0);
    drain();
    assert_int_equal(count_events(EVENT_DANGEROUS, j.job), 5);
    const struct watch_syscall *b = BODY(watch_syscall, event(EVENT_DANGEROUS, j.job, 2));
    assert_true(b->number == SYS_socket && b->args[0] == AF_PACKET && b->args[1] == SOCK_RAW);
    assert_int_equal(rig_account(&rig, j.job)->syscalls[SYS_socket], 10);
}

static int
end_by(void *arg)
{
    const int *how = arg;
    if (*how < 0)
        (void)syscall(SYS_kill, syscall(SYS_getpid), -*how);
    return *how;
}

static void
an_exit_event_has_code_signal_and_duration(void **state)
{
    (void)state;
    struct job j = new_job("exit", WATCH_EVENTS);
    static const int hows[] = {0, 77, -SIGKILL, -SIGUSR2};
    drain();
    uint64_t from = now_ns();
    for (size_t i = 0; i < 4; i++)
        (void)rig_run(j.job, end_by, (void *)(uintptr_t)&hows[i]);
    uint64_t span = now_ns() - from;
    drain();
    assert_int_equal(count_events(EVENT_EXIT, j.job), 4);
    for (size_t i = 0; i < 4; i++) {
        const struct watch_exit *b = BODY(watch_exit, event(EVENT_EXIT, j.job, i));
        assert_int_equal(b->code, hows[i] > 0 ? hows[i] : 0);
        assert_int_equal(b->signal, hows[i] < 0 ? -hows[i] : 0);
        assert_true(b->lived_ns > 0 && b->lived_ns < span);
    }
    assert_int_equal(rig_account(&rig, j.job)->exits, 4);
    assert_int_equal(rig_account(&rig, j.job)->exits_by_signal, 2);
}

static void *
thread_of(void *arg)
{
    (void)arg;
    (void)syscall(SYS_getppid);
    return NULL;
}

// The leader ends first; the last thread ends the process with 5.
static void *
outlive(void *arg)
{
    (void)arg;
    time_passes("the leader ends first", 20);
    (void)syscall(SYS_exit_group, 5);
    return NULL;
}

static int
with_threads(void)
{
    pthread_t t[8];
    for (int i = 0; i < 8; i++)
        (void)pthread_create(&t[i], NULL, thread_of, NULL);
    for (int i = 0; i < 8; i++)
        (void)pthread_join(t[i], NULL);
    (void)pthread_create(&t[0], NULL, outlive, NULL);
    (void)syscall(SYS_exit, 0);
    return 0;
}

static void *
execute_true(void *arg)
{
    (void)arg;
    (void)execl("/usr/bin/true", "true", (char *)NULL);
    return NULL;
}

// A thread other than the first one executes: the first one ends, the process continues.
static int
with_exec(void)
{
    pthread_t t;
    (void)pthread_create(&t, NULL, execute_true, NULL);
    (void)pthread_join(t, NULL);
    return 1;
}

// This program again, with `mode`: threads do not work after a bare clone3.
static int
run_self(const struct job *j, const char *mode)
{
    char self[300];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    struct exec x = {self, {self, mode, NULL}, -1};
    return WEXITSTATUS(rig_run(j->job, execute, &x));
}

static void
threads_are_not_processes_and_the_last_one_ends_its_process(void **state)
{
    (void)state;
    struct job j = new_job("threads", WATCH_EVENTS);
    drain();
    assert_int_equal(run_self(&j, "--threads"), 5);
    drain();
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_int_equal(a->forks, 1);
    assert_int_equal(a->exits, 1);
    assert_int_equal(a->syscalls[SYS_getppid], 8);
    assert_int_equal(count_events(EVENT_EXIT, j.job), 1);
    assert_int_equal(BODY(watch_exit, event(EVENT_EXIT, j.job, 0))->code, 5);
}

static void
a_thread_that_executes_continues_as_the_same_process(void **state)
{
    (void)state;
    struct job j = new_job("thread-exec", WATCH_EVENTS);
    drain();
    assert_int_equal(run_self(&j, "--exec"), 0);
    drain();
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_int_equal(a->forks, 1);
    assert_int_equal(a->execs, 2);
    assert_int_equal(a->exits, 1);
    assert_int_equal(count_events(EVENT_EXIT, j.job), 1);
}

// ---- signals

static int
send_signals(void *arg)
{
    pid_t to = *(pid_t *)arg;
    siginfo_t info = {.si_code = SI_QUEUE};
    (void)syscall(SYS_kill, to, SIGWINCH);
    (void)syscall(SYS_tgkill, to, to, SIGWINCH);
    (void)syscall(SYS_rt_sigqueueinfo, to, SIGWINCH, &info);
    (void)syscall(SYS_kill, to, SIGURG);                    // not counted
    (void)syscall(SYS_kill, to, 0);                         // no process
    (void)syscall(SYS_kill, syscall(SYS_getpid), SIGWINCH); // itself; ignored
    (void)syscall(SYS_kill, 0x3fffffff, SIGTERM); // a process that does not exist: counted
    (void)syscall(SYS_kill, 0x3fffffff, 0);
    pid_t child = (pid_t)syscall(SYS_fork); // its end causes a signal of the kernel
    if (child == 0)
        (void)syscall(SYS_exit_group, 0);
    (void)syscall(SYS_wait4, child, NULL, 0, NULL);
    return 0;
}

static void
only_signals_of_processes_to_others_are_counted_and_reported(void **state)
{
    (void)state;
    struct job j = new_job("signals", WATCH_EVENTS);
    pid_t self = getpid();
    drain();
    assert_int_equal(rig_run(j.job, send_signals, &self), 0);
    drain();
    assert_int_equal(rig_account(&rig, j.job)->signals, 4);
    assert_int_equal(count_events(EVENT_SIGNAL, j.job), 4);
    for (size_t i = 0; i < 3; i++) {
        const struct watch_signal *b = BODY(watch_signal, event(EVENT_SIGNAL, j.job, i));
        assert_int_equal(b->signal, SIGWINCH);
        assert_int_equal(b->target, self);
    }
}

// ---- dangerous calls, io_uring

static int
dangerous(void *arg)
{
    (void)arg;
    (void)syscall(SYS_ptrace, PTRACE_PEEKDATA, 4711, 0, 0);
    (void)syscall(SYS_bpf, 9999, NULL, 0);
    (void)syscall(SYS_unshare, 0);
    (void)syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0);
    char params[120] = {0};
    (void)syscall(SYS_io_uring_setup, 4, params);
    (void)syscall(SYS_io_uring_setup, 1 << 30, params);
    return 0;
}

static void
dangerous_calls_are_reported_with_arguments_and_result(void **state)
{
    (void)state;
    static const struct {
        uint32_t number;
        int32_t result;
    } rows[] = {{SYS_ptrace, -ESRCH}, {SYS_bpf, -EINVAL}, {SYS_unshare, 0}};
    struct job j = new_job("dangerous", 0);
    drain();
    assert_int_equal(rig_run(j.job, dangerous, NULL), 0);
    drain();
    assert_int_equal(count_events(EVENT_DANGEROUS, j.job), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct seen *e = event(EVENT_DANGEROUS, j.job, i);
        assert_int_equal(e->head.class, CLASS_SYSCALL);
        assert_int_equal(BODY(watch_syscall, e)->number, rows[i].number);
        assert_int_equal(BODY(watch_syscall, e)->result, rows[i].result);
    }
    const struct watch_syscall *b = BODY(watch_syscall, event(EVENT_DANGEROUS, j.job, 0));
    assert_int_equal(b->args[0], PTRACE_PEEKDATA);
    assert_int_equal(b->args[1], 4711);
}

static void
rings_made_and_refused_are_reported_once_each(void **state)
{
    (void)state;
    struct job j = new_job("uring", 0);
    drain();
    assert_int_equal(rig_run(j.job, dangerous, NULL), 0);
    drain();
    const struct watch_account *a = rig_account(&rig, j.job);
    size_t n = count_events(EVENT_URING, j.job);
    assert_int_equal(a->io_urings, n);
    if (a->errors[WATCH_NOSYS] ||
        a->errors[WATCH_DENIED]) // the kernel has none, or refuses (kernel.io_uring_disabled)
        print_message("no io_uring here: only the refusals are seen\n");
    assert_int_equal(n, 3);
    size_t made = 0;
    for (size_t i = 0; i < n; i++)
        made += BODY(watch_syscall, event(EVENT_URING, j.job, i))->result >= 0;
    assert_true(made <= 1);
}

// ---- out of memory

static int
eat_memory(void *arg)
{
    (void)arg;
    for (int n = 0; n < 4096; n++) {
        char *at = (char *)syscall(SYS_mmap, NULL, 4 << 20, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < 4 << 20; i += 4096)
            ((volatile char *)at)[i] = 1;
    }
    return 1;
}

static bool
write_text(const char *dir, const char *name, const char *text)
{
    char path[RIG_PATH + 40];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool fine = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        (void)close(fd);
    return fine;
}

struct v1 {
    char path[RIG_PATH];
};

static int
eat_memory_v1(void *arg)
{
    if (!write_text(((struct v1 *)arg)->path, "cgroup.procs", "0"))
        return 1;
    return eat_memory(NULL);
}

// The memory controller is in the job's own cgroup, or (hybrid hosts) in a v1 cgroup that the child enters.
static void
an_oom_kill_is_an_alarm_of_its_job(void **state)
{
    (void)state;
    struct job j = new_job("oom", WATCH_EVENTS);
    struct v1 v1 = {0};
    int (*eat)(void *) = eat_memory;
    bool v2 = write_text(rig_v2(), "cgroup.subtree_control", "+memory") &&
              write_text(rig.cgroups[0].path, "cgroup.subtree_control", "+memory") &&
              write_text(rig.cgroups[1].path, "cgroup.subtree_control", "+memory") &&
              write_text(j.sandbox->path, "cgroup.subtree_control", "+memory") &&
              write_text(j.job->path, "memory.max", "33554432");
    if (!v2) {
        (void)snprintf(v1.path, sizeof v1.path, "/sys/fs/cgroup/memory/stockade-rig-%d",
                       (int)getpid());
        if (mkdir(v1.path, 0755) != 0 || !write_text(v1.path, "memory.limit_in_bytes", "33554432"))
            skip();
        eat = eat_memory_v1;
    }
    if (v2) // no swap, if there is any
        (void)write_text(j.job->path, "memory.swap.max", "0");
    else
        (void)write_text(v1.path, "memory.memsw.limit_in_bytes", "33554432");
    drain();
    pid_t pid = rig_spawn(j.job, eat, &v1);
    int status = rig_wait(pid);
    if (v1.path[0])
        (void)rmdir(v1.path);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    drain();
    assert_int_equal(count_events(EVENT_OOM, j.job), 1);
    const struct seen *e = event(EVENT_OOM, j.job, 0);
    assert_int_equal(e->head.class, CLASS_ALARM);
    assert_int_equal(e->head.pid, pid);
    assert_int_equal(rig_account(&rig, j.job)->ooms, 1);
    assert_int_equal(rig_account(&rig, j.job)->exits_by_signal, 1);
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--threads") == 0)
        return with_threads();
    if (argc == 2 && strcmp(argv[1], "--exec") == 0)
        return with_exec();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_exec_is_not_counted),
        cmocka_unit_test(an_exec_event_has_path_arguments_and_file),
        cmocka_unit_test(arguments_beyond_the_hashed_part_do_not_change_the_hash),
        cmocka_unit_test(a_file_without_a_name_alarms_even_if_events_are_off),
        cmocka_unit_test(a_program_that_speaks_to_one_socket_alone_alarms_and_to_three_does_not),
        cmocka_unit_test(only_unusual_sockets_are_reported),
        cmocka_unit_test(an_exit_event_has_code_signal_and_duration),
        cmocka_unit_test(threads_are_not_processes_and_the_last_one_ends_its_process),
        cmocka_unit_test(a_thread_that_executes_continues_as_the_same_process),
        cmocka_unit_test(only_signals_of_processes_to_others_are_counted_and_reported),
        cmocka_unit_test(dangerous_calls_are_reported_with_arguments_and_result),
        cmocka_unit_test(rings_made_and_refused_are_reported_once_each),
        cmocka_unit_test(an_oom_kill_is_an_alarm_of_its_job),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
