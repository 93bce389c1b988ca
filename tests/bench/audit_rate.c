// SPDX-License-Identifier: Apache-2.0
// Records per second of the audit log: the loop's part (pack and queue), and all of it (chain, hashes, files, checkpoints), with
// the record of a usual call; and the time that one call waits until its record is stored. One row for each `sync` that lets a call wait.
//
//   audit_rate FOLDER RECORDS
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include <sodium.h>

#include "server/audit/audit.h"

enum { AHEAD = 2000, WAITS = 2000 };

static uv_loop_t loop;
static uv_prepare_t alive;

struct waiter {
    struct audit_wait wait;
    bool done;
};

static void
on_done(struct audit_wait *wait, const struct err *e)
{
    struct waiter *w = (struct waiter *)wait;
    if (e != NULL)
        bench_die("%s", e->text);
    w->done = true;
}

static void
on_prepare(uv_prepare_t *unused)
{
    (void)unused;
}

static void
write_one(struct audit *a)
{
    static uint8_t digest[AUDIT_HASH];
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditCall c = STOCKADE__V1__AUDIT_CALL__INIT;
    c.call = audit_number(a);
    c.phase = STOCKADE__V1__AUDIT_PHASE__AUDIT_PHASE_BEGAN;
    c.method = "/stockade.v1.ProcessService/Run";
    c.tenant = "uid:1000";
    c.proof = "peer";
    c.uid = 1000;
    c.pid = 4711;
    c.request = (ProtobufCBinaryData){sizeof digest, digest};
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CALL;
    m.call = &c;
    audit_write(a, &m, false);
}

static void
wait_for(struct audit *a)
{
    struct waiter w = {.wait = {.done = on_done}};
    if (!audit_wait(a, &w.wait))
        return;
    while (!w.done)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void
measure(const char *folder, const char *name, enum audit_sync sync, unsigned records)
{
    struct audit_settings s;
    struct audit *a = NULL;
    struct err e;
    struct samples waits = {.row = name};
    char path[AUDIT_PATH];
    audit_settings_default(&s);
    s.sync = sync;
    (void)snprintf(path, sizeof path, "%.200s/%s", folder, name);
    if (audit_open(&s, path, "", &a, &e) < 0 || audit_start(a, &loop, &e) < 0)
        bench_die("%s", e.text);
    const double start = bench_now();
    double queueing = 0;
    for (unsigned i = 0; i < records; i += AHEAD) {
        const double before = bench_now();
        for (unsigned k = 0; k < AHEAD; k++)
            write_one(a);
        queueing += bench_now() - before;
        wait_for(a);
    }
    const double all = bench_now() - start;
    for (unsigned i = 0; i < WAITS; i++) {
        const double before = bench_now();
        write_one(a);
        wait_for(a);
        samples_add(&waits, bench_now() - before);
    }
    audit_close(a, 0);
    char more[128];
    (void)snprintf(more, sizeof more, ",\"per_second\":%.0f,\"queue_us\":%.3f", records / all * 1e6,
                   queueing / records);
    samples_print(&waits, "audit", more);
}

int
main(int argc, char **argv)
{
    if (argc != 3 || sodium_init() < 0)
        bench_die("usage: audit_rate FOLDER RECORDS");
    const unsigned records = (unsigned)strtoul(argv[2], NULL, 10);
    (void)uv_loop_init(&loop);
    (void)uv_prepare_init(&loop, &alive);
    (void)uv_prepare_start(&alive, on_prepare);
    measure(argv[1], "interval", AUDIT_SYNC_INTERVAL, records);
    measure(argv[1], "always", AUDIT_SYNC_ALWAYS, records);
    return 0;
}
