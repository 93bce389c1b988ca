// SPDX-License-Identifier: Apache-2.0
// See zygote.h. A zygote exists until its process and its spare have ended. Its packets: to it `warm MODULES`, and `fork` with
// the socket of the new spare; from it `warm WHAT FAILED`.
#include "zygote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "image.h"
#include "language.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/sandbox/agent.h"
#include "server/sandbox/command.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "stockade/v1/process_service.pb-c.h"

enum {
    WARM_MS = 60 * 1000, // timeout for the imports
    FORK_AGAIN_MS = 20,  // after a spare was taken: its first cell runs now
    COMMAND_ARENA_MAX = 512 * 1024,
    FAILED_MAX = 240,
};

struct zygotes {
    struct server *srv;
    const struct language *language;
    int program; // a sealed file
};

struct zygote {
    struct zygotes *all;
    struct sandbox *sandbox;
    struct agent *process; // NULL: it has ended
    struct image *spare;   // NULL: it has ended, or was taken
    bool network_off;
    bool reported; // to the pool
    struct loop_timer *timer;
};

// Frees it, if nothing of it is left.
static void
settle(struct zygote *z)
{
    if (z->process != NULL || z->spare != NULL)
        return;
    loop_timer_stop(&z->timer);
    z->sandbox->zygote = NULL;
    free(z);
}

// Reports to the pool, once, and last: the pool may give the sandbox to a request, and delete it when that fails, which ends the rest of
// the zygote. It may be freed after this.
static void
settle_and_report(struct zygote *z, const struct err *e)
{
    struct pool *pool = z->all->srv->pool;
    struct sandbox *s = z->sandbox;
    const bool reported = z->reported;
    z->reported = true;
    settle(z);
    if (!reported)
        pool_warmed(pool, s, e);
}

// ---- the spare

static void
on_spare_ready(void *cookie)
{
    settle_and_report(cookie, NULL);
}

static void
on_spare_ended(void *cookie, const struct err *why)
{
    struct zygote *z = cookie;
    z->spare = NULL;
    settle_and_report(z, why);
}

static const struct image_events spare_events = {.ready = on_spare_ready, .ended = on_spare_ended};

static int
fork_spare(struct zygote *z, struct err *e)
{
    z->spare = image_fork_by(z->process, z->sandbox, &spare_events, z, e);
    return z->spare == NULL ? err_errno(e) : 0;
}

static void
on_fork_again(void *cookie)
{
    struct zygote *z = cookie;
    struct err ignored; // contexts start without
    loop_timer_stop(&z->timer);
    if (z->process != NULL && z->spare == NULL)
        (void)fork_spare(z, &ignored);
}

// ---- the zygote

static void
give_up(struct zygote *z, const struct err *why)
{
    agent_close(take_ptr(z->process));
    settle_and_report(z, why);
}

static void
on_timeout(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED,
                  "the imports of a warm interpreter took more than %d s", WARM_MS / 1000);
    give_up(cookie, &e);
}

static void
say_failed(const struct zygote *z, const char *bytes, size_t n)
{
    char text[FAILED_MAX];
    char clean[FAILED_MAX];
    const size_t length = n < sizeof text - 1 ? n : sizeof text - 1;
    memcpy(text, bytes, length);
    text[length] = '\0';
    (void)log_escape(text, clean, sizeof clean);
    pool_warm_failed(z->all->srv->pool, z->sandbox->spec.template, clean);
}

// Its imports are done: forks the first spare.
static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events.packet
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct zygote *z = cookie;
    static const char word[] = "warm ";
    const size_t word_n = sizeof word - 1;
    (void)fd;
    if (n < word_n || memcmp(bytes, word, word_n) != 0 || z->spare != NULL || z->reported)
        return err_set(e, ERR_INTERNAL, "an unexpected packet");
    loop_timer_stop(&z->timer);
    if (n > word_n)
        say_failed(z, (const char *)bytes + word_n, n - word_n);
    return fork_spare(z, e);
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct zygote *z = cookie;
    z->process = NULL;
    loop_timer_stop(&z->timer);
    settle_and_report(z, why);
}

static const struct agent_events process_events = {.packet = on_packet, .ended = on_ended};

// The command of a context of this language, but for the loader.
static int
start_process(struct zygote *z, struct err *e)
{
    struct arena *auto_arena a = arena_new(COMMAND_ARENA_MAX);
    const struct sandbox *s = z->sandbox;
    const char *args[LANGUAGE_ARGS_MAX];
    Stockade__V1__Command m = STOCKADE__V1__COMMAND__INIT;
    struct job_spec command;
    if (a == NULL)
        return err_sys(e, ENOMEM, "start an interpreter");
    while (m.n_args < LANGUAGE_ARGS_MAX && z->all->language->args[m.n_args] != NULL) {
        args[m.n_args] = z->all->language->args[m.n_args];
        m.n_args++;
    }
    args[m.n_args - 1] = z->all->language->zygote;
    m.args = args;
    int r = command_read(&m, &s->spec, &s->spec.limits, a, &command, e);
    const struct agent_spec spec = {.args = command.args,
                                    .args_n = command.args_n,
                                    .env = command.env,
                                    .env_n = command.env_n,
                                    .workdir = "/",
                                    .program_fd = -1,
                                    .script_fd = z->all->program};
    return r < 0 ? r : agent_start(z->sandbox, &spec, &process_events, z, &z->process, e);
}

static int
send_warm(struct zygote *z, struct err *e)
{
    char text[sizeof "warm " + TEMPLATE_IMPORTS_BYTES_MAX];
    int n = snprintf(text, sizeof text, "warm %s", z->sandbox->spec.template->imports);
    return agent_send(z->process, text, (size_t)n, -1, e);
}

static int
begin(void *cookie, struct sandbox *s, struct err *e)
{
    struct zygotes *all = cookie;
    struct zygote *z = calloc(1, sizeof *z);
    if (z == NULL)
        return err_sys(e, ENOMEM, "start an interpreter");
    *z = (struct zygote){.all = all, .sandbox = s, .network_off = sandbox_network_is_off(s)};
    int r = start_process(z, e);
    if (r == 0 && (send_warm(z, e) < 0 ||
                   loop_timer_start(all->srv->loop, &z->timer, WARM_MS, on_timeout, z) < 0)) {
        agent_close(z->process);
        r = -ENOMEM;
    }
    if (r < 0)
        free(z);
    else
        s->zygote = z;
    return r;
}

// ---- the table

struct zygotes *
zygotes_new(struct server *srv)
{
    struct err ignored; // NULL says it
    const struct language *l = language_find("python", &ignored);
    struct zygotes *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    *all = (struct zygotes){.srv = srv, .language = l, .program = language_file(l, &ignored)};
    if (all->program < 0) {
        free(all);
        return NULL;
    }
    pool_set_warmer(srv->pool, &(struct pool_warmer){.begin = begin, .cookie = all});
    return all;
}

void
zygotes_free(struct zygotes *all)
{
    if (all == NULL)
        return;
    (void)close(all->program);
    free(all);
}

// ---- use

// What takes effect when a process starts, and is not set up later.
static bool
is_of_start(const char *variable)
{
    static const char *const prefixes[] = {"PYTHON", "LD_", "MALLOC_", "GLIBC_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool
same_limits(const struct sandbox *s)
{
    static const enum limit of_process[] = {LIMIT_PIDS, LIMIT_FILES, LIMIT_FILE_SIZE_BYTES};
    const struct limits *has = &s->spec.template->limits, *wants = &s->spec.limits;
    for (size_t i = 0; i < sizeof of_process / sizeof of_process[0]; i++)
        if (has->v[of_process[i]] != wants->v[of_process[i]])
            return false;
    return true;
}

static bool
in_template(const struct template *t, const char *variable)
{
    for (uint32_t i = 0; i < t->env_n; i++) {
        const size_t n = strlen(t->env[i].name);
        if (strncmp(variable, t->env[i].name, n) == 0 && variable[n] == '=' &&
            strcmp(variable + n + 1, t->env[i].value) == 0)
            return true;
    }
    return false;
}

bool
zygote_has(const struct sandbox *s, const struct language *l, const struct job_spec *spec)
{
    const struct zygote *z = s->zygote;
    if (z == NULL || z->spare == NULL || !image_is_ready(z->spare) || z->all->language != l ||
        !same_limits(s) || z->network_off != sandbox_network_is_off(s))
        return false;
    for (size_t i = 0; i < spec->env_n; i++)
        if (is_of_start(spec->env[i]) && !in_template(s->spec.template, spec->env[i]))
            return false;
    return true;
}

int
zygote_start_job(struct sandbox *s, struct job_spec *spec, bool again, struct job **out,
                 struct err *e)
{
    struct zygote *z = s->zygote;
    struct image *spare = z->spare;
    z->spare = NULL;
    int r = image_become_job(spare, spec, out, e);
    if (s->zygote != z)
        return r;
    if (again && z->process != NULL)
        (void)loop_timer_start(z->all->srv->loop, &z->timer, FORK_AGAIN_MS, on_fork_again, z);
    settle(z);
    return r;
}
