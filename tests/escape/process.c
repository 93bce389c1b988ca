// SPDX-License-Identifier: Apache-2.0
// Checks 26 to 40: other processes, the supervisor, and staying alive.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static int
see_processes(void)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return escaped("no /proc: the check sees nothing");
    int seen = 0;
    char path[300], text[512];
    for (struct dirent *d; (d = readdir(proc)) != NULL;) {
        if (d->d_name[0] < '0' || d->d_name[0] > '9')
            continue;
        seen++;
        (void)snprintf(path, sizeof path, "/proc/%s/cmdline", d->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
        if (n > 0 && memmem(text, (size_t)n, parameter("ESCAPE_NONCE"),
                            strlen(parameter("ESCAPE_NONCE"))) != NULL)
            return escaped("process %s of the host is seen", d->d_name);
        if (fd >= 0)
            (void)close(fd);
    }
    return seen <= 8 ? held("%d processes seen", seen) : escaped("%d processes seen", seen);
}

static int
signal_host_pid(void)
{
    long pid = parameter_number("ESCAPE_HOST_PID");
    if (kill((pid_t)pid, SIGUSR1) == 0)
        return escaped("signalled %ld", pid);
    if (errno != ESRCH)
        return escaped("kill says %s: it is known", strerror(errno));
    return syscall(SYS_pidfd_open, pid, 0) >= 0 ? escaped("pidfd of a host process")
                                                : held("ESRCH");
}

static int
trace_the_supervisor(void)
{
    char buffer[64];
    struct iovec here = {buffer, sizeof buffer}, there = {(void *)0x400000, sizeof buffer};
    if (ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0 || ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0)
        return escaped("attached to pid 1");
    if (process_vm_readv(1, &here, 1, &there, 1, 0) >= 0)
        return escaped("read the memory of pid 1");
    const char *files[] = {"/proc/1/mem",  "/proc/1/environ", "/proc/1/maps",
                           "/proc/1/auxv", "/proc/1/syscall", "/proc/1/stack",
                           "/proc/1/fd/3", "/proc/1/exe",     "/proc/1/root/etc/passwd"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
            return escaped("%s opens", files[i]);
    }
    return held("pid 1 cannot be read or traced");
}

static int
steal_a_descriptor(void)
{
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (pidfd < 0)
        return held("pidfd_open(1): %s", strerror(errno));
    for (int fd = 0; fd < 16; fd++)
        if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
            return escaped("took descriptor %d of pid 1", fd);
    return held("pidfd_getfd: %s", strerror(errno));
}

static void
stay(void)
{
    for (;;)
        (void)pause();
}

static int
leave_a_daemon(void)
{
    if (fork() == 0) {
        (void)setsid();
        if (fork() != 0)
            _exit(0);
        for (int fd = 0; fd < 3; fd++)
            (void)close(fd);
        (void)execl(self_path, "daemon", "300", parameter("ESCAPE_NONCE"), (char *)NULL);
        _exit(1);
    }
    (void)usleep(100000);
    return held("a daemon is left behind; the host looks for it");
}

static int
daemon_body(void)
{
    stay();
    return 0;
}

static int
hold_stdout(void)
{
    if (fork() == 0) {
        (void)setsid();
        (void)sleep(30);
        _exit(0);
    }
    return held("a child holds stdout; the host measures the reply");
}

static int
ignore_signals(void)
{
    for (int s = 1; s < 65; s++)
        (void)signal(s, SIG_IGN);
    printf("spinning\n");
    (void)fflush(stdout);
    for (volatile int forever = 1; forever;)
        ;
    return ESCAPED;
}

static int
type_into_the_terminal(void)
{
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (tty >= 0)
        return escaped("/dev/tty opens without a terminal");
    int why = errno;
    for (int fd = 0; fd < 3; fd++)
        if (ioctl(fd, TIOCSTI, "x") == 0)
            return escaped("TIOCSTI on %d", fd);
    return held("/dev/tty: %s, TIOCSTI: %s", strerror(why), strerror(errno));
}

static int
lead_own_session(void)
{
    if (getsid(0) != getpid() || getpgrp() != getpid())
        return escaped("session %d, group %d of process %d", getsid(0), getpgrp(), getpid());
    (void)signal(SIGTERM, SIG_IGN);
    (void)kill(0, SIGTERM);
    return held("session %d, group %d", getsid(0), getpgrp());
}

static int
kill_everything(void)
{
    (void)kill(1, SIGSTOP);
    (void)kill(1, SIGTERM);
    (void)kill(1, SIGKILL);
    if (fork() == 0)
        stay();
    (void)kill(-1, SIGSTOP);
    (void)kill(-1, SIGCONT);
    (void)kill(-1, SIGKILL);
    return held("still here; the host waits for the result");
}

static int
outlive_the_client(void)
{
    (void)prctl(PR_SET_PDEATHSIG, 0);
    (void)execl(self_path, "outlive", "300", parameter("ESCAPE_NONCE"), (char *)NULL);
    return escaped("exec");
}

static int
zombies(void)
{
    for (int i = 0; i < 400; i++) {
        pid_t child = fork();
        if (child < 0)
            return escaped("fork %d: %s: zombies are not reaped", i, strerror(errno));
        if (child == 0) {
            if (fork() == 0)
                _exit(0); // its parent has ended, so pid 1 reaps it
            _exit(0);
        }
        (void)waitpid(child, NULL, 0);
    }
    (void)usleep(200000);
    int left = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *d; proc != NULL && (d = readdir(proc)) != NULL;)
        left += d->d_name[0] >= '0' && d->d_name[0] <= '9';
    return left < 20 ? held("%d processes left", left) : escaped("%d processes left", left);
}

static int
exit_storm(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0)
                _exit(0);
            _exit(0);
        }
        if (child < 0)
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
    }
}

static void
burn(double seconds)
{
    struct timespec t;
    do
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < seconds);
}

static int
change_identity(void)
{
    (void)prctl(PR_SET_NAME, "kworker/0:1");
    if (fork() == 0) {
        (void)setsid();
        (void)execl(self_path, "", "390", (char *)NULL);
        _exit(1);
    }
    (void)wait(NULL);
    return held("it burned 300 ms under another name; the host reads the bill");
}

static int
change_identity_body(void)
{
    (void)prctl(PR_SET_NAME, "kthreadd");
    burn(0.3);
    return 0;
}

static int
stop_itself(void)
{
    (void)raise(SIGSTOP);
    return escaped("went on");
}

const struct check process_checks[] = {
    {26, "host processes are not seen", "pid namespace", see_processes},
    {27, "a host process cannot be signalled", "pid namespace", signal_host_pid},
    {28, "the supervisor cannot be traced or read", "seccomp, other uid, non-dumpable, hidepid",
     trace_the_supervisor},
    {29, "the supervisor's descriptors cannot be taken", "seccomp on pidfd_getfd, ptrace rules",
     steal_a_descriptor},
    {30, "a daemon does not outlive its job", "cgroup.kill of the job's cgroup", leave_a_daemon},
    {300, "(the daemon)", "", daemon_body},
    {31, "a child that holds stdout does not delay the reply",
     "reply at exit plus a grace, not at end of file", hold_stdout},
    {32, "ignored signals do not help past a limit", "SIGKILL through the cgroup", ignore_signals},
    {33, "nothing can be typed into a terminal", "own session, seccomp on TIOCSTI",
     type_into_the_terminal},
    {34, "the job leads its own session", "setsid", lead_own_session},
    {35, "killing everything ends at the sandbox", "pid namespace, other uid", kill_everything},
    {36, "the job does not outlive its client", "cancel on disconnect, cgroup.kill",
     outlive_the_client},
    {37, "orphans are reaped", "guest as pid 1", zombies},
    {38, "an exit storm ends with the limit", "cgroup.kill, pidfds", exit_storm},
    {39, "a new name does not hide its use", "accounting by cgroup", change_identity},
    {390, "(the burner)", "", change_identity_body},
    {40, "a stopped job still meets its wall limit", "the broker's clock", stop_itself},
    {0, NULL, NULL, NULL},
};
