// SPDX-License-Identifier: Apache-2.0
// See reload.h.
//
//   IDLE --SPAWN_READ--> ASKED --the reader's socket--> REPORT --parse, plan, order--> ANSWERS --apply--> IDLE
//     ^                    |                              |                              |
//     +--------------------+---- a failure: roots that were made are given up -----------+
//
// The configuration does not change before the last root has been made.
#include "reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/wire.h"
#include "server/base/notify.h"
#include "options.h"
#include "server/access/access.h"
#include "server/access/issuers.h"
#include "server/anomaly/anomaly.h"
#include "server/audit/audit.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/config/change.h"
#include "server/config/reloader.h"
#include "server/reader/read.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/spawn.h"

enum {
    LATE_MS = (READ_SECONDS + 30) * 1000, // longer than the reader's own alarm
    CHANGES_TEXT = 2048 + TEMPLATES_MAX * 72,
};

enum reload_state { IDLE, ASKED, REPORT, ANSWERS };

// A call that waits for a reading. In a list until it gets its answer.
struct waiter {
    struct list node;
    bool check;               // it wants nothing to be changed
    bool served;              // by the reading in progress
    config_reloaded_fn *done; // NULL: it was cancelled
    void *cookie;
};

enum { WAITERS_MAX = 64 };

struct reload {
    struct server *srv;
    struct config *now;
    struct spawn_features *features;
    int argc;
    char **argv;
    enum reload_state state;
    bool first; // the reading at the start
    bool again; // a reading was requested that is to be applied
    bool check; // this one changes nothing
    struct config_reloaded what;
    struct config_reloader reloader;
    struct list waiters;
    uint32_t waiters_n;
    int fd; // the reader's socket
    struct loop_poll *poll;
    struct loop_timer *late;
    struct loop_timer *soon; // a call asked: begin
    struct config *next;
    struct config_change change;
    char file[SPAWN_PATH_MAX];
    uint32_t root[READ_TEMPLATES_MAX];
    uint32_t made;              // bits: roots that have been made
    uint8_t digest[AUDIT_HASH]; // of the file's bytes
    struct err why;
};

static void begin(struct reload *r);

// ---- end

static void
on_unrooted(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    (void)cookie;
    spawn_close_fds(fds);
    if (reply->ok == 0)
        log_err(LOG_WARNING, "root", &reply->err);
}

static void
give_up_root(const struct reload *r, uint32_t root)
{
    struct err e;
    if (spawn_unroot(r->srv->spawn, root, on_unrooted, NULL, &e) < 0)
        log_err(LOG_WARNING, "root", &e);
}

static bool
is_waited_for(const struct reload *r, bool check)
{
    list_each(it, &r->waiters) if (list_entry(it, struct waiter, node)->check == check) return true;
    return false;
}

// The calls that waited for this reading.
static void
answer_waiters(struct reload *r)
{
    list_each(it, &r->waiters)
    {
        struct waiter *w = list_entry(it, struct waiter, node);
        if (!w->served)
            continue;
        list_remove(&w->node);
        r->waiters_n--;
        if (w->done != NULL)
            w->done(w->cookie, &r->what, r->why.code != ERR_OK ? &r->why : NULL);
        free(w);
    }
}

static void
finish(struct reload *r)
{
    const bool checked = r->check;
    loop_timer_stop(&r->late);
    loop_poll_stop(&r->poll);
    config_free(r->next);
    r->next = NULL;
    if (r->fd >= 0)
        (void)close(take_fd(&r->fd));
    r->state = IDLE;
    answer_waiters(r);
    if (r->again || r->waiters_n > 0)
        begin(r);
    else if (!r->first && !checked)
        notify_systemd("READY=1");
}

// Each reading goes into the audit log, the first one as well.
static void
audit_change(const struct reload *r, const char *kind, const char *text)
{
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditChange c = STOCKADE__V1__AUDIT_CHANGE__INIT;
    uint8_t digest[AUDIT_HASH];
    memcpy(digest, r->digest, sizeof digest);
    c.kind = kind;
    c.name = r->file;
    c.text = text;
    c.digest = (ProtobufCBinaryData){sizeof digest, digest};
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHANGE;
    m.change = &c;
    audit_write(r->srv->audit, &m, true);
}

static void
fail(struct reload *r, const struct err *why)
{
    r->why = *why;
    for (uint32_t i = 0; i < READ_TEMPLATES_MAX; i++)
        if ((r->made >> i & 1) != 0)
            give_up_root(r, r->root[i]);
    if (!r->first && !r->check) {
        (void)err_wrap(&r->why, "the old configuration stays");
        log_err(LOG_ERROR, "reload-refused", &r->why);
        audit_change(r, "configuration-refused", r->why.text);
        metrics_add(METRIC_RELOADS_REFUSED, 1);
    }
    finish(r);
}

// ---- applying the configuration

// A template that cannot be used is a missing feature, not a failed start.
static void
log_disabled(struct reload *r)
{
    static const char prefix[] = "template ";
    struct spawn_features *f = r->features;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (strncmp(f->feature[i].name, prefix, sizeof prefix - 1) != 0)
            f->feature[kept++] = f->feature[i];
    f->n = kept;
    for (uint32_t i = 0; i < r->now->sandbox.templates_n; i++) {
        const struct template *t = &r->now->sandbox.template[i];
        if (t->removed || t->disabled[0] == '\0' || f->n >= SPAWN_FEATURES_MAX)
            continue;
        struct spawn_feature *row = &f->feature[f->n++];
        *row = (struct spawn_feature){.degraded = 1};
        (void)snprintf(row->name, sizeof row->name, "%s%.38s", prefix, t->name);
        (void)snprintf(row->detail, sizeof row->detail, "disabled: %.180s", t->disabled);
        log_event(LOG_WARNING, "feature", "%s: no: %s", row->name, row->detail);
    }
}

// All keys and templates in one line; then a line for each template with its keys.
static void
log_changes(const struct reload *r)
{
    char templates[TEMPLATES_MAX * 72] = "";
    const char *host = r->change.host;
    size_t n = 0;
    for (uint32_t i = 0; i < r->now->sandbox.templates_n; i++)
        if (r->change.what[i][0] != '\0')
            n += (size_t)snprintf(templates + n, sizeof templates - n, "%s%.64s", n > 0 ? ", " : "",
                                  r->now->sandbox.template[i].name);
    bool both = host[0] != '\0' && n > 0;
    char text[CHANGES_TEXT];
    (void)snprintf(text, sizeof text, "%s%s%s%s%s",
                   host[0] != '\0' || n > 0 ? "changed: " : "nothing has changed", host,
                   both ? "; " : "", n > 0 ? "templates " : "", templates);
    log_event(LOG_INFO, "reloaded", "%s: %s",
              r->file[0] != '\0' ? r->file : "no configuration file", text);
    audit_change(r, "configuration", text);
    for (uint32_t i = 0; i < r->now->sandbox.templates_n; i++)
        if (r->change.what[i][0] != '\0')
            log_event(LOG_INFO, "template", "%s: %s", r->now->sandbox.template[i].name,
                      r->change.what[i]);
}

// They are read again each time: renewed files have the names of the old ones.
static void
use_certificates(struct reload *r)
{
    struct err e;
    if (!r->first && rpc_use_certificates(r->srv->rpc, &r->now->tls, &e) < 0)
        log_err(LOG_ERROR, "tls", &e); // they were fine a moment ago
}

static void
apply(struct reload *r)
{
    config_change_apply(r->now, r->next, r->root, &r->change);
    log_disabled(r);
    if (!r->first) {
        metrics_add(METRIC_RELOADS, 1);
        log_changes(r);
    } else {
        audit_change(r, "configuration", "the broker starts");
    }
    use_certificates(r);
    anomaly_reloaded(r->srv->anomaly);
    pool_reloaded(r->srv->pool);
    access_reloaded(r->srv->access);
    for (uint32_t i = 0; i < r->change.given_up_n; i++)
        give_up_root(r, r->change.given_up[i]);
    finish(r);
}

// ---- the reader

static bool
is_used(void *cookie, uint32_t index)
{
    const struct reload *r = cookie;
    return sandboxes_have(r->srv->sandboxes, &r->now->sandbox.template[index]);
}

// The policies and the detection rules that the reader has packed.
static int
read_policies(struct config *c, uint32_t n, int fd, struct err *e)
{
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    const uint32_t bytes_n = n - 1;
    ProtobufCMessage *m = NULL;
    if (n == 0 || fd < 0 || bytes_n > WIRE_FRAME_BYTES_MAX)
        return err_set(e, ERR_INTERNAL, "the reader did not read the policies");
    uint8_t *auto_free bytes = malloc(n);
    if (a == NULL || bytes == NULL)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return err_sys(e, ENOMEM, "read the policies");
    if (pread(fd, bytes, bytes_n, 0) != (ssize_t)bytes_n)
        return err_set(e, ERR_INTERNAL, "the reader did not read the policies");
    int r = wire_unpack(&stockade__v1__policy_files__descriptor, bytes, bytes_n, a, &m, e);
    if (r < 0 || m == NULL)
        return r;
    const Stockade__V1__PolicyFiles *files = (const Stockade__V1__PolicyFiles *)m;
    r = policy_read(files, &c->policy, e);
    return r < 0 ? r : config_read_rules(c, files, e);
}

// The broker parses the bytes itself; only the facts about folders, as root sees them, come from the report.
static int
parse(struct reload *r, const struct read_report *report, const int fds[2], struct err *e)
{
    const int fd = report->file[0] != '\0' ? fds[0] : -1;
    char *auto_free bytes = malloc(CONFIG_FILE_MAX + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "read the configuration");
    ssize_t n = fd >= 0 ? pread(fd, bytes, CONFIG_FILE_MAX + 1, 0) : 0;
    if (n < 0)
        return err_sys(e, errno, "read the configuration");
    audit_hash((const uint8_t *)bytes, (size_t)n, r->digest);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
    int rc = options_parse(r->argc, r->argv, fd >= 0 ? report->file : NULL, bytes, (size_t)n,
                           &r->next, e);
    if (rc < 0)
        return rc;
    bool fits = report->templates_n == r->next->sandbox.templates_n;
    for (uint32_t i = 0; fits && i < report->templates_n; i++) {
        struct template *t = &r->next->sandbox.template[i];
        const struct read_template *seen = &report->template[i];
        fits = memcmp(t->name, seen->name, sizeof t->name) == 0;
        (void)snprintf(t->disabled, sizeof t->disabled, "%.*s", (int)sizeof seen->disabled - 1,
                       seen->disabled);
        t->folders = seen->folders;
    }
    if (!fits)
        return err_set(e, ERR_INTERNAL, "the reader read another file");
    return read_policies(r->next, report->policy_n, fds[fd >= 0], e);
}

static void
note_policy(struct reload *r)
{
    struct policy_view now, next;
    policy_view(r->now->policy, &now);
    policy_view(r->next->policy, &next);
    r->what = (struct config_reloaded){.layers = next.layers,
                                       .rules = next.rules,
                                       .tests = next.tests,
                                       .policy_changed =
                                           memcmp(now.digest, next.digest, sizeof now.digest) != 0};
    memcpy(r->what.digest, next.digest, sizeof r->what.digest);
}

static void
on_report(struct reload *r, struct read_report *report, const int fds[2])
{
    const struct config_users users = {is_used, r};
    struct err e;
    report->file[sizeof report->file - 1] = '\0';
    if (report->err.code != ERR_OK)
        err_sanitize(&report->err);
    memcpy(r->file, report->file, sizeof r->file);
    int rc = report->err.code != ERR_OK ? (e = report->err, -1) : parse(r, report, fds, &e);
    if (rc == 0)
        rc = config_change_plan(r->now, r->next, &users, &r->change, &e);
    if (rc == 0)
        rc = tls_check(&r->next->tls, &e);
    if (rc == 0)
        rc = issuers_check(&r->next->access.issuers, &e);
    const struct read_order order = {r->change.roots, r->first};
    if (rc == 0)
        note_policy(r);
    if (rc == 0 && r->check) {
        finish(r);
        return;
    }
    if (rc == 0 && order.templates == 0) {
        apply(r);
        return;
    }
    if (rc == 0 && send(r->fd, &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        rc = err_sys(&e, errno, "order roots");
    r->state = ANSWERS;
    if (rc < 0)
        fail(r, &e);
}

// The start continues without a template, unless it is the default one.
static bool
goes_on_without(struct reload *r, uint32_t template, const struct err *why)
{
    struct template *t = &r->next->sandbox.template[template];
    if (!r->first || strcmp(t->name, "default") == 0)
        return false;
    (void)snprintf(t->disabled, sizeof t->disabled, "%.255s", why->text);
    r->change.roots &= ~(UINT32_C(1) << template);
    return true;
}

static void
on_answer(struct reload *r, struct read_answer *a)
{
    err_sanitize(&a->err);
    if (a->template >= READ_TEMPLATES_MAX || (r->change.roots >> a->template & 1) == 0 ||
        (r->made >> a->template & 1) != 0) {
        (void)err_set(&a->err, ERR_INTERNAL, "the reader answers what was not asked");
        fail(r, &a->err);
        return;
    }
    if (a->ok == 0 && !goes_on_without(r, a->template, &a->err)) {
        fail(r, &a->err);
        return;
    }
    if (a->ok != 0 && a->err.text[0] != '\0')
        log_event(LOG_WARNING, "template", "%s: %s", r->next->sandbox.template[a->template].name,
                  a->err.text);
    r->root[a->template] = a->root;
    r->made |= a->ok != 0 ? UINT32_C(1) << a->template : 0;
    if (r->made == r->change.roots)
        apply(r);
}

static void
on_packet(void *cookie, int events)
{
    static union {
        struct read_report report;
        struct read_answer answer;
    } packet;
    struct reload *r = cookie;
    size_t size = r->state == REPORT ? sizeof packet.report : sizeof packet.answer;
    int fds[2] = {-1, -1};
    struct fdpass m = {&packet, size, fds, 2};
    struct err e;
    (void)events;
    int got = fdpass_receive(r->fd, &m, MSG_DONTWAIT);
    if (got == -EAGAIN || got == -EINTR)
        return;
    if (got <= 0 || m.n != size) {
        (void)err_set(&e, ERR_INTERNAL, "the reader ended before it was done");
        fail(r, &e);
    } else if (r->state == REPORT) {
        on_report(r, &packet.report, fds);
    } else {
        on_answer(r, &packet.answer);
    }
    fdpass_close(fds, 2);
}

static void
on_late(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the reader of the configuration does not answer");
    fail(cookie, &e);
}

static void
on_started(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct reload *r = cookie;
    struct err e;
    if (reply->ok == 0) {
        fail(r, &reply->err);
        return;
    }
    r->fd = take_fd(&fds[0]);
    r->state = REPORT;
    int rc = r->fd < 0 ? -EMFILE
                       : loop_poll_start(r->srv->loop, &r->poll, r->fd, UV_READABLE, on_packet, r);
    if (rc < 0) {
        (void)err_sys(&e, -rc, "hear the reader of the configuration");
        fail(r, &e);
    }
}

static void
begin(struct reload *r)
{
    struct err e;
    r->made = 0;
    r->why = (struct err){.code = ERR_OK};
    r->state = ASKED;
    r->check = !r->first && !r->again && !is_waited_for(r, false);
    r->again = false;
    list_each(it, &r->waiters)
    {
        struct waiter *w = list_entry(it, struct waiter, node);
        w->served = w->check == r->check;
    }
    if (!r->first && !r->check)
        notify_systemd("RELOADING=1");
    if (loop_timer_start(r->srv->loop, &r->late, LATE_MS, on_late, r) < 0) {
        (void)err_sys(&e, ENOMEM, "read the configuration");
        fail(r, &e);
    } else if (spawn_read(r->srv->spawn, on_started, r, &e) < 0) {
        fail(r, &e);
    }
}

// ---- calls

static void
on_soon(void *cookie)
{
    struct reload *r = cookie;
    loop_timer_stop(&r->soon);
    if (r->state == IDLE)
        begin(r);
}

static void *
ask(void *cookie, bool check, config_reloaded_fn *done, void *done_cookie, struct err *e)
{
    struct reload *r = cookie;
    if (r->srv->draining) {
        (void)err_set(e, ERR_UNAVAILABLE, "the broker is shutting down");
        err_detail(e, "DRAINING", NULL, "");
        return NULL;
    }
    if (r->waiters_n == WAITERS_MAX) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%d calls wait for a reading already",
                      WAITERS_MAX);
        err_detail(e, "RELOADS", NULL, "wait for one of them");
        return NULL;
    }
    struct waiter *w = calloc(1, sizeof *w);
    if (w == NULL || loop_timer_start(r->srv->loop, &r->soon, 0, on_soon, r) < 0) {
        free(w);
        (void)err_sys(e, ENOMEM, "read the configuration");
        return NULL;
    }
    *w = (struct waiter){.check = check, .done = done, .cookie = done_cookie};
    list_append(&r->waiters, &w->node);
    r->waiters_n++;
    return w;
}

static void
unask(void *asked)
{
    struct waiter *w = asked;
    w->done = NULL;
}

struct reload *
reload_new(struct server *srv, struct config *now, struct spawn_features *features, int argc,
           char **argv)
{
    struct reload *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->srv = srv;
    r->now = now;
    r->features = features;
    r->argc = argc;
    r->argv = argv;
    r->fd = -1;
    list_init(&r->waiters);
    r->reloader = (struct config_reloader){r, ask, unask};
    srv->reloader = &r->reloader;
    return r;
}

void
reload_free(struct reload *r)
{
    if (r == NULL)
        return;
    loop_timer_stop(&r->late);
    loop_poll_stop(&r->poll);
    loop_timer_stop(&r->soon);
    config_free(r->next);
    if (r->fd >= 0)
        (void)close(r->fd);
    list_each(it, &r->waiters)
    {
        list_remove(it);
        free(list_entry(it, struct waiter, node));
    }
    free(r);
}

int
reload_first(struct reload *r, struct err *e)
{
    r->first = true;
    begin(r);
    while (r->state != IDLE)
        (void)uv_run(r->srv->loop, UV_RUN_ONCE);
    r->first = false;
    *e = r->why;
    return e->code == ERR_OK ? 0 : err_wrap(e, "read the configuration");
}

void
reload_again(struct reload *r)
{
    r->again = true;
    if (r->state == IDLE)
        begin(r);
}
