// SPDX-License-Identifier: Apache-2.0
// See agent.h. An agent exists until the guest has reported its end, so that the number of its cgroup is known to be
// free of processes. Its owner may be gone before that.
#include "agent.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "guest_link.h"
#include "private.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/packet_link.h"
#include "server/base/server.h"
#include "server/base/unblock.h"
#include "sandbox.h"
#include "spawn.h"

_Static_assert((int)AGENT_PACKET_MAX <= (int)PACKET_LINK_IN_MAX, "a packet fits");

enum {
    PACKETS_PER_TURN = 16,
    REST_MAX = 1024,
    START_MS = 10 * 1000,
    FORK_MS = 10 * 1000,
    KILL_MS = 5 * 1000
};

// FORKING: the guest does not know it yet.
enum agent_state { AGENT_FORKING, AGENT_STARTING, AGENT_RUNNING, AGENT_ENDING };

struct agent {
    struct packet_link link; // must be first
    struct list of_sandbox;
    struct sandbox *sandbox;
    uint32_t number, pid; // pid: 0 before it has started
    enum agent_state state;
    bool takes_fd;
    bool forked, ran;                  // made by agent_fork(); has been RUNNING
    bool ours, known;                  // a program of ours; its cgroup is in sandbox.ours
    uint64_t oom_kills;                // of its sandbox when it began
    uint64_t oom_reported;             // of those since, which agent_out_of_memory() has reported
    const struct agent_events *events; // NULL: nobody waits for them any more
    void *cookie;
    struct err why; // it is being ended, for this reason; OK: not by us
    struct loop_timer *timeout;
};

static uv_loop_t *
loop_of(const struct agent *a)
{
    return sandboxes_server(a->sandbox->all)->loop;
}

static void
agent_free(struct agent *a)
{
    list_remove(&a->of_sandbox);
    a->sandbox->agents_n--;
    loop_timer_stop(&a->timeout);
    packet_link_free(&a->link);
}

// The end: frees it, then reports.
static void
finish(struct agent *a, const struct err *why)
{
    const struct agent_events *events = a->events;
    void *cookie = a->cookie;
    const struct err last = *why;
    agent_free(a);
    if (events != NULL)
        events->ended(cookie, &last);
}

static void kill_it(struct agent *a, const struct err *why);

// As with a job: a guest that does not report the end is not trusted any more. A frozen one cannot.
static void
on_no_answer(void *cookie)
{
    struct agent *a = cookie;
    struct sandbox *s = a->sandbox;
    struct err e;
    if (a->state == AGENT_FORKING) {
        (void)err_set(&e, ERR_UNAVAILABLE, "the interpreter did not fork it in time");
        finish(a, &e);
        return;
    }
    bool frozen = s->state == SANDBOX_PAUSING || s->state == SANDBOX_PAUSED ||
                  s->state == SANDBOX_RESUMING || s->state == SANDBOX_COPYING;
    if (frozen || (a->state == AGENT_ENDING && !sandbox_kills_done(s))) {
        (void)loop_timer_start(loop_of(a), &a->timeout, KILL_MS, on_no_answer, a);
        return;
    }
    (void)err_set(&e, ERR_INTERNAL, "the guest of sandbox %s did not respond", s->id.id);
    log_err_about(LOG_WARNING, "guest-silent", &(struct log_about){.sandbox = s->id.id}, &e);
    sandbox_destroy(s, &e, NULL);
}

static void
kill_it(struct agent *a, const struct err *why)
{
    if (a->state == AGENT_ENDING)
        return;
    if (a->state == AGENT_FORKING) {
        finish(a, why);
        return;
    }
    a->state = AGENT_ENDING;
    a->why = *why;
    packet_link_hold(&a->link, true);
    packet_link_cut(&a->link);
    sandbox_kill_job(a->sandbox, a->number);
    (void)loop_timer_start(loop_of(a), &a->timeout, KILL_MS, on_no_answer, a);
}

static int
on_packet(void *owner, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct agent *a = owner;
    if (*fd >= 0 && !a->takes_fd)
        return err_set(e, ERR_INTERNAL, "an unexpected descriptor");
    return a->events != NULL && a->state != AGENT_ENDING
               ? a->events->packet(a->cookie, bytes, n, fd, e)
               : 0;
}

static void
on_moved(void *owner)
{
    const struct agent *a = owner;
    bool drained = a->link.out.queued == 0 && a->state != AGENT_ENDING;
    if (drained && a->events != NULL && a->events->drained != NULL)
        a->events->drained(a->cookie);
}

// It ended before it ran, by what itself or its parent did.
static void
note_unfit(const struct agent *a, struct err *e)
{
    if (a->forked && !a->ran && e->code == ERR_UNAVAILABLE)
        err_detail(e, AGENT_UNFIT, NULL, NULL);
}

// Its end was closed, so it has ended or is of no use; the guest reports its end.
static void
on_gone(void *owner, const struct err *why)
{
    struct agent *a = owner;
    struct err e = {.code = ERR_OK};
    bool reported = why->code == ERR_UNAVAILABLE && a->state != AGENT_FORKING; // by the guest
    if (!reported)
        e = *why;
    note_unfit(a, &e);
    kill_it(a, &e);
}

static const struct packet_link_kind kind = {.process = "an agent program",
                                             .peer = "the agent program",
                                             .ended = ERR_UNAVAILABLE,
                                             .packet_max = AGENT_PACKET_MAX,
                                             .queue_max = AGENT_QUEUE_MAX,
                                             .queue_bytes_max = AGENT_QUEUE_BYTES,
                                             .in_max = AGENT_PACKET_MAX,
                                             .packets_per_turn = PACKETS_PER_TURN,
                                             .takes_fd = true,
                                             .packet = on_packet,
                                             .gone = on_gone,
                                             .moved = on_moved};

static int
duplicate(int fd, int *out, struct err *e)
{
    *out = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 && *out < 0 ? err_sys(e, errno, "pass a program to a sandbox") : 0;
}

static int
send_start(const struct agent *a, const struct agent_spec *spec, int theirs, struct err *e)
{
    const struct limits *limits = &a->sandbox->spec.limits;
    int auto_close socket = theirs;
    int auto_close program = -1;
    int auto_close script = -1;
    int r = duplicate(spec->program_fd, &program, e);
    if (r == 0)
        r = duplicate(spec->script_fd, &script, e);
    if (r < 0)
        return r;
    const struct guest_start start = {
        .job = a->number,
        .args = spec->args,
        .args_n = spec->args_n,
        .env = spec->env,
        .env_n = spec->env_n,
        .workdir = spec->workdir,
        .files_max = limits->v[LIMIT_FILES],
        .file_bytes_max = limits->v[LIMIT_FILE_SIZE_BYTES],
        .network_off = sandbox_starts_off(a->sandbox),
        .tasks_max = limits->v[LIMIT_PIDS] + FORKS_REFUSED_AT_ONCE,
        .agent = true,
        .stdio = {take_fd(&socket), take_fd(&program), take_fd(&script)},
    };
    return guest_link_start(a->sandbox->link, &start, e);
}

static int
check(const struct sandbox *s, struct err *e)
{
    if (s->state != SANDBOX_READY && sandbox_check_running(s, e) < 0)
        return err_errno(e);
    if (s->agents_n < AGENTS_OF_SANDBOX)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u agent programs already run in sandbox %s",
                    s->agents_n, s->id.id);
    err_detail(e, "AGENTS_FULL", s->id.id, "try again when some of them have ended");
    return r;
}

// Makes the agent and its socket.
static struct agent *
agent_new(struct sandbox *s, const struct agent_events *events, void *cookie, int *theirs,
          struct err *e)
{
    int pair[2];
    if (check(s, e) < 0)
        return NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        (void)err_sys(e, errno, "start an agent program");
        return NULL;
    }
    int auto_close end = pair[1];
    unblock_refuse(pair[0]);
    struct agent *a = packet_link_new(sizeof *a, sandboxes_server(s->all)->loop, pair[0], &kind, e);
    if (a == NULL)
        return NULL;
    a->sandbox = s;
    a->events = events;
    a->cookie = cookie;
    struct cgstat stat;
    cgstat_read(&s->dirs, 0, &stat);
    a->oom_kills = stat.v[STAT_OOM_KILLS];
    list_init(&a->of_sandbox);
    list_append(&s->agents, &a->of_sandbox);
    s->agents_n++;
    *theirs = take_fd(&end);
    return a;
}

int
agent_start(struct sandbox *s, const struct agent_spec *spec, const struct agent_events *events,
            void *cookie, struct agent **out, struct err *e)
{
    int auto_close theirs = -1;
    struct agent *a = agent_new(s, events, cookie, &theirs, e);
    if (a == NULL)
        return err_errno(e);
    a->state = AGENT_STARTING;
    a->takes_fd = spec->takes_fd;
    a->ours = spec->program_fd >= 0;
    a->number = AGENT_NUMBER_FIRST + s->agents_begun++;
    int r = send_start(a, spec, take_fd(&theirs), e);
    if (r < 0) {
        agent_free(a);
        return err_wrap(e, "start an agent program");
    }
    (void)loop_timer_start(loop_of(a), &a->timeout, START_MS, on_no_answer, a);
    *out = a;
    return 0;
}

int
agent_fork(struct sandbox *s, const struct agent_events *events, void *cookie, struct agent **out,
           int *theirs, struct err *e)
{
    struct agent *a = agent_new(s, events, cookie, theirs, e);
    if (a == NULL)
        return err_errno(e);
    a->state = AGENT_FORKING;
    a->forked = true;
    a->number = ++s->jobs_begun;
    (void)loop_timer_start(loop_of(a), &a->timeout, FORK_MS, on_no_answer, a);
    *out = a;
    return 0;
}

int
agent_adopt(struct agent *a, uint32_t pid, struct err *e)
{
    if (a->state != AGENT_FORKING)
        return err_set(e, ERR_INTERNAL, "it has a process already");
    int r = guest_link_adopt(a->sandbox->link, a->number, pid, e);
    if (r < 0)
        return err_wrap(e, "adopt a process");
    a->state = AGENT_STARTING;
    (void)loop_timer_start(loop_of(a), &a->timeout, START_MS, on_no_answer, a);
    return 0;
}

int
agent_give(struct agent *a, const int *fds, size_t n, struct err *e)
{
    struct packet *p = packet_new(&a->link.out, 1, e);
    bool runs = a->state == AGENT_RUNNING;
    for (size_t i = 0; i < n; i++)
        if (p != NULL && p->fds_n < PACKET_FDS)
            p->fds[p->fds_n++] = fds[i];
        else
            (void)close(fds[i]);
    if (p == NULL)
        return err_errno(e);
    p->bytes[0] = 'g';
    if (!runs) {
        packet_free(p);
        return err_set(e, ERR_FAILED_PRECONDITION, "the interpreter has ended");
    }
    int r = packet_link_send(&a->link, p, e);
    if (r < 0)
        kill_it(a, e);
    else
        agent_free(a);
    return r;
}

bool
agent_is_running(const struct agent *a)
{
    return a->state == AGENT_RUNNING;
}

uint32_t
agent_number(const struct agent *a)
{
    return a->number;
}

uint32_t
agent_pid(const struct agent *a)
{
    return a->pid;
}

int
agent_send(struct agent *a, const void *bytes, size_t n, int fd, struct err *e)
{
    int auto_close owned = fd;
    struct packet *p = packet_new(&a->link.out, n, e);
    if (p == NULL)
        return err_errno(e);
    int r = packets_room(&a->link.out, p, e);
    if (r < 0) {
        packet_free(p);
        return r;
    }
    if (n > 0)
        memcpy(p->bytes, bytes, n);
    if (fd >= 0)
        p->fds[p->fds_n++] = take_fd(&owned);
    return packet_link_send(&a->link, p, e);
}

void
agent_hold(struct agent *a, bool held)
{
    if (a->state != AGENT_ENDING)
        packet_link_hold(&a->link, held);
}

int
agent_signal(struct agent *a, uint32_t signal, struct err *e)
{
    if (a->state != AGENT_RUNNING)
        return err_set(e, ERR_FAILED_PRECONDITION, "the agent program does not run");
    return guest_link_signal(a->sandbox->link, a->number, signal, false, e);
}

void
agent_close(struct agent *a)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "it is not needed any more");
    a->events = NULL;
    kill_it(a, &e);
}

// ---- what the guest reports

static struct agent *
find(const struct sandbox *s, uint32_t number)
{
    for (struct list *it = s->agents.next; it != &s->agents; it = it->next) {
        struct agent *a = list_entry(it, struct agent, of_sandbox);
        if (a->number == number)
            return a;
    }
    return NULL;
}

// Before its cgroup is removed, because its events may arrive after its end.
static void
note_cgroup(struct agent *a)
{
    struct sandbox *s = a->sandbox;
    const uint64_t id = a->ours && !a->known ? cgstat_cgroup_id(&s->dirs, a->number) : 0;
    if (id == 0)
        return;
    a->known = true;
    s->ours[s->ours_n++ % SANDBOX_OURS] = id;
}

bool
agents_are_ours(struct sandbox *s, uint64_t cgroup)
{
    for (struct list *it = s->agents.next; it != &s->agents; it = it->next)
        note_cgroup(list_entry(it, struct agent, of_sandbox));
    for (size_t i = 0; i < SANDBOX_OURS; i++)
        if (cgroup != 0 && s->ours[i] == cgroup)
            return true;
    return false;
}

bool
agents_started(struct sandbox *s, uint32_t number, uint32_t pid)
{
    struct agent *a = find(s, number);
    if (a == NULL || a->state == AGENT_RUNNING || a->state == AGENT_FORKING)
        return false;
    a->pid = pid;
    if (a->state == AGENT_ENDING) { // the kill may have come before its cgroup existed
        sandbox_kill_job(s, number);
        return true;
    }
    a->state = AGENT_RUNNING;
    a->ran = true;
    loop_timer_stop(&a->timeout);
    if (a->events != NULL && a->events->started != NULL)
        a->events->started(a->cookie);
    return true;
}

bool
agents_failed(struct sandbox *s, uint32_t number, int sys, const char *text)
{
    struct agent *a = find(s, number);
    struct err e;
    if (a == NULL || a->state == AGENT_RUNNING || a->state == AGENT_FORKING)
        return false;
    (void)err_set(&e, ERR_UNAVAILABLE, "start an agent program: %s", text);
    if (sys == 0) // else the kernel failed
        note_unfit(a, &e);
    finish(a, a->why.code != ERR_OK ? &a->why : &e);
    swap_agent_ended(s);
    return true;
}

static uint64_t
oom_kills_of_sandbox(const struct agent *a)
{
    struct cgstat stat;
    cgstat_read(&a->sandbox->dirs, 0, &stat);
    return stat.v[STAT_OOM_KILLS] - a->oom_kills;
}

// Since it began, in its own cgroup (v2), or in the sandbox's (v1).
static uint64_t
oom_kills(const struct agent *a)
{
    struct cgstat stat;
    cgstat_read(&a->sandbox->dirs, a->number, &stat);
    return cgstat_known(&stat, STAT_OOM_KILLS) ? stat.v[STAT_OOM_KILLS] : oom_kills_of_sandbox(a);
}

static void
out_of_memory(struct err *e)
{
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox ran out of memory");
    err_detail(e, "LIMIT_MEMORY", "memory_bytes", "raise the limit, or end some of its processes");
}

bool
agent_out_of_memory(struct agent *a, struct err *e)
{
    const uint64_t kills = oom_kills(a);
    const bool more = kills > a->oom_reported;
    a->oom_reported = kills;
    if (more)
        out_of_memory(e);
    return more;
}

static void
explain(const struct agent *a, int status, struct err *e)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_kills(a) > 0) {
        out_of_memory(e);
    } else if (WIFSIGNALED(status)) {
        (void)err_set(e, ERR_UNAVAILABLE, "the agent program was killed by signal %d",
                      WTERMSIG(status));
    } else {
        (void)err_set(e, ERR_UNAVAILABLE, "the agent program ended with exit code %d",
                      WEXITSTATUS(status));
    }
}

bool
agents_exited(struct sandbox *s, uint32_t number, uint32_t status)
{
    struct agent *a = find(s, number);
    struct err e;
    struct err ignored;
    if (a == NULL || a->state == AGENT_STARTING || a->state == AGENT_FORKING)
        return false;
    packet_link_rest(&a->link,
                     REST_MAX); // its last packets, which the guest's report has overtaken
    a = find(s, number);
    if (a == NULL) // closed by one of them
        return true;
    explain(a, (int)status, &e);
    note_unfit(a, &e);
    note_cgroup(a);
    if (s->link != NULL && guest_link_remove(s->link, number, &ignored) < 0)
        log_err_about(LOG_WARNING, "remove-job", &(struct log_about){.sandbox = s->id.id},
                      &ignored);
    finish(a, a->why.code != ERR_OK ? &a->why : &e);
    swap_agent_ended(s);
    return true;
}

// The kernel kills the guest for lack of memory when nothing else of the sandbox can be killed (ops.h).
static void
gone(struct agent *a, const struct err *why)
{
    struct err e = sandbox_gone_err(why);
    if (why->code != ERR_CANCELLED && oom_kills_of_sandbox(a) > a->oom_reported)
        out_of_memory(&e);
    finish(a, &e);
}

void
agents_gone(struct sandbox *s, const struct err *why)
{
    const struct err e = *why;
    while (!list_empty(&s->agents))
        gone(list_entry(s->agents.next, struct agent, of_sandbox), &e);
}

static struct agent *
first_living(const struct sandbox *s, uint32_t but)
{
    for (struct list *it = s->agents.next; it != &s->agents; it = it->next) {
        struct agent *a = list_entry(it, struct agent, of_sandbox);
        if (a->state != AGENT_ENDING && a->number != but)
            return a;
    }
    return NULL;
}

bool
agents_live(const struct sandbox *s)
{
    return first_living(s, 0) != NULL;
}

// Begins again after each one, because its owner may close any other.
void
agents_end(struct sandbox *s, uint32_t but, const struct err *why)
{
    struct agent *a;
    while ((a = first_living(s, but)) != NULL)
        kill_it(a, why);
}
