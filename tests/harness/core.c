// SPDX-License-Identifier: Apache-2.0
// See core.h.
#include "tests/harness/core.h"

#include "server/sandbox/spawn.h"

static struct broker b; // its configuration only
static int bpf_fds[BPF_FDS];
uv_loop_t loop;
static const struct quotas quotas = {.usual = {[QUOTA_SANDBOXES] = 8, [QUOTA_JOBS] = 8}};
static struct tenants tenants = {.quotas = &quotas};
struct server srv = {.loop = &loop, .tenants = &tenants};
static struct sandbox_settings settings = {
    .templates_n = 1,
    .quotas = {.sandboxes = 8, .jobs_per_sandbox = 8, .queue = 8},
};
struct sandbox *box;
char text[TEXT_MAX];

// ---- the core

static void
on_gone(void *cookie)
{
    (void)cookie;
}

void
on_done(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    struct wait *w = cookie;
    w->called++;
    w->reply = *r;
    memcpy(w->fds, fds, sizeof w->fds);
}

int
start_core(void **state)
{
    (void)state;
    struct err e;
    char binary[300];
    const char *build = getenv("STOCKADE_BUILD");
    if (geteuid() != 0) {
        (void)puts("skipped: needs root");
        exit(77);
    }
    (void)snprintf(binary, sizeof binary, "%.200s/server/stockade-spawner", build ? build : ".");
    broker_config(&b, "-swap");
    b.config.netns_pool = 0; // it is filled at any time, and the descriptors are counted here
    if (spawn_start(binary, &b.config, &b.features, bpf_fds, &srv.spawn, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(spawn_attach(srv.spawn, &loop, on_gone, NULL, &e), 0);
    struct wait w = {.called = 0};
    broker_write_config(&b, "templates: [{name: default, paths: [/opt]}]\n");
    assert_int_equal(spawn_read(srv.spawn, on_done, &w, &e), 0);
    until(w.called > 0);
    if (reader_root(w.fds[0], &e) != 0)
        fail_msg("%s", e.text);
    limits_usual(&settings.template[0].limits);
    settings.template[0].limits.v[LIMIT_MEMORY_BYTES] = 64 << 20;
    settings.template[0].limits.v[LIMIT_DISK_BYTES] = 8 << 20;
    settings.template[0].limits.v[LIMIT_INODES] = 400;
    settings.template[0].limits.v[LIMIT_PIDS] = 20;
    srv.sandboxes = sandboxes_new(&srv, &settings);
    srv.jobs = jobs_new(&srv);
    return 0;
}

static bool none_left;

static void
on_none_left(void *cookie)
{
    (void)cookie;
    none_left = true;
}

int
stop_core(void **state)
{
    (void)state;
    sandboxes_destroy_all(srv.sandboxes, on_none_left, NULL);
    until(none_left);
    jobs_free(srv.jobs);
    sandboxes_free(srv.sandboxes);
    (void)tenants_forget(&tenants);
    bool clean = spawn_close(srv.spawn, BROKER_WAIT_MS);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    remove_state(&b);
    return clean ? 0 : -1;
}

const struct broker *
core_broker(void)
{
    return &b;
}

// ---- one sandbox

static void
on_created(void *cookie, struct sandbox *s, const struct err *e)
{
    (void)cookie;
    if (s == NULL)
        fail_msg("%s", e->text);
    box = s;
}

static void
on_lost(void *cookie, struct sandbox *s)
{
    (void)cookie;
    (void)s;
}

static const struct sandbox_maker maker = {.created = on_created, .lost = on_lost};

int
make_ready(void **state)
{
    (void)state;
    struct err e;
    box = NULL;
    assert_int_equal(sandbox_create(srv.sandboxes, &settings.template[0],
                                    &settings.template[0].limits, &maker, NULL, &e),
                     0);
    until(box != NULL);
    return 0;
}

int
make_box(void **state)
{
    struct err e;
    struct tenant *t = NULL;
    struct sandbox_spec spec = {.template = &settings.template[0],
                                .limits = settings.template[0].limits};
    (void)make_ready(state);
    assert_int_equal(sandbox_reserve(srv.sandboxes, "uid:1", &spec.limits, &t, &e), 0);
    sandbox_take(box, t, &spec);
    return 0;
}

int
remove_box(void **state)
{
    (void)state;
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "the test is over");
    if (box != NULL)
        sandbox_destroy(box, &e, NULL);
    box = NULL;
    until(sandboxes_count(srv.sandboxes) == 0);
    return 0;
}

// ---- jobs

void
on_wake(void *cookie)
{
    struct reader *r = cookie;
    for (;;) {
        struct job_event ev = job_next(&r->follower);
        if (ev.kind == JOB_NOTHING)
            return;
        if (ev.kind == JOB_OUTPUT && ev.chunk.kind == OUTPUT_DATA) {
            assert_true(r->n + ev.chunk.n < sizeof text);
            memcpy(text + r->n, ev.chunk.data, ev.chunk.n);
            r->n += ev.chunk.n;
            text[r->n] = '\0';
        }
        if (ev.kind == JOB_ENDED) {
            struct job_view v;
            job_view(r->follower.job, &v);
            r->exit_code = v.result->outcome == OUTCOME_EXITED ? v.result->exit_code : 1000;
            r->ended = true;
            job_unfollow(&r->follower);
            return;
        }
        job_taken(&r->follower, &ev);
    }
}

int
begin(const char *script, struct job **out, struct err *e)
{
    const char *const args[] = {"sh", "-c", script};
    static const char *const env[] = {"PATH=/usr/bin:/bin", "HOME=/home/agent"};
    const struct job_spec spec = {.args = args,
                                  .args_n = 3,
                                  .env = env,
                                  .env_n = 2,
                                  .workdir = "/home/agent",
                                  .limits = box->spec.limits};
    return job_start(box, &spec, out, e);
}

uint32_t
sh(const char *script)
{
    struct err e;
    struct job *j = NULL;
    struct reader r = {.follower = {.wake = on_wake, .cookie = &r}};
    text[0] = '\0';
    if (begin(script, &j, &e) < 0)
        fail_msg("%s", e.text);
    job_follow(j, &r.follower, 0, true);
    on_wake(&r);
    until(r.ended);
    until(box->jobs_n == 0);
    return r.exit_code;
}

void
assert_sh(const char *script, const char *expected)
{
    uint32_t code = sh(script);
    if (code != 0 || strcmp(text, expected) != 0)
        fail_msg("%s: exit code %u, \"%s\" instead of \"%s\"", script, code, text, expected);
}
