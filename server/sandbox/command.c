// SPDX-License-Identifier: Apache-2.0
// See command.h.
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "image.h"
#include "sandbox.h"
#include "stockade/v1/process_service.pb-c.h"

struct variable {
    const char *name;
    const char *value;
};

// The environment of every job; a template and then a caller may replace each variable.
static const struct variable usual[] = {
    {"PATH", "/home/agent/.local/bin:/usr/local/bin:/usr/bin:/bin"}, // pip's folder first
    {"HOME", "/home/agent"},
    {"USER", "agent"},
    {"LOGNAME", "agent"},
    {"SHELL", "/bin/sh"},
    {"LANG", "C.UTF-8"},
};
// Where jobs are root inside, these instead.
static const struct variable of_root[] = {
    {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    {"HOME", "/root"},
    {"USER", "root"},
    {"LOGNAME", "root"},
};
static const struct variable of_terminal = {"TERM", "xterm-256color"};

// Variables made from the sandbox's limits, for programs that do not use its files (spawner/tree_view.c): nproc(1),
// OpenMP programs and Go ask the kernel for the number of processors; Java also for memory.
#define OF_OPENMP "OMP_NUM_THREADS"
#define OF_GO     "GOMAXPROCS"
#define OF_JAVA   "JAVA_TOOL_OPTIONS"

enum {
    OF_LIMITS_N = 3,
    USUAL_N = sizeof usual / sizeof usual[0],
    OF_ROOT_N = sizeof of_root / sizeof of_root[0],
    ROWS_USUAL = 24,
    COLUMNS_USUAL = 80,
};

struct env {
    struct arena *arena;
    const char **text; // "NAME=value"
    size_t n;
};

static size_t
find(const struct env *env, const char *name)
{
    size_t name_n = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->text[i], name, name_n) == 0 && env->text[i][name_n] == '=')
            return i;
    return env->n;
}

static bool
set(struct env *env, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    char *text = arena_alloc(env->arena, n);
    if (text == NULL)
        return false;
    (void)snprintf(text, n, "%s=%s", name, value);
    size_t at = find(env, name);
    env->text[at] = text;
    if (at == env->n)
        env->n++;
    return true;
}

static bool
set_by_limits(struct env *env, const struct limits *l)
{
    char text[96];
    const uint64_t cpus = (l->v[LIMIT_CPU_MILLIS] + 999) / 1000;
    const long host = cpus > 1 ? sysconf(_SC_NPROCESSORS_ONLN) : 1; // it reads a file
    const uint64_t threads = host > 0 && cpus > (uint64_t)host ? (uint64_t)host : cpus;
    (void)snprintf(text, sizeof text, "%" PRIu64, threads);
    if (!set(env, OF_OPENMP, text) || !set(env, OF_GO, text))
        return false;
    (void)snprintf(text, sizeof text, "-XX:MaxRAM=%" PRIu64 " -XX:ActiveProcessorCount=%" PRIu64,
                   l->v[LIMIT_MEMORY_BYTES], threads);
    return set(env, OF_JAVA, text);
}

static bool
fill(struct env *env, const Stockade__V1__Command *m, const struct sandbox_spec *of,
     const struct limits *limits)
{
    const struct template *t = of->template;
    const struct image *made = of->image;
    for (size_t i = 0; i < USUAL_N; i++)
        if (!set(env, usual[i].name, usual[i].value))
            return false;
    for (size_t i = 0; t->user_root && i < OF_ROOT_N; i++)
        if (!set(env, of_root[i].name, of_root[i].value))
            return false;
    if (!set_by_limits(env, limits))
        return false;
    if (m->terminal != NULL && !set(env, of_terminal.name, of_terminal.value))
        return false;
    for (uint32_t i = 0; i < t->env_n; i++)
        if (!set(env, t->env[i].name, t->env[i].value))
            return false;
    for (uint32_t i = 0; made != NULL && i < made->env_n; i++)
        if (!set(env, made->env[i].name, made->env[i].value))
            return false;
    for (size_t i = 0; i < m->n_env; i++)
        if (!set(env, m->env[i]->name, m->env[i]->value))
            return false;
    return true;
}

int
command_read(const struct Stockade__V1__Command *m, const struct sandbox_spec *of,
             const struct limits *limits, struct arena *a, struct job_spec *spec, struct err *e)
{
    const uint32_t env_n = of->template->env_n + (of->image != NULL ? of->image->env_n : 0);
    const char *workdir = of->image != NULL && of->image->workdir[0] != '\0'
                              ? of->image->workdir
                              : of->template->workdir;
    if (m->n_args == 0 || m->args[0][0] == '\0')
        return err_field(e, "command.args", "no program was given");
    struct env env = {.arena = a};
    env.text = arena_alloc(a, sizeof(char *) * (USUAL_N + OF_LIMITS_N + 1 + env_n + m->n_env));
    if (env.text == NULL || !fill(&env, m, of, limits))
        return err_field(e, "command.env", "arguments and environment are too large, at most %d",
                         JOB_COMMAND_BYTES_MAX);
    *spec = (struct job_spec){
        .args = (const char *const *)m->args,
        .args_n = m->n_args,
        .env = env.text,
        .env_n = env.n,
        .workdir = m->workdir[0] != '\0' ? m->workdir : workdir,
        .input = m->stdin.data,
        .input_n = m->stdin.len,
        .input_open = m->stdin_open,
    };
    if (m->terminal != NULL) {
        spec->terminal = true;
        spec->rows = m->terminal->rows != 0 ? m->terminal->rows : ROWS_USUAL;
        spec->columns = m->terminal->columns != 0 ? m->terminal->columns : COLUMNS_USUAL;
    }
    return 0;
}
