// SPDX-License-Identifier: Apache-2.0
// See private.h: an interpreter of a lane, the zygote, which stays when the sandbox is reset, and from which the jobs are forked
// whose command is `python3 -c CODE ...`. server/code/kernel/python_snippets.py is the other end.
//
//   NONE --start--> IMPORTS --`warm`--> FORKING --a process waits (code/image.h)--> READY --a job takes it--> IDLE --reset--+
//                                          ^                                                                               |
//                                          +----------------------------- `fork` --------------------------------------- -+
//
// A process is forked after the reset, when nothing else of a job is left, and nothing else runs before it becomes a job: so no job
// can reach the process of another one. Jobs can reach the zygote, which has their uid: they cannot open its memory (it is
// non-dumpable), but they can end it, stop it, or change its limits, priority and processors. It compares those before each fork, and
// ends if they differ; a new one is started then. If the first one of a batch does not get ready, jobs are started without.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "private.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/code/image.h"
#include "server/code/language.h"
#include "server/sandbox/agent.h"
#include "server/sandbox/command.h"
#include "stockade/v1/process_service.pb-c.h"

enum {
    ARENA_MAX = 512 * 1024,
    IMPORTS_MS = 60 * 1000,
    CODE_ARGS = 3, // python3 -c CODE
};

struct batch_warm {
    struct batch_lane *lane;
    struct sandbox *sandbox; // valid while `process` or `spare` is there
    struct agent *process;   // NULL: it has ended
    struct image *spare;     // NULL: none
    bool imported, was_ready;
    bool cold; // jobs are started without
    struct limits limits;
    struct loop_timer *timer;
};

static struct batch *
batch_of(const struct batch_warm *w)
{
    return w->lane->batch;
}

static void
close_all(struct batch_warm *w)
{
    loop_timer_stop(&w->timer);
    w->imported = false;
    if (w->spare != NULL)
        image_close(take_ptr(w->spare));
    if (w->process != NULL)
        agent_close(take_ptr(w->process));
}

static int start_zygote(struct batch_warm *w, struct err *e);

// It has ended or is of no use any more. A lane that waits for it gets another one, but not one that never was ready.
static void
lost(struct batch_warm *w, const struct err *why)
{
    struct err e = *why;
    close_all(w);
    metrics_add(METRIC_BATCH_WARM_LOST, 1);
    if (w->lane->state != LANE_WARMING)
        return;
    const bool again = w->was_ready;
    w->was_ready = false;
    if (again && start_zygote(w, &e) == 0)
        return;
    close_all(w);
    w->cold = true;
    log_err_about(LOG_WARNING, "batch-cold", &(struct log_about){.sandbox = w->sandbox->id.id}, &e);
    batch_lane_warmed(w->lane, w->sandbox);
}

// ---- the process of the next job

static void
on_spare_ready(void *cookie)
{
    struct batch_warm *w = cookie;
    w->was_ready = true;
    batch_lane_warmed(w->lane, w->sandbox);
}

static void
on_spare_ended(void *cookie, const struct err *why)
{
    struct batch_warm *w = cookie;
    w->spare = NULL;
    lost(w, why);
}

static const struct image_events spare_events = {.ready = on_spare_ready, .ended = on_spare_ended};

// If it does not fork in time, the spare ends (agent_fork()).
static int
fork_spare(struct batch_warm *w, struct err *e)
{
    w->spare = image_fork_by(w->process, w->sandbox, &spare_events, w, e);
    return w->spare == NULL ? err_errno(e) : 0;
}

// Of a zygote that jobs could reach: one may have stopped it.
static int
fork_again(struct batch_warm *w, struct err *e)
{
    const int r = agent_signal(w->process, SIGCONT, e);
    return r < 0 ? r : fork_spare(w, e);
}

// ---- the zygote

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events.packet
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct batch_warm *w = cookie;
    static const char word[] = "warm ";
    (void)fd;
    // what it could not import, a job will not be able to import either
    if (n < sizeof word - 1 || memcmp(bytes, word, sizeof word - 1) != 0 || w->imported)
        return err_set(e, ERR_INTERNAL, "an unexpected packet");
    w->imported = true;
    loop_timer_stop(&w->timer);
    return fork_spare(w, e);
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct batch_warm *w = cookie;
    w->process = NULL;
    lost(w, why);
}

static const struct agent_events process_events = {.packet = on_packet, .ended = on_ended};

static void
on_timeout(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the interpreter was not ready in %d s",
                  IMPORTS_MS / 1000);
    lost(cookie, &e);
}

static int
program_of(struct batches *all, struct err *e)
{
    if (all->snippets_fd < 0)
        all->snippets_fd = language_file(language_of_snippets(), e);
    return all->snippets_fd;
}

static int
send_imports(struct batch_warm *w, struct err *e)
{
    char text[sizeof "warm " + TEMPLATE_IMPORTS_BYTES_MAX];
    const struct template *t = w->sandbox->spec.template;
    int n = snprintf(text, sizeof text, "warm %s", t->warm ? t->imports : "");
    return agent_send(w->process, text, (size_t)n, -1, e);
}

// With the command that a job has which sets nothing itself, but for the code.
static int
start_zygote(struct batch_warm *w, struct err *e)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    const struct sandbox *s = w->sandbox;
    const struct language *l = language_of_snippets();
    Stockade__V1__Command m = STOCKADE__V1__COMMAND__INIT;
    struct job_spec command;
    const char *args[LANGUAGE_ARGS_MAX];
    if (a == NULL)
        return err_sys(e, ENOMEM, "start an interpreter");
    for (; l->args[m.n_args] != NULL; m.n_args++)
        args[m.n_args] = l->args[m.n_args];
    m.args = args;
    int r = command_read(&m, &s->spec, &s->spec.limits, a, &command, e);
    const int program = r < 0 ? r : program_of(batch_of(w)->all, e);
    if (program < 0)
        return program;
    const struct agent_spec spec = {.args = command.args,
                                    .args_n = command.args_n,
                                    .env = command.env,
                                    .env_n = command.env_n,
                                    .workdir = "/",
                                    .program_fd = -1,
                                    .script_fd = program};
    w->limits = s->spec.limits;
    r = agent_start(w->sandbox, &spec, &process_events, w, &w->process, e);
    if (r == 0)
        r = send_imports(w, e);
    if (r == 0)
        r = loop_timer_start(batch_of(w)->all->srv->loop, &w->timer, IMPORTS_MS, on_timeout, w);
    return r;
}

// ---- what the lane does with it

bool
batch_warm_prepare(struct batch_lane *l, struct sandbox *s)
{
    struct err ignored; // the job is started without
    struct batch_warm *w = l->warm;
    if (w == NULL)
        w = l->warm = calloc(1, sizeof *w);
    if (w == NULL || w->cold)
        return false;
    w->lane = l;
    w->sandbox = s;
    if (w->process != NULL) {
        if (fork_again(w, &ignored) == 0)
            return true;
        metrics_add(METRIC_BATCH_WARM_LOST, 1); // the last job ended it a moment ago
        close_all(w);
    }
    if (start_zygote(w, &ignored) == 0)
        return true;
    close_all(w);
    return false;
}

void
batch_warm_end(struct batch_lane *l)
{
    if (l->warm == NULL)
        return;
    close_all(l->warm);
    free(take_ptr(l->warm));
}

uint32_t
batch_warm_number(const struct batch_lane *l)
{
    const struct batch_warm *w = l->warm;
    return w != NULL && w->process != NULL && agent_is_running(w->process)
               ? agent_number(w->process)
               : 0;
}

void
batch_warm_drop(struct batch_lane *l)
{
    struct batch_warm *w = l->warm;
    if (w != NULL && w->spare != NULL)
        image_close(take_ptr(w->spare));
}

// What takes effect when an interpreter starts.
static bool
is_of_start(const char *variable)
{
    static const char *const begins[] = {"PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_"};
    static const char *const names[] = {"LANG", "LANGUAGE", "PATH", "HOME"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(variable, names[i]) == 0)
            return true;
    return false;
}

static bool
same_limits(const struct limits *a, const struct limits *b)
{
    static const enum limit of_process[] = {LIMIT_PIDS, LIMIT_FILES, LIMIT_FILE_SIZE_BYTES};
    for (size_t i = 0; i < sizeof of_process / sizeof of_process[0]; i++)
        if (a->v[of_process[i]] != b->v[of_process[i]])
            return false;
    return true;
}

bool
batch_warm_fits(const struct batch_lane *l, const Stockade__V1__Command *m,
                const struct limits *limits)
{
    const struct batch_warm *w = l->warm;
    if (w == NULL || w->process == NULL || w->spare == NULL || !image_is_ready(w->spare) ||
        m->n_args < CODE_ARGS || strcmp(m->args[0], "python3") != 0 ||
        strcmp(m->args[1], "-c") != 0 || m->workdir[0] != '\0' || !same_limits(&w->limits, limits))
        return false;
    for (size_t i = 0; i < m->n_env; i++)
        if (is_of_start(m->env[i]->name))
            return false;
    return true;
}

// What python_snippets.py reads: texts that end with a NUL each.
static bool
write_texts(FILE *f, const struct job_spec *spec)
{
    const uint64_t cpu_ms = spec->limits.v[LIMIT_CPU_TIME_MS];
    (void)fprintf(f, "%" PRIu64 "%c%s%c%zu%c", cpu_ms != 0 ? cpu_ms / 1000 + 1 : 0, '\0',
                  spec->workdir, '\0', spec->args_n, '\0');
    for (size_t i = 0; i < spec->args_n; i++)
        (void)fwrite(spec->args[i], 1, strlen(spec->args[i]) + 1, f);
    for (size_t i = 0; i < spec->env_n; i++)
        (void)fwrite(spec->env[i], 1, strlen(spec->env[i]) + 1, f);
    return ferror(f) == 0;
}

static int
write_job(const struct job_spec *spec, struct err *e)
{
    int auto_close fd = memfd_create("stockade-job", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *f = copy < 0 ? NULL : fdopen(copy, "w");
    if (f == NULL) {
        const int sys = errno;
        if (copy >= 0)
            (void)close(copy);
        return err_sys(e, sys, "pass a program to an interpreter");
    }
    bool whole = write_texts(f, spec);
    if (fclose(f) != 0 || !whole)
        return err_sys(e, EIO, "pass a program to an interpreter");
    return take_fd(&fd);
}

int
batch_warm_start(struct batch_lane *l, struct job_spec *spec, struct job **out, struct err *e)
{
    struct batch_warm *w = l->warm;
    spec->link = write_job(spec, e);
    if (spec->link < 0)
        return spec->link;
    spec->has_link = true;
    int r = image_become_job(take_ptr(w->spare), spec, out, e);
    if (r == 0)
        metrics_add(METRIC_BATCH_WARM_JOBS, 1);
    else
        w->cold = true; // whatever it was, the next attempt is another one
    return r;
}
