// Jobs through a real broker, a real spawner and a real guest: what is refused, which limits end a job, what happens to
// its output, and what a job leaves behind.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/stockade.h"

static const char yaml[] = "socket: {mode: 0666}\n"
                           "pool: 2\n"
                           "keep_finished: 1500ms\n"
                           "drain: 1s\n"
                           "quotas: {jobs_per_sandbox: 3, sandboxes_per_caller: 6}\n"
                           "templates:\n"
                           "  - name: default\n"
                           "  - name: small\n"
                           "    pool: 0\n"
                           "    env: {FROM: template, KEPT: 'yes'}\n"
                           "    limits_max: {memory_bytes: 64M}\n";

static struct {
    char folder[64], address[128];
    pid_t pid;
    struct stockade *s;
} broker;

static uint64_t
now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void
sleep_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static void
write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static void
exec_broker(const char *build)
{
    char program[512], config[128], state[128], cgroup[64];
    (void)snprintf(program, sizeof program, "%s/server/stockaded", build);
    (void)snprintf(config, sizeof config, "%s/stockaded.yaml", broker.folder);
    (void)snprintf(state, sizeof state, "%s/state", broker.folder);
    (void)snprintf(cgroup, sizeof cgroup, "/stockade-priv-%d", (int)getppid());
    (void)execl(program, program, "--config", config, "--listen", broker.address, "--state-dir",
                state, "--cgroup", cgroup, (char *)NULL);
    _exit(127);
}

static int
start_broker(void **state)
{
    (void)state;
    char config[128];
    const char *build = getenv("STOCKADE_BUILD");
    if (geteuid() != 0 || build == NULL) {
        (void)printf("skipped: needs root and STOCKADE_BUILD\n");
        exit(77);
    }
    (void)snprintf(broker.folder, sizeof broker.folder, "/tmp/stockade-priv-XXXXXX");
    assert_non_null(mkdtemp(broker.folder));
    assert_int_equal(chmod(broker.folder, 0755), 0);
    (void)snprintf(broker.address, sizeof broker.address, "ipc://%s/run/s.sock", broker.folder);
    (void)snprintf(config, sizeof config, "%s/stockaded.yaml", broker.folder);
    write_file(config, yaml);
    broker.pid = fork();
    if (broker.pid == 0)
        exec_broker(build);
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    o.address = broker.address;
    assert_int_equal(stockade_open(&broker.s, &o, NULL), 0);
    const struct stockade_info *info = NULL;
    for (uint64_t until = now_ms() + 30000; now_ms() < until; sleep_ms(20))
        if (stockade_info(broker.s, &info, NULL) == 0) {
            stockade_free(info);
            return 0;
        }
    return -1;
}

static int
stop_broker(void **state)
{
    (void)state;
    int status = -1;
    char command[128];
    stockade_close(broker.s);
    (void)kill(broker.pid, SIGTERM);
    (void)waitpid(broker.pid, &status, 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", broker.folder);
    (void)!system(command); // NOLINT(cert-env33-c): our own folder
    return status;
}

// What came out of a job.
struct record {
    size_t text_n;
    uint64_t bytes, gap_bytes, chunks;
    unsigned gaps, limit_gaps;
    char id[33], sandbox[33];
    bool stop_at_start; // gives the call up once it runs
    char text[4096];
};

static int
on_started(void *cookie, const char *id, const char *sandbox, uint32_t pid)
{
    struct record *r = cookie;
    (void)snprintf(r->id, sizeof r->id, "%s", id);
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", sandbox);
    assert_true(pid > 1);
    return r->stop_at_start ? 1 : 0;
}

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct record *r = cookie;
    assert_true(stream == STOCKADE_STDOUT || stream == STOCKADE_STDERR);
    assert_int_equal(offset, r->bytes + r->gap_bytes);
    size_t room = sizeof r->text - 1 - r->text_n;
    size_t part = n < room ? n : room;
    memcpy(r->text + r->text_n, bytes, part);
    r->text_n += part;
    r->bytes += n;
    r->chunks++;
    return 0;
}

static int
on_gap(void *cookie, uint64_t offset, uint64_t n, bool limit)
{
    struct record *r = cookie;
    (void)offset;
    if (limit)
        r->limit_gaps++;
    else
        r->gap_bytes += n;
    r->gaps++;
    return 0;
}

static struct stockade_handlers
handlers(struct record *r)
{
    *r = (struct record){.stop_at_start = r->stop_at_start};
    return (struct stockade_handlers){on_started, on_output, on_gap, r};
}

static const char *
shell(struct stockade_command *c, const char *script)
{
    static const char *args[4];
    args[0] = "sh";
    args[1] = "-c";
    args[2] = script;
    args[3] = NULL;
    c->args = args;
    return script;
}

static const struct stockade_result *
run(const char *script, const struct stockade_limits *limits, struct record *rec)
{
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    struct stockade_handlers h = handlers(rec);
    (void)shell(&o.command, script);
    if (limits != NULL)
        o.limits = *limits;
    if (stockade_run(broker.s, &o, &h, &r, &e) < 0)
        fail_msg("run %s: %s", script, e.text);
    return r;
}

static void
create(const char *name)
{
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    o.name = name;
    if (stockade_create(broker.s, &o, &sb, &e) < 0)
        fail_msg("create: %s", e.text);
    assert_int_equal(sb->state, STOCKADE_STATE_RUNNING);
    stockade_free(sb);
}

static void delete (const char *name)
{
    struct stockade_error e = {0};
    if (stockade_delete(broker.s, name, &e) < 0)
        fail_msg("delete: %s", e.text);
    assert_true(stockade_delete(broker.s, name, &e) < 0);
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
}

static int
start(const char *sandbox, const char *script, bool detach, struct record *rec,
      const struct stockade_result **r, struct stockade_error *e)
{
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_handlers h = handlers(rec);
    o.sandbox = sandbox;
    o.detach = detach;
    o.command.stdin_open = detach;
    (void)shell(&o.command, script);
    return stockade_start(broker.s, &o, &h, r, e);
}

static void
start_detached(const char *sandbox, const char *script, struct record *rec)
{
    struct stockade_error e = {0};
    if (start(sandbox, script, true, rec, NULL, &e) < 0)
        fail_msg("start %s: %s", script, e.text);
}

static void
wait_for_end(const struct record *rec, uint32_t outcome)
{
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    if (stockade_wait(broker.s, rec->id, 20000, &r, &e) < 0)
        fail_msg("wait: %s", e.text);
    if (r->outcome != outcome)
        fail_msg("outcome %u, not %u: %s", r->outcome, outcome, r->reason);
    stockade_free(r);
}

// Refusals.

static void
what_policy_does_not_allow_is_refused_and_says_so(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    (void)shell(&o.command, "true");
    o.network = STOCKADE_NETWORK_OPEN;
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_string_equal(e.reason, "NETWORK_MODE_NOT_ENFORCED");
    o.network = STOCKADE_NETWORK_NONE;
    o.template_name = "absent";
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_string_equal(e.reason, "TEMPLATE_UNKNOWN");
    o.template_name = "small";
    o.limits.memory_bytes = 65 << 20;
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_string_equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
    assert_non_null(strstr(e.text, "67108864"));
}

static void
a_command_above_120_KiB_is_refused(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    static char big[60000];
    memset(big, 'x', sizeof big - 1);
    const struct stockade_pair env[] = {{"A", big}, {"B", big}, {"C", big}};
    (void)shell(&o.command, "true");
    o.command.env = env;
    o.command.env_n = 3;
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    o.command.env_n = 2;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    stockade_free(r);
}

static void
quotas_are_kept_and_named(void **state)
{
    (void)state;
    struct record rec[4] = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("full");
    for (int i = 0; i < 3; i++)
        start_detached("full", "sleep 100", &rec[i]);
    assert_true(start("full", "true", false, &rec[3], &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    char name[8];
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    const struct stockade_sandbox *sb = NULL;
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "q%d", i);
        create(name);
    }
    assert_true(stockade_create(broker.s, &o, &sb, &e) < 0);
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    o.name = "q1";
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "q%d", i);
        delete (name);
    }
    delete ("full");
    for (int i = 0; i < 3; i++)
        wait_for_end(&rec[i], STOCKADE_OUTCOME_CANCELLED);
}

static void
a_name_is_given_once(void **state)
{
    (void)state;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    create("once");
    o.name = "once";
    assert_true(stockade_create(broker.s, &o, &sb, &e) < 0);
    assert_int_equal(e.code, STOCKADE_ALREADY_EXISTS);
    delete ("once");
    create("once");
    delete ("once");
}

static void
somebody_elses_sandbox_is_as_absent_as_none(void **state)
{
    (void)state;
    create("mine");
    pid_t child = fork();
    if (child == 0) {
        struct stockade_options o = STOCKADE_OPTIONS_INIT;
        struct stockade *s = NULL;
        struct stockade_error mine = {0}, none = {0};
        const struct stockade_sandbox *sb = NULL;
        o.address = broker.address;
        bool ok = setgid(54321) == 0 && setuid(54321) == 0 && stockade_open(&s, &o, NULL) == 0;
        ok = ok && stockade_get(s, "mine", &sb, &mine) < 0 &&
             stockade_get(s, "none", &sb, &none) < 0;
        ok = ok && mine.code == STOCKADE_NOT_FOUND && none.code == STOCKADE_NOT_FOUND;
        ok = ok && strcmp(mine.reason, none.reason) == 0 && strlen(mine.text) == strlen(none.text);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    delete ("mine");
}

static void
input_is_refused_beyond_its_queue_and_after_its_end(void **state)
{
    (void)state;
    static char bytes[65536];
    struct record rec = {0};
    struct stockade_error e = {0};
    create("in");
    start_detached("in", "sleep 0.5; wc -c", &rec);
    uint64_t taken = 0;
    while (stockade_input(broker.s, rec.id, bytes, sizeof bytes, &e) == 0)
        taken += sizeof bytes;
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    assert_true(taken >= 256 * 1024 && taken <= 512 * 1024);
    assert_true(stockade_resize(broker.s, rec.id, 10, 10, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(stockade_close_input(broker.s, rec.id, &e), 0);
    assert_true(stockade_input(broker.s, rec.id, bytes, 1, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    char id[33];
    memcpy(id, rec.id, sizeof id);
    struct stockade_processes const *ps = NULL;
    assert_int_equal(stockade_processes(broker.s, "in", NULL, &ps, &e), 0);
    assert_int_equal(ps->n, 1);
    assert_int_equal(stockade_attach(broker.s, ps->items[0].id, 0, &h, &r, &e), 0);
    assert_int_equal(strtoull(rec.text, NULL, 10), taken); // what was taken arrived, all of it
    stockade_free(r);
    stockade_free(ps);
    delete ("in");
}

static void
a_paused_sandbox_takes_no_job_and_its_clock_stands_still(void **state)
{
    (void)state;
    struct record rec = {0}, other = {0};
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    const struct stockade_result *r = NULL;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_handlers h = handlers(&rec);
    create("still");
    o.sandbox = "still";
    o.detach = true;
    o.limits.wall_ms = 2500;
    (void)shell(&o.command, "sleep 1; echo woke");
    assert_int_equal(stockade_start(broker.s, &o, &h, NULL, &e), 0);
    assert_int_equal(stockade_pause(broker.s, "still", &sb, &e), 0);
    assert_int_equal(sb->state, STOCKADE_STATE_PAUSED);
    stockade_free(sb);
    assert_true(start("still", "true", false, &other, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_true(stockade_pause(broker.s, "still", &sb, &e) < 0);
    sleep_ms(3000);
    assert_int_equal(stockade_resume(broker.s, "still", &sb, &e), 0);
    stockade_free(sb);
    wait_for_end(&rec, STOCKADE_OUTCOME_EXITED);
    delete ("still");
}

// What ends a job.

static void
assert_limit(const struct stockade_result *r, const char *name)
{
    if (r->outcome != STOCKADE_OUTCOME_LIMIT || r->limits_n == 0 ||
        strcmp(r->limits[0].name, name) != 0)
        fail_msg("outcome %u, %s: expected the limit %s", r->outcome, r->reason, name);
}

static void
limits_end_a_job_and_are_named(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits wall = {.wall_ms = 300}, cpu = {.cpu_time_ms = 200};
    struct stockade_limits memory = {.memory_bytes = 32 << 20};
    struct stockade_limits file = {.file_size_bytes = 4096};
    uint64_t from = now_ms();
    const struct stockade_result *r = run("trap '' TERM INT; sleep 60", &wall, &rec);
    assert_limit(r, "wall_ms");
    assert_int_equal(r->limits[0].value, 300);
    assert_true(now_ms() - from < 5000);
    stockade_free(r);
    r = run("while :; do :; done", &cpu, &rec);
    assert_limit(r, "cpu_time_ms");
    assert_true(r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value >= 190000000);
    stockade_free(r);
    r = run("exec tail /dev/zero", &memory, &rec);
    assert_limit(r, "memory_bytes");
    assert_true(r->limits[0].count && r->limits[0].over >= 1);
    stockade_free(r);
    r = run("exec head -c 8192 /dev/zero > /tmp/f", &file, &rec);
    assert_limit(r, "file_size_bytes");
    stockade_free(r);
}

static bool
is_hybrid(void)
{
    const struct stockade_info *info = NULL;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    bool hybrid = strcmp(info->cgroups, "hybrid") == 0;
    stockade_free(info);
    return hybrid;
}

// On v2 the kernel kills the whole job when one process of it runs out of memory (memory.oom.group), since a job with a
// hole in it is worse than none. v1 kills that process alone.
static void
a_limit_that_a_child_met_is_told_whatever_became_of_the_job(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits memory = {.memory_bytes = 32 << 20}, pids = {.pids = 3};
    const struct stockade_result *r = run("tail /dev/zero; echo went on; exit 7", &memory, &rec);
    assert_int_equal(r->outcome, is_hybrid() ? STOCKADE_OUTCOME_EXITED : STOCKADE_OUTCOME_LIMIT);
    assert_int_equal(r->exit_code, is_hybrid() ? 7 : 0);
    assert_int_equal(r->limits_n, 1);
    assert_string_equal(r->limits[0].name, "memory_bytes");
    stockade_free(r);
    r = run("sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait", &pids, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_true(r->limits_n >= 1);
    assert_string_equal(r->limits[0].name, "pids");
    assert_true(r->limits[0].count);
    stockade_free(r);
}

static void
a_program_that_cannot_be_executed_says_126_or_127(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    const char *absent[] = {"no-such-program", NULL}, *folder[] = {"/usr", NULL};
    o.command.args = absent;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_NOT_EXECUTED);
    assert_int_equal(r->exit_code, 127);
    stockade_free(r);
    o.command.args = folder;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_NOT_EXECUTED);
    assert_int_equal(r->exit_code, 126);
    stockade_free(r);
}

static uint32_t
jobs_running(void)
{
    const struct stockade_info *info = NULL;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    uint32_t n = info->processes;
    stockade_free(info);
    return n;
}

static void
a_run_whose_caller_gives_it_up_is_gone_at_once(void **state)
{
    (void)state;
    struct record rec = {.stop_at_start = true};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    struct stockade_handlers h = handlers(&rec);
    (void)shell(&o.command, "sleep 100");
    assert_true(stockade_run(broker.s, &o, &h, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_CANCELLED);
    for (uint64_t until = now_ms() + 3000; jobs_running() > 0 && now_ms() < until; sleep_ms(5))
        continue;
    assert_int_equal(jobs_running(), 0);
    const struct stockade_sandbox *sb = NULL;
    for (uint64_t until = now_ms() + 3000; now_ms() < until; sleep_ms(5)) {
        if (stockade_get(broker.s, rec.sandbox, &sb, &e) < 0)
            break;
        stockade_free(sb);
    }
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
}

static void
what_a_job_leaves_running_does_not_hold_its_answer(void **state)
{
    (void)state;
    struct record rec = {0};
    uint64_t from = now_ms();
    const struct stockade_result *r = run("sleep 100 & setsid sleep 100 & echo gone", NULL, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_string_equal(rec.text, "gone\n");
    assert_true(now_ms() - from < 5000);
    stockade_free(r);
}

// The first process of a sandbox's guest, as the host sees it; 0: there is none.
static pid_t
guest_of(const char *sandbox)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < 2; i++) {
        char path[256];
        int pid = 0;
        (void)snprintf(path, sizeof path, "%s/stockade-priv-%d/%s/guest/cgroup.procs", roots[i],
                       (int)getpid(), sandbox);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        if (fscanf(f, "%d", &pid) != 1) // NOLINT(cert-err34-c): the kernel writes it
            pid = 0;
        (void)fclose(f);
        return pid;
    }
    return 0;
}

static void
a_guest_that_dies_fails_its_jobs_and_takes_the_sandbox_along(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    create("dead");
    start_detached("dead", "sleep 100", &rec);
    pid_t guest = guest_of(rec.sandbox);
    assert_true(guest > 1);
    assert_int_equal(kill(guest, SIGKILL), 0);
    wait_for_end(&rec, STOCKADE_OUTCOME_FAILED);
    for (uint64_t until = now_ms() + 3000; now_ms() < until; sleep_ms(5)) {
        if (stockade_get(broker.s, rec.sandbox, &sb, &e) < 0)
            break;
        stockade_free(sb);
    }
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
    assert_int_equal(guest_of(rec.sandbox), 0);
}

// Output.

static void
output_beyond_the_limit_is_counted_and_marked_once(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits l = {.output_bytes = 1000};
    const struct stockade_result *r =
        run("head -c 900 /dev/zero; head -c 100000 /dev/zero >&2; exit 5", &l, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_int_equal(r->exit_code, 5); // it was not killed for it
    assert_int_equal(rec.bytes, 1000);
    assert_int_equal(rec.limit_gaps, 1);
    assert_int_equal(r->bill.output_bytes.value, 100900);
    assert_int_equal(r->bill.output_cut_bytes.value, 99900);
    assert_string_equal(r->limits[0].name, "output_bytes");
    assert_int_equal(r->limits[0].over, 99900);
    stockade_free(r);
}

static void
ten_MiB_arrive_whole_however_slow_the_reader_is(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r = run("head -c 10485760 /dev/zero", NULL, &rec);
    assert_int_equal(rec.bytes, 10485760);
    assert_int_equal(rec.gaps, 0);
    stockade_free(r);
}

static void
a_flood_of_single_bytes_comes_in_few_messages(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r =
        run("dd if=/dev/zero bs=1 count=50000 2>/dev/null", NULL, &rec);
    assert_int_equal(rec.bytes, 50000);
    assert_true(rec.chunks < 5000);
    stockade_free(r);
}

static void
a_job_reads_back_the_megabyte_that_it_was_given(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    char *bytes = malloc(1048576);
    memset(bytes, 'a', 1048576);
    o.command.stdin_bytes = bytes;
    o.command.stdin_n = 1048576;
    (void)shell(&o.command, "cat");
    assert_int_equal(stockade_run(broker.s, &o, &h, &r, &e), 0);
    assert_int_equal(rec.bytes, 1048576);
    assert_int_equal(r->exit_code, 0);
    stockade_free(r);
    free(bytes);
}

static void
a_started_process_outlives_its_caller_and_is_found_again(void **state)
{
    (void)state;
    struct record first = {0}, again = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("keep");
    start_detached("keep", "echo one; sleep 0.3; echo two; exit 3", &first);
    struct stockade_handlers h = handlers(&again);
    assert_int_equal(stockade_attach(broker.s, first.id, 0, &h, &r, &e), 0);
    assert_string_equal(again.text, "one\ntwo\n");
    assert_int_equal(r->exit_code, 3);
    stockade_free(r);
    again = (struct record){.bytes = 4}; // it is over, and can be attached to still, from an offset
    h.cookie = &again;
    assert_int_equal(stockade_attach(broker.s, first.id, 4, &h, &r, &e), 0);
    assert_string_equal(again.text, "two\n");
    stockade_free(r);
    assert_true(stockade_attach(broker.s, first.id, 9, &h, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_OUT_OF_RANGE);
    sleep_ms(2000);
    assert_true(stockade_attach(broker.s, first.id, 0, &h, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
    delete ("keep");
}

static void
without_a_reader_the_last_MiB_is_kept_and_the_rest_is_a_gap(void **state)
{
    (void)state;
    struct record first = {0}, rec = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("gap");
    start_detached("gap", "head -c 5000000 /dev/zero", &first);
    wait_for_end(&first, STOCKADE_OUTCOME_EXITED);
    struct stockade_handlers h = handlers(&rec);
    assert_int_equal(stockade_attach(broker.s, first.id, 0, &h, &r, &e), 0);
    assert_int_equal(rec.gaps, 1);
    assert_true(rec.bytes >= 1048576);
    assert_int_equal(rec.bytes + rec.gap_bytes, 5000000);
    stockade_free(r);
    delete ("gap");
}

static void
two_jobs_of_one_sandbox_share_its_files_and_have_bills_of_their_own(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("pair");
    assert_int_equal(start("pair",
                           "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; "
                           "echo kept > f",
                           false, &rec, &r, &e),
                     0);
    uint64_t busy = r->bill.cpu_user_ns.value;
    assert_int_equal(r->bill.cpu_user_ns.scope, STOCKADE_SCOPE_JOB);
    stockade_free(r);
    assert_int_equal(start("pair", "cat f", false, &rec, &r, &e), 0);
    assert_string_equal(rec.text, "kept\n");
    assert_true(r->bill.cpu_user_ns.value < busy);
    stockade_free(r);
    delete ("pair");
}

static void
a_terminal_is_one_stream_and_can_be_resized(void **state)
{
    (void)state;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    create("tty");
    o.sandbox = "tty";
    o.detach = true;
    o.command.stdin_open = true;
    o.command.rows = 11;
    o.command.columns = 22;
    (void)shell(&o.command, "stty size; read x; stty size; echo got $x >&2");
    assert_int_equal(stockade_start(broker.s, &o, &h, NULL, &e), 0);
    char id[33];
    memcpy(id, rec.id, sizeof id);
    sleep_ms(300);
    assert_int_equal(stockade_resize(broker.s, id, 33, 44, &e), 0);
    assert_int_equal(stockade_input(broker.s, id, "word\n", 5, &e), 0);
    h = handlers(&rec);
    assert_int_equal(stockade_attach(broker.s, id, 0, &h, &r, &e), 0);
    assert_non_null(strstr(rec.text, "11 22"));
    assert_non_null(strstr(rec.text, "33 44"));
    assert_non_null(strstr(rec.text, "got word"));
    stockade_free(r);
    delete ("tty");
}

static void
a_templates_environment_stands_below_the_callers(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    const struct stockade_pair env[] = {{"FROM", "caller"}};
    o.template_name = "small"; // without a pool: it waits for a sandbox to be made
    o.command.env = env;
    o.command.env_n = 1;
    (void)shell(&o.command, "echo $FROM $KEPT $HOME $(pwd) $(id -u)");
    assert_int_equal(stockade_run(broker.s, &o, &h, &r, &e), 0);
    assert_string_equal(rec.text, "caller yes /home/agent /home/agent 1000\n");
    stockade_free(r);
}

static void
a_sandbox_ends_with_its_time_to_live(void **state)
{
    (void)state;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    struct record rec = {0};
    o.name = "short";
    o.ttl_ms = 400;
    assert_int_equal(stockade_create(broker.s, &o, &sb, &e), 0);
    assert_true(sb->expires_ms > sb->created_ms);
    stockade_free(sb);
    start_detached("short", "sleep 100", &rec);
    wait_for_end(&rec, STOCKADE_OUTCOME_CANCELLED);
    sleep_ms(500);
    assert_true(stockade_get(broker.s, "short", &sb, &e) < 0);
}

static void
every_figure_of_a_bill_has_a_source_or_says_why_not(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r = run("true", NULL, &rec);
    const struct stockade_figure *f = &r->bill.wall_us;
    size_t unknown = 0;
    for (size_t i = 0; i < 18; i++)
        unknown += f[i].source == STOCKADE_SOURCE_UNKNOWN ? 1 : 0;
    assert_int_equal(unknown, r->bill.unknown_n);
    assert_int_equal(r->bill.cpu_user_ns.scope, STOCKADE_SCOPE_JOB);
    assert_true(r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value > 0);
    assert_true(r->bill.memory_peak_bytes.value > 0);
    assert_true(r->bill.faults_minor.value > 0);
    stockade_free(r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_policy_does_not_allow_is_refused_and_says_so),
        cmocka_unit_test(a_command_above_120_KiB_is_refused),
        cmocka_unit_test(quotas_are_kept_and_named),
        cmocka_unit_test(a_name_is_given_once),
        cmocka_unit_test(somebody_elses_sandbox_is_as_absent_as_none),
        cmocka_unit_test(input_is_refused_beyond_its_queue_and_after_its_end),
        cmocka_unit_test(a_paused_sandbox_takes_no_job_and_its_clock_stands_still),
        cmocka_unit_test(limits_end_a_job_and_are_named),
        cmocka_unit_test(a_limit_that_a_child_met_is_told_whatever_became_of_the_job),
        cmocka_unit_test(a_program_that_cannot_be_executed_says_126_or_127),
        cmocka_unit_test(a_run_whose_caller_gives_it_up_is_gone_at_once),
        cmocka_unit_test(what_a_job_leaves_running_does_not_hold_its_answer),
        cmocka_unit_test(a_guest_that_dies_fails_its_jobs_and_takes_the_sandbox_along),
        cmocka_unit_test(output_beyond_the_limit_is_counted_and_marked_once),
        cmocka_unit_test(ten_MiB_arrive_whole_however_slow_the_reader_is),
        cmocka_unit_test(a_flood_of_single_bytes_comes_in_few_messages),
        cmocka_unit_test(a_job_reads_back_the_megabyte_that_it_was_given),
        cmocka_unit_test(a_started_process_outlives_its_caller_and_is_found_again),
        cmocka_unit_test(without_a_reader_the_last_MiB_is_kept_and_the_rest_is_a_gap),
        cmocka_unit_test(two_jobs_of_one_sandbox_share_its_files_and_have_bills_of_their_own),
        cmocka_unit_test(a_terminal_is_one_stream_and_can_be_resized),
        cmocka_unit_test(a_templates_environment_stands_below_the_callers),
        cmocka_unit_test(a_sandbox_ends_with_its_time_to_live),
        cmocka_unit_test(every_figure_of_a_bill_has_a_source_or_says_why_not),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
