// SPDX-License-Identifier: Apache-2.0
// See jobs.h.
//
//   free --Start--> running --main process reaped--> ended --Remove--> (removing --rmdir works-->) free
//
// Each job has a cgroup of its own, in which its first process is created. When that process ends, the remaining
// processes of the cgroup are killed before the end is reported to the broker. Orphans of all jobs become children of
// this process, pid 1, which reaps them.
//
// The first job's cgroup is made before the broker requests the job. If the sandbox is idle for a while, the broker
// has the cgroup removed. One thread serves the requests in their order, so a Start finds the cgroup complete or
// makes it.
#include "jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/spawner/clone_here.h"
#include "server/spawner/ops.h"
#include "cgroup.h"
#include "child.h"

enum { REAP_AT_ONCE = 256, TIDY_MS = 5, SIGNALS_MAX = 64, STDIO_N = 3 };

enum job_state { JOB_FREE, JOB_RUNNING, JOB_ENDED, JOB_REMOVING };

struct job {
    uint32_t number;
    enum job_state state;
    pid_t pid;
    int pidfd;
    int cgroup;
};

struct job guest_jobs[GUEST_JOBS_MAX] GUEST_LAST;
static int broker = -1;
static struct sock_filter *filter_code;
static unsigned short filter_code_n;
static bool user_root;
static struct guest_report report; // written by the child that is being started

void
guest_jobs_init(int socket, int cgroup_fd, struct sock_filter *filter, unsigned short filter_n,
                bool of_root)
{
    broker = socket;
    guest_cgroup_init(cgroup_fd);
    filter_code = filter;
    filter_code_n = filter_n;
    user_root = of_root;
}

static struct job *
find(uint32_t number)
{
    for (int i = 0; i < GUEST_JOBS_MAX; i++)
        if (guest_jobs[i].state != JOB_FREE && guest_jobs[i].number == number)
            return &guest_jobs[i];
    return NULL;
}

static struct job *
find_free(void)
{
    for (int i = 0; i < GUEST_JOBS_MAX; i++)
        if (guest_jobs[i].state == JOB_FREE)
            return &guest_jobs[i];
    return NULL;
}

static int
check_strings(const char **strings, size_t n, const char *field, size_t *bytes, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        *bytes += strlen(strings[i]) + 1;
        if (*bytes > GUEST_STRING_BYTES_MAX)
            return err_field(e, field, "args and env are longer than %d bytes",
                             GUEST_STRING_BYTES_MAX);
    }
    return 0;
}

static int
expected_fds(const Stockade__Guest__Start *s)
{
    if (s->agent)
        return 1 + s->program + s->script;
    return s->terminal ? 0 : STDIO_N + s->link;
}

int
guest_jobs_check(const Stockade__Guest__Start *s, int fds_n, struct err *e)
{
    if (s->job == 0)
        return err_field(e, "job", "must be 1 or more");
    if (s->n_args == 0)
        return err_field(e, "args", "must not be empty");
    if (s->n_args + s->n_env > GUEST_STRINGS_MAX)
        return err_field(e, "args", "more than %d strings", GUEST_STRINGS_MAX);
    size_t bytes = 0;
    int rc = check_strings(s->args, s->n_args, "args", &bytes, e);
    if (rc == 0)
        rc = check_strings(s->env, s->n_env, "env", &bytes, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < s->n_env; i++)
        if (s->env[i][0] == '=' || strchr(s->env[i], '=') == NULL)
            return err_field(e, "env", "%.60s: must be NAME=value", s->env[i]);
    if (s->workdir[0] != '/')
        return err_field(e, "workdir", "must be absolute");
    if (s->rows > UINT16_MAX || s->columns > UINT16_MAX)
        return err_field(e, "rows", "a terminal has at most %d", UINT16_MAX);
    if (s->files_max < 3 || s->file_bytes_max == 0 || s->tasks_max == 0)
        return err_field(e, "files_max", "limits must not be zero");
    if (s->agent ? s->terminal : s->program || s->script)
        return err_field(e, "agent", "a job has no program, an agent no terminal");
    if (s->link && (s->agent || s->terminal))
        return err_field(e, "link", "an agent or a terminal has none");
    if (fds_n != expected_fds(s))
        return err_set(e, ERR_INVALID_ARGUMENT, "%d descriptors came with the request", fds_n);
    return 0;
}

static int
send_failed(uint32_t number, int exit_code, struct err *e)
{
    err_sanitize(e); // a truncated name may be invalid UTF-8, which the broker refuses
    Stockade__Guest__Failed failed = STOCKADE__GUEST__FAILED__INIT;
    failed.job = number;
    failed.exit_code = (uint32_t)exit_code;
    failed.sys = e->sys;
    failed.text = e->text;
    Stockade__Guest__Event event = STOCKADE__GUEST__EVENT__INIT;
    event.event_case = STOCKADE__GUEST__EVENT__EVENT_FAILED;
    event.failed = &failed;
    return guest_packet_send(broker, &event, -1);
}

// Opens a pty in this sandbox: *master for the broker, *slave for the job.
static int
open_terminal(const Stockade__Guest__Start *s, int *master, int *slave, struct err *e)
{
    int auto_close m = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlocked = 0;
    if (m < 0 || ioctl(m, TIOCSPTLCK, &unlocked) < 0)
        return err_sys(e, errno, "open a terminal");
    int auto_close t = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    const struct winsize size = {.ws_row = (unsigned short)s->rows,
                                 .ws_col = (unsigned short)s->columns};
    if (t < 0 || ioctl(m, TIOCSWINSZ, &size) < 0)
        return err_sys(e, errno, "open the job's end of a terminal");
    *master = take_fd(&m);
    *slave = take_fd(&t);
    return 0;
}

static int
check_stdio(const struct guest_packet *p, struct err *e)
{
    for (int i = 0; i < p->fds_n; i++) {
        struct stat st;
        mode_t type = i < STDIO_N ? S_IFIFO : S_IFSOCK;
        if (fstat(p->fds[i], &st) < 0 || (st.st_mode & S_IFMT) != type)
            return err_set(e, ERR_INVALID_ARGUMENT, "descriptor %d has another type", i);
    }
    return 0;
}

static int
plan_agent(const Stockade__Guest__Start *s, const struct guest_packet *p, struct guest_plan *plan,
           struct err *e)
{
    for (int i = 0; i < p->fds_n; i++) {
        struct stat st;
        mode_t type = i == 0 ? S_IFSOCK : S_IFREG;
        if (fstat(p->fds[i], &st) < 0 || (st.st_mode & S_IFMT) != type)
            return err_set(e, ERR_INVALID_ARGUMENT, "descriptor %d has another type", i);
    }
    plan->socket = p->fds[0];
    plan->program = s->program ? p->fds[1] : -1;
    plan->script = s->script ? p->fds[1 + s->program] : -1;
    return 0;
}

static int
plan_job(const Stockade__Guest__Start *s, const struct guest_packet *p, struct guest_plan *plan,
         int *master, int *slave, struct err *e)
{
    memcpy(plan->stdio, p->fds, sizeof plan->stdio);
    plan->link = s->link ? p->fds[STDIO_N] : -1;
    int rc = s->terminal ? open_terminal(s, master, slave, e) : check_stdio(p, e);
    plan->terminal = *slave;
    return rc;
}

// Children inherit it (ops.h).
static void
set_oom_score(int score)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d", score);
    (void)!write(GUEST_FD_OOM, text, (size_t)n);
}

// Creates the child in job->cgroup. When it returns, the child has executed the program or failed.
static int
clone_into(struct job *job, const struct guest_plan *plan, struct err *e)
{
    struct clone_args args = {
        .flags = (uint64_t)CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&job->pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (unsigned)job->cgroup,
    };
    report = (struct guest_report){0};
    set_oom_score(OOM_SCORE_JOB);
    long pid = clone_here(&args);
    if (pid == 0)
        guest_child_run(plan, &report);
    set_oom_score(OOM_SCORE_GUEST);
    if (pid < 0)
        return err_sys(e, (int)-pid, "clone into the job's cgroup");
    job->pid = (pid_t)pid;
    if (report.failed == 0)
        return 0;
    (void)waitpid(job->pid, NULL, __WALL);
    (void)close(job->pidfd);
    *e = report.err;
    return err_errno(e);
}

// args and env in the form of execve, with free elements before args for guest_path_exec().
static void
fill_plan(struct guest_plan *plan, const Stockade__Guest__Start *s,
          char *strings[GUEST_STRINGS_MAX + 3])
{
    strings[0] = NULL;
    memcpy(strings + 1, s->args, s->n_args * sizeof *s->args);
    strings[1 + s->n_args] = NULL;
    plan->args = strings + 1;
    plan->env = strings + s->n_args + 2;
    if (s->n_env > 0)
        memcpy(plan->env, s->env, s->n_env * sizeof *s->env);
    plan->env[s->n_env] = NULL;
    plan->workdir = s->workdir;
    plan->files_max = s->files_max;
    plan->file_bytes_max = s->file_bytes_max;
    plan->tasks_max = s->tasks_max;
    plan->network_off = s->network_off;
    plan->cpu_seconds_max = s->cpu_seconds_max;
    plan->filter = filter_code;
    plan->filter_n = filter_code_n;
    plan->user_root = user_root;
}

static int
send_started(const struct job *job, int master)
{
    Stockade__Guest__Started started = STOCKADE__GUEST__STARTED__INIT;
    started.job = job->number;
    started.pid = (uint32_t)job->pid;
    Stockade__Guest__Event event = STOCKADE__GUEST__EVENT__INIT;
    event.event_case = STOCKADE__GUEST__EVENT__EVENT_STARTED;
    event.started = &started;
    return guest_packet_send(broker, &event, master);
}

static int
run_job(struct job *job, const Stockade__Guest__Start *s, struct guest_packet *p, int *master,
        struct err *e)
{
    char *strings[GUEST_STRINGS_MAX + 3];
    struct guest_plan plan = {
        .terminal = -1, .link = -1, .socket = -1, .script = -1, .program = -1};
    int auto_close slave = -1;
    fill_plan(&plan, s, strings);
    int rc = s->agent ? plan_agent(s, p, &plan, e) : plan_job(s, p, &plan, master, &slave, e);
    if (rc < 0)
        return rc;
    int auto_close cgroup = guest_cgroup_take(s->job, e);
    if (cgroup < 0)
        return cgroup;
    job->cgroup = cgroup;
    rc = clone_into(job, &plan, e);
    if (rc < 0) {
        (void)guest_cgroup_remove(s->job);
        return rc;
    }
    job->cgroup = take_fd(&cgroup);
    job->number = s->job;
    job->state = JOB_RUNNING;
    return 0;
}

static int
start(const Stockade__Guest__Start *s, struct guest_packet *p)
{
    struct err e = {0};
    int auto_close master = -1;
    struct job *job = find_free();
    int rc = guest_jobs_check(s, p->fds_n, &e);
    if (rc == 0 && find(s->job) != NULL)
        rc = err_set(&e, ERR_ALREADY_EXISTS, "job %u exists", s->job);
    if (rc == 0 && job == NULL)
        rc = err_set(&e, ERR_RESOURCE_EXHAUSTED, "%d jobs exist", GUEST_JOBS_MAX);
    report.exit_code = 0;
    if (rc == 0)
        rc = run_job(job, s, p, &master, &e);
    return rc < 0 ? send_failed(s->job, report.exit_code, &e) : send_started(job, master);
}

// A process that can become the main process of a job: our child, running, in a process group of its own, and of no job.
static int
check_process(const Stockade__Guest__Adopt *a, struct err *e)
{
    siginfo_t info = {0};
    pid_t pid = (pid_t)a->pid;
    if (a->job == 0)
        return err_field(e, "job", "must be 1 or more");
    if (find(a->job) != NULL)
        return err_set(e, ERR_ALREADY_EXISTS, "job %u exists", a->job);
    if (a->pid < 2 || a->pid > INT32_MAX)
        return err_field(e, "pid", "must be that of a process");
    for (int i = 0; i < GUEST_JOBS_MAX; i++)
        if (guest_jobs[i].state == JOB_RUNNING && guest_jobs[i].pid == pid)
            return err_set(e, ERR_ALREADY_EXISTS, "process %u is job %u", a->pid,
                           guest_jobs[i].number);
    // A child that has ended keeps its pid until guest_jobs_reap().
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %u is no running child", a->pid);
    if (getpgid(pid) != pid)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %u leads no process group", a->pid);
    return 0;
}

static int
take_process(struct job *job, const Stockade__Guest__Adopt *a, struct err *e)
{
    int auto_close cgroup = guest_cgroup_take(a->job, e);
    if (cgroup < 0)
        return cgroup;
    int auto_close pidfd = (int)syscall(SYS_pidfd_open, (pid_t)a->pid, 0);
    int rc = pidfd < 0 ? err_sys(e, errno, "open process %u", a->pid)
                       : guest_cgroup_enter(cgroup, (pid_t)a->pid, e);
    if (rc < 0) {
        (void)guest_cgroup_remove(a->job);
        return rc;
    }
    *job = (struct job){.number = a->job,
                        .state = JOB_RUNNING,
                        .pid = (pid_t)a->pid,
                        .pidfd = take_fd(&pidfd),
                        .cgroup = take_fd(&cgroup)};
    return 0;
}

static int
adopt(const Stockade__Guest__Adopt *a)
{
    struct err e = {0};
    struct job *job = find_free();
    int rc = job == NULL ? err_set(&e, ERR_RESOURCE_EXHAUSTED, "%d jobs exist", GUEST_JOBS_MAX)
                         : check_process(a, &e);
    if (rc == 0)
        rc = take_process(job, a, &e);
    return rc < 0 ? send_failed(a->job, 0, &e) : send_started(job, -1);
}

static void
send_signal(const Stockade__Guest__Signal *s)
{
    struct job *job = find(s->job);
    // Until the main process is reaped, its pid, which is also its process group, cannot be reused.
    if (job == NULL || job->state != JOB_RUNNING || s->signal == 0 || s->signal > SIGNALS_MAX)
        return;
    if (s->group)
        (void)kill(-job->pid, (int)s->signal);
    else
        (void)syscall(SYS_pidfd_send_signal, job->pidfd, (int)s->signal, NULL, 0);
}

static void
remove_cgroup(struct job *job)
{
    if (guest_cgroup_remove(job->number) == -EBUSY) {
        guest_cgroup_kill(job->cgroup);
        job->state = JOB_REMOVING;
        return;
    }
    (void)close(job->cgroup);
    *job = (struct job){.state = JOB_FREE};
}

int
guest_jobs_request(struct guest_packet *p)
{
    const Stockade__Guest__Request *r = p->request;
    struct job *job;
    switch (r->request_case) {
    case STOCKADE__GUEST__REQUEST__REQUEST_START:
        return start(r->start, p);
    case STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL:
        send_signal(r->signal);
        return 0;
    case STOCKADE__GUEST__REQUEST__REQUEST_KILL:
        job = find(r->kill->job);
        if (job != NULL)
            guest_cgroup_kill(job->cgroup);
        return 0;
    case STOCKADE__GUEST__REQUEST__REQUEST_REMOVE:
        job = find(r->remove->job);
        if (job != NULL && job->state == JOB_ENDED)
            remove_cgroup(job);
        else if (r->remove->job == GUEST_FIRST_JOB)
            guest_cgroup_unprepare();
        return 0;
    case STOCKADE__GUEST__REQUEST__REQUEST_ADOPT:
        return adopt(r->adopt);
    case STOCKADE__GUEST__REQUEST__REQUEST__NOT_SET:
    case _STOCKADE__GUEST__REQUEST__REQUEST__CASE_IS_INT_SIZE:
    default:
        return -EPROTO;
    }
}

static uint64_t
microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

static int
end_job(struct job *job, int status, const struct rusage *u)
{
    guest_cgroup_kill(job->cgroup);
    (void)close(job->pidfd);
    job->pidfd = -1;
    job->state = JOB_ENDED;
    Stockade__Guest__Exited exited = STOCKADE__GUEST__EXITED__INIT;
    exited.job = job->number;
    exited.status = (uint32_t)status;
    exited.user_us = microseconds(u->ru_utime);
    exited.system_us = microseconds(u->ru_stime);
    exited.faults_minor = (uint64_t)u->ru_minflt;
    exited.faults_major = (uint64_t)u->ru_majflt;
    exited.in_blocks = (uint64_t)u->ru_inblock;
    exited.out_blocks = (uint64_t)u->ru_oublock;
    exited.switches_voluntary = (uint64_t)u->ru_nvcsw;
    exited.switches_involuntary = (uint64_t)u->ru_nivcsw;
    exited.maxrss_bytes = (uint64_t)u->ru_maxrss * 1024;
    Stockade__Guest__Event event = STOCKADE__GUEST__EVENT__INIT;
    event.event_case = STOCKADE__GUEST__EVENT__EVENT_EXITED;
    event.exited = &exited;
    return guest_packet_send(broker, &event, -1);
}

int
guest_jobs_reap(bool *more)
{
    for (int i = 0; i < REAP_AT_ONCE; i++) {
        int status;
        struct rusage usage;
        pid_t pid = wait4(-1, &status, WNOHANG | __WALL, &usage);
        if (pid <= 0) {
            *more = false;
            return 0;
        }
        for (int k = 0; k < GUEST_JOBS_MAX; k++)
            if (guest_jobs[k].state == JOB_RUNNING && guest_jobs[k].pid == pid) {
                int rc = end_job(&guest_jobs[k], status, &usage);
                if (rc < 0)
                    return rc;
            }
    }
    *more = true;
    return 0;
}

int
guest_jobs_tidy(void)
{
    int again = -1;
    for (int i = 0; i < GUEST_JOBS_MAX; i++)
        if (guest_jobs[i].state == JOB_REMOVING) {
            remove_cgroup(&guest_jobs[i]);
            if (guest_jobs[i].state == JOB_REMOVING)
                again = TIDY_MS;
        }
    return again;
}
