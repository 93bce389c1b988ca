// SPDX-License-Identifier: Apache-2.0
// See bench.h.
#include "bench.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ; // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

const char *const bench_true[] = {"/usr/bin/true", NULL};

const char *const bench_bwrap_true[] = {"/usr/bin/bwrap",
                                        "--unshare-all",
                                        "--die-with-parent",
                                        "--new-session",
                                        "--ro-bind",
                                        "/usr",
                                        "/usr",
                                        "--symlink",
                                        "usr/lib",
                                        "/lib",
                                        "--symlink",
                                        "usr/lib64",
                                        "/lib64",
                                        "--symlink",
                                        "usr/bin",
                                        "/bin",
                                        "--proc",
                                        "/proc",
                                        "--dev",
                                        "/dev",
                                        "--tmpfs",
                                        "/tmp",
                                        "--tmpfs",
                                        "/home",
                                        "--uid",
                                        "1000",
                                        "--gid",
                                        "1000",
                                        "--clearenv",
                                        "--cap-drop",
                                        "ALL",
                                        "--",
                                        "/usr/bin/true",
                                        NULL};

double
bench_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void
bench_sleep_us(double us)
{
    struct timespec t = {(time_t)(us / 1e6), 0};
    t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
    (void)nanosleep(&t, NULL);
}

void
bench_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    exit(1); // NOLINT(concurrency-mt-unsafe)
}

void
samples_add(struct samples *s, double us)
{
    if (s->n == s->room) {
        size_t room = s->room != 0 ? 2 * s->room : 256;
        double *more = realloc(s->us, room * sizeof *more);
        if (more == NULL)
            bench_die("out of memory");
        s->us = more;
        s->room = room;
    }
    s->us[s->n++] = us;
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double
samples_at(const struct samples *s, double share)
{
    if (s->n == 0)
        return 0;
    size_t at = (size_t)(share * (double)s->n);
    return s->us[at < s->n ? at : s->n - 1];
}

void
samples_sort(struct samples *s)
{
    qsort(s->us, s->n, sizeof *s->us, by_value);
}

void
samples_print(struct samples *s, const char *bench, const char *more)
{
    samples_sort(s);
    printf(
        "{\"bench\": \"%s\", \"row\": \"%s\", \"n\": %zu, \"min_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f%s}\n",
        bench, s->row, s->n, samples_at(s, 0), samples_at(s, 0.5), samples_at(s, 0.99), more);
    (void)fflush(stdout);
    free(s->us);
    s->us = NULL;
    s->n = s->room = 0;
}

int
bench_spawn(const char *const argv[])
{
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    pid_t child = -1;
    int status = -1;
    if (posix_spawn(&child, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) == 0)
        (void)waitpid(child, &status, 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    return status;
}

double
bench_time(const char *const argv[])
{
    double from = bench_now();
    if (bench_spawn(argv) != 0)
        bench_die("%s failed", argv[0]);
    return bench_now() - from;
}

static int
execute(void *argv)
{
    (void)execve(((char *const *)argv)[0], argv, environ);
    _exit(127);
}

int
bench_spawn_in_namespaces(const char *const argv[])
{
    _Alignas(16) char stack[16384]; // the child runs on it while the caller sleeps: CLONE_VFORK
    int status = -1;
    pid_t child = clone(execute, stack + sizeof stack,
                        CLONE_VM | CLONE_VFORK | CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET |
                            CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | SIGCHLD,
                        (void *)(uintptr_t)argv);
    if (child > 0)
        (void)waitpid(child, &status, 0);
    return status;
}
