#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libstockade for other programs: header, shared library, pkg-config file, with a real broker."""

import os
import shutil
import subprocess
import sys
import tempfile

from broker import BUILD, INSTALLED, Broker, skip
from slowness import scaled

PROGRAM = r"""
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <stockade.h>

enum { THREADS = 6, RUNS = 10 };

struct text {
    char bytes[4096];
    size_t n;
    char process[33];
    struct stockade *s;
    int stop;
};

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "line %d: %s (%s: %s)\n", __LINE__, #x, stockade_code_name(e.code), e.text); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct stockade_error e; // of the main thread

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct text *t = cookie;
    (void)stream, (void)offset;
    if (t->n + n < sizeof t->bytes) {
        memcpy(t->bytes + t->n, bytes, n);
        t->n += n;
    }
    return t->stop;
}

// Makes further calls on the same handle from within its own stream.
static int
on_started(void *cookie, const char *process_id, const char *sandbox_id, uint32_t pid)
{
    struct text *t = cookie;
    (void)sandbox_id, (void)pid;
    strcpy(t->process, process_id);
    if (t->s == NULL)
        return 0;
    return stockade_input(t->s, process_id, "typed\n", 6, NULL) < 0 ||
           stockade_close_input(t->s, process_id, NULL) < 0;
}

static void *
run_often(void *cookie)
{
    for (int i = 0; i < RUNS; i++) {
        char wanted[64], program[128];
        struct text t = {.n = 0};
        struct stockade_error mine;
        const struct stockade_result *r = NULL;
        struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
        struct stockade_handlers h = {.on_output = on_output, .cookie = &t};
        snprintf(wanted, sizeof wanted, "%p %d", (void *)&t, i);
        snprintf(program, sizeof program, "echo '%s'; exit %d", wanted, i);
        o.command.args = (const char *const[]){"sh", "-c", program, NULL};
        if (stockade_run(cookie, &o, &h, &r, &mine) < 0) {
            fprintf(stderr, "%s\n", mine.text);
            return cookie;
        }
        int ok = r->outcome == STOCKADE_OUTCOME_EXITED && (int)r->exit_code == i &&
                 strncmp(t.bytes, wanted, strlen(wanted)) == 0 && r->bill.wall_us.value > 0;
        stockade_free(r);
        if (!ok)
            return cookie;
    }
    return NULL;
}

static void
many_threads_run_jobs_on_one_handle(struct stockade *s)
{
    pthread_t threads[THREADS];
    void *failed = NULL;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, s) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
}

static void
refusals_name_the_field(struct stockade *s)
{
    const struct stockade_result *r = NULL;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = (const char *const[]){"true", NULL};
    o.limits.memory_bytes = UINT64_C(900) << 30;
    CHECK(stockade_run(s, &o, NULL, &r, &e) < 0 && r == NULL);
    CHECK(e.code == STOCKADE_INVALID_ARGUMENT && strcmp(e.subject, "limits.memory_bytes") == 0);
    CHECK(stockade_get(s, "no-such", &(const struct stockade_sandbox *){NULL}, &e) < 0);
    CHECK(e.code == STOCKADE_NOT_FOUND);
    CHECK(stockade_signal(s, "0123456789abcdef0123456789abcdef", 15, false, &e) < 0);
    CHECK(e.code == STOCKADE_NOT_FOUND);
}

static void
a_handler_may_call_and_may_stop(struct stockade *s)
{
    struct text t = {.s = s};
    const struct stockade_result *r = NULL;
    struct stockade_handlers h = {.on_started = on_started, .on_output = on_output, .cookie = &t};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = (const char *const[]){"cat", NULL};
    o.command.stdin_bytes = "first ";
    o.command.stdin_n = 6;
    o.command.stdin_open = true;
    CHECK(stockade_run(s, &o, &h, &r, &e) == 0);
    CHECK(t.n == 12 && memcmp(t.bytes, "first typed\n", 12) == 0 && r->exit_code == 0);
    stockade_free(r);
    t = (struct text){.stop = 1};
    o = (struct stockade_run_options)STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = (const char *const[]){"yes", NULL};
    r = NULL;
    CHECK(stockade_run(s, &o, &h, &r, &e) < 0 && r == NULL && e.code == STOCKADE_CANCELLED);
}

// The same key twice is one execution.
static void
a_key_makes_one_sandbox_only(struct stockade *s)
{
    const struct stockade_sandbox *first = NULL, *second = NULL, *third = NULL;
    struct stockade_call_options call = STOCKADE_CALL_OPTIONS_INIT;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    call.idempotency_key = "flow-library-1";
    o.call = &call;
    CHECK(stockade_create(s, &o, &first, &e) == 0);
    CHECK(stockade_create(s, &o, &second, &e) == 0);
    CHECK(strcmp(first->id, second->id) == 0);
    o.call = NULL;
    CHECK(stockade_create(s, &o, &third, &e) == 0);
    CHECK(strcmp(first->id, third->id) != 0);
    CHECK(stockade_delete(s, first->id, &e) == 0 && stockade_delete(s, third->id, &e) == 0);
    stockade_free(first);
    stockade_free(second);
    stockade_free(third);
}

static void
a_process_is_left_and_found_again(struct stockade *s)
{
    const struct stockade_sandbox *box = NULL, *changed = NULL;
    const struct stockade_result *r = NULL;
    const struct stockade_processes *all = NULL;
    struct stockade_create_options c = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_pair label = {"a", "b"};
    struct text t = {.n = 0};
    struct stockade_handlers h = {.on_started = on_started, .on_output = on_output, .cookie = &t};
    c.name = "library";
    CHECK(stockade_create(s, &c, &box, &e) == 0);
    CHECK(stockade_update(s, "library", 60000, &label, 1, &changed, &e) == 0);
    CHECK(changed->labels_n == 1 && strcmp(changed->labels[0].value, "b") == 0);
    CHECK(changed->expires_ms - changed->created_ms < 120000);
    o.sandbox = "library";
    o.command.args = (const char *const[]){"sh", "-c", "echo one; sleep 0.3; echo two; exit 4", NULL};
    o.detach = true;
    CHECK(stockade_start(s, &o, &h, &r, &e) == 0 && r == NULL && strlen(t.process) == 32);
    CHECK(stockade_processes(s, "library", NULL, &all, &e) == 0 && all->n == 1);
    CHECK(strcmp(all->items[0].id, t.process) == 0 && strcmp(all->items[0].args[0], "sh") == 0);
    CHECK(stockade_wait(s, t.process, 10000, &r, &e) == 0 && r->exit_code == 4);
    stockade_free(r);
    r = NULL;
    char process[33];
    strcpy(process, t.process);
    t.n = 0;
    CHECK(stockade_attach(s, process, 4, &h, &r, &e) == 0 && r->exit_code == 4);
    CHECK(t.n == 4 && memcmp(t.bytes, "two\n", 4) == 0);
    CHECK(stockade_delete(s, "library", &e) == 0);
    stockade_free(r);
    stockade_free(all);
    stockade_free(box);
    stockade_free(changed);
}

static int
count(void *cookie, const void *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)cookie += n;
    return 1;
}

static void
any_method_can_be_called(struct stockade *s)
{
    const struct stockade_bytes *out = NULL;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    size_t n = 0;
    r.method = "/stockade.v1.Nothing/Here";
    CHECK(stockade_call(s, &r, &out, &e) < 0 && e.code == STOCKADE_UNIMPLEMENTED && out == NULL);
    r.method = "/stockade.v1.ReflectionService/GetFileDescriptorSet";
    CHECK(stockade_call(s, &r, &out, &e) == 0 && out->n > 1000);
    stockade_free(out);
    r.method = "/stockade.v1.HealthService/Watch";
    r.on_message = count;
    r.cookie = &n;
    CHECK(stockade_call(s, &r, NULL, &e) < 0 && e.code == STOCKADE_CANCELLED && n == 2);
}

enum { JOBS = 40 };

struct many {
    uint64_t jobs, results, cut_at, cancel_at;
    int seen[JOBS];
    char text[16];
};

static int
next_job(void *cookie, uint64_t number, struct stockade_batch_job *job)
{
    static const char *args[] = {"echo", NULL, NULL};
    struct many *m = cookie;
    if (number >= m->jobs)
        return 0;
    snprintf(m->text, sizeof m->text, "%d", (int)number);
    args[1] = m->text;
    job->command.args = args;
    job->key = m->text;
    return 1;
}

// As a network that fails: the library's connection to the broker.
static void
cut(void)
{
    for (int fd = 3; fd < 64; fd++) {
        struct sockaddr_un a;
        socklen_t n = sizeof a;
        if (getpeername(fd, (struct sockaddr *)&a, &n) == 0 && a.sun_family == AF_UNIX && a.sun_path[0] != '\0')
            shutdown(fd, SHUT_RDWR);
    }
}

static int
job_ended(void *cookie, const struct stockade_batch_result *r)
{
    struct many *m = cookie;
    char text[16];
    snprintf(text, sizeof text, "%d\n", (int)r->number);
    CHECK(r->number < JOBS && r->result->exit_code == 0 && r->missing_bytes == 0);
    CHECK(r->output[0].n == strlen(text) && memcmp(r->output[0].bytes, text, strlen(text)) == 0);
    CHECK(r->output[1].n == 0 && strncmp(r->key, text, strlen(text) - 1) == 0);
    m->seen[r->number]++;
    if (++m->results == m->cut_at)
        cut();
    return m->results == m->cancel_at;
}

static int
end_of_time(void *cookie, uint64_t number, struct stockade_batch_job *job)
{
    static const char *const args[] = {"sleep", "5", NULL};
    (void)cookie, (void)number;
    job->command.args = args;
    return 1;
}

static void
a_batch_runs_each_job_once_over_a_lost_connection(struct stockade *s)
{
    struct stockade_batch_options o = STOCKADE_BATCH_OPTIONS_INIT;
    struct many m = {.jobs = JOBS, .cut_at = 5};
    struct stockade_batch_handlers h = {next_job, job_ended, &m};
    o.network = STOCKADE_NETWORK_OFF;
    o.window = 8;
    CHECK(stockade_batch(s, &o, NULL, &e) < 0 && e.code == STOCKADE_INVALID_ARGUMENT);
    o.template_name = "none";
    CHECK(stockade_batch(s, &o, &h, &e) < 0 && e.code == STOCKADE_NOT_FOUND && m.results == 0);
    o.template_name = NULL;
    o.resume = true;
    CHECK(stockade_batch(s, &o, &h, &e) < 0 && strcmp(e.subject, "key") == 0);
    o.key = "unknown";
    CHECK(stockade_batch(s, &o, &h, &e) < 0 && e.code == STOCKADE_NOT_FOUND);
    o.resume = false;
    CHECK(stockade_batch(s, &o, &h, &e) == 0 && m.results == JOBS);
    for (int i = 0; i < JOBS; i++)
        CHECK(m.seen[i] == 1);
    m = (struct many){.jobs = JOBS, .cancel_at = 3};
    o.key = NULL;
    o.reset_files = true;
    CHECK(stockade_batch(s, &o, &h, &e) < 0 && e.code == STOCKADE_CANCELLED && m.results == 3);
    m = (struct many){0};
    CHECK(stockade_batch(s, &o, &h, &e) == 0 && m.results == 0);
    h.next = end_of_time;
    h.on_result = NULL;
    o.deadline_ms = 300;
    CHECK(stockade_batch(s, &o, &h, &e) < 0 && e.code == STOCKADE_DEADLINE_EXCEEDED);
}

int
main(void)
{
    struct stockade *s = NULL;
    const struct stockade_info *info = NULL;
    CHECK(stockade_open(&s, NULL, &e) == 0);
    refusals_name_the_field(s);
    a_handler_may_call_and_may_stop(s);
    a_key_makes_one_sandbox_only(s);
    a_process_is_left_and_found_again(s);
    any_method_can_be_called(s);
    a_batch_runs_each_job_once_over_a_lost_connection(s);
    many_threads_run_jobs_on_one_handle(s);
    for (int i = 0; i < 200 && (info == NULL || info->sandboxes_own > 0); i++) {
        // the answer of a run comes before its sandbox is gone
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        stockade_free(info);
        CHECK(stockade_info(s, &info, &e) == 0);
    }
    CHECK(info->sandboxes_own == 0 && info->templates_n > 0);
    CHECK(strcmp(info->version, stockade_version()) == 0);
    stockade_free(info);
    stockade_close(s);
    puts("ok");
    return 0;
}
"""


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        for line in f:
            if line.startswith(name + ":"):
                return line.split("=", 1)[1].strip()
    return ""


def flags(folder):
    """As a user gets them: from pkg-config where the library is installed, else from a staged copy."""
    if INSTALLED:
        return subprocess.run(["pkg-config", "--cflags", "--libs", "stockade"], capture_output=True, check=True,
                              text=True).stdout.split(), os.environ.get("CC", "cc"), {}
    for name in ("stockade.h", "stockade_anomalies.h", "stockade_code.h", "stockade_poll.h", "stockade_simulation.h",
                 "stockade_batch.h", "stockade_snapshots.h", "stockade_templates.h", "stockade_telemetry.h", "stockade_transactions.h", "stockade_volumes.h"):
        shutil.copy(os.path.join(os.environ["STOCKADE_SOURCE"], "client", name), folder)
    for name in ("libstockade.so", "libstockade.so.0"):
        shutil.copy(os.path.join(BUILD, "client", name), folder)
    sanitize = cached("STOCKADE_SANITIZE")
    more = [f"-fsanitize={sanitize}"] if sanitize else []
    return [f"-I{folder}", f"-L{folder}", "-lstockade", *more], cached("CMAKE_C_COMPILER"), {"LD_LIBRARY_PATH": folder}


STRUCTURES = r"""
#include <stockade.h>

int main(void)
{
    struct stockade_options a = STOCKADE_OPTIONS_INIT;
    struct stockade_call_options b = STOCKADE_CALL_OPTIONS_INIT;
    struct stockade_run_options c = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_start_options d = STOCKADE_START_OPTIONS_INIT;
    struct stockade_create_options e = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_request f = STOCKADE_REQUEST_INIT;
    struct stockade_findings_options g = STOCKADE_FINDINGS_OPTIONS_INIT;
    struct stockade_events_options h = STOCKADE_EVENTS_OPTIONS_INIT;
    struct stockade_async i = STOCKADE_ASYNC_INIT;
    return a.size + b.size + c.size + d.size + e.size + f.size + g.size + h.size + i.size == 0;
}
"""


def the_header_is_plain_c_and_cpp_without_a_warning(folder, found, compiler):
    cpp = compiler.replace("clang", "clang++").replace("gcc", "g++")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    for use, suffix, standards in ((compiler, "c", ("c99", "c17")), (cpp, "cc", ("c++11", "c++17", "c++20"))):
        source = os.path.join(folder, f"structures.{suffix}")
        with open(source, "w", encoding="utf-8") as f:
            f.write(STRUCTURES)
        if not shutil.which(use):
            print(f"skipped: no {use}", flush=True)
            continue
        for standard in standards:
            subprocess.run([use, f"-std={standard}", *strict, source, *[x for x in found if x.startswith("-I")]], check=True)


def main():
    with tempfile.TemporaryDirectory(prefix="stockade-library-") as folder:
        source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(source, "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        found, compiler, env = flags(folder)
        if not shutil.which(compiler):
            skip(f"no compiler ({compiler})")
        the_header_is_plain_c_and_cpp_without_a_warning(folder, found, compiler)
        subprocess.run([compiler, "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", source, "-o", program,
                        "-pthread", *found], check=True)
        with Broker(name="-library") as b:
            r = subprocess.run([program], env=dict(os.environ, STOCKADE_ADDRESS=b.address, **env), check=False,
                               timeout=scaled(300))
            if r.returncode != 0:
                raise AssertionError(f"exit code {r.returncode}")


if __name__ == "__main__":
    main()
    sys.exit(0)
