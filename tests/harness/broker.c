// SPDX-License-Identifier: Apache-2.0
// See broker.h.
#include "tests/harness/broker.h"
#include "tests/harness/folder.h"
#include "tests/harness/skip.h"

static const char broker_yaml[] = "socket: {mode: 0666}\n"
                                  "pool: 2\n"
                                  "keep_finished: 3s\n"
                                  "drain: 1s\n"
                                  "quotas: {jobs_per_sandbox: 3, sandboxes_per_caller: 6}\n"
                                  "templates:\n"
                                  "  - name: default\n"
                                  "  - name: small\n"
                                  "    pool: 0\n"
                                  "    env: {FROM: template, KEPT: 'yes'}\n"
                                  "    limits_max: {memory: 64M}\n"
                                  "    network: {mode: none}\n";

struct test_broker broker;

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

int
start_broker(void **state)
{
    (void)state;
    char config[128];
    const char *build = getenv("STOCKADE_BUILD");
    if (geteuid() != 0 || build == NULL)
        skip_program("needs root and STOCKADE_BUILD");
    (void)snprintf(broker.folder, sizeof broker.folder, "%s/stockade-priv-XXXXXX", test_folder());
    assert_non_null(mkdtemp(broker.folder));
    assert_int_equal(chmod(broker.folder, 0755), 0);
    (void)snprintf(broker.address, sizeof broker.address, "ipc://%s/run/s.sock", broker.folder);
    (void)snprintf(config, sizeof config, "%s/stockaded.yaml", broker.folder);
    write_file(config, broker_yaml);
    broker.pid = fork();
    if (broker.pid == 0)
        exec_broker(build);
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    o.address = broker.address;
    assert_int_equal(stockade_open(&broker.s, &o, NULL), 0);
    const struct stockade_info *info = NULL;
    wait_until("the broker answers", stockade_info(broker.s, &info, NULL) == 0);
    stockade_free(info);
    return 0;
}

int
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

struct stockade_handlers
handlers(struct record *r)
{
    *r = (struct record){.stop_at_start = r->stop_at_start};
    return (struct stockade_handlers){on_started, on_output, on_gap, r};
}

const char *
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

const struct stockade_result *
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

void
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

static bool
is_gone(const char *sandbox)
{
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    if (stockade_get(broker.s, sandbox, &sb, &e) == 0)
        stockade_free(sb);
    return e.code == STOCKADE_NOT_FOUND;
}

void
wait_for_removal(const char *sandbox)
{
    wait_until("the sandbox is removed", is_gone(sandbox));
}

void delete (const char *name)
{
    struct stockade_error e = {0};
    if (stockade_delete(broker.s, name, &e) < 0)
        fail_msg("delete: %s", e.text);
    assert_true(stockade_delete(broker.s, name, &e) < 0);
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
}

int
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

void
start_detached(const char *sandbox, const char *script, struct record *rec)
{
    struct stockade_error e = {0};
    if (start(sandbox, script, true, rec, NULL, &e) < 0)
        fail_msg("start %s: %s", script, e.text);
}

void
wait_for_end(const struct record *rec, uint32_t outcome)
{
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    if (stockade_wait(broker.s, rec->id, (unsigned)scaled_ms(20000), &r, &e) < 0)
        fail_msg("wait: %s", e.text);
    if (r->outcome != outcome)
        fail_msg("outcome %u, not %u: %s", r->outcome, outcome, r->reason);
    stockade_free(r);
}
