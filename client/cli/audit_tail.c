// SPDX-License-Identifier: Apache-2.0
// The parts of the audit log's commands that ask the broker: `audit tail`, and `inspect --proof`.
#include "audit_tail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/arena.h"
#include "proto/audit_prove.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "stockade/v1/audit_service.pb-c.h"
#include "feed.h"
#include "remote.h"
#include "sink.h"

#define METHOD(name) "/stockade.v1.AuditService/" name

enum { ANSWER_MAX = 8 * 1024 * 1024, LINES = 20, PAGE_MAX = 1000 };

struct tailing {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    struct arena *arena;
    uint64_t printed; // sequence of the last one
    int code;
    bool damaged;
};

static const char *
tenant_of(const struct tailing *t)
{
    return t->o->tenant != NULL ? t->o->tenant : "";
}

static int
print(struct tailing *t, const Stockade__V1__AuditRecord *m)
{
    const char *line = stockade_json(&m->base);
    if (line == NULL || printf("%s\n", line) < 0)
        t->code = EXIT_PROBLEM;
    stockade_free(line);
    t->printed = m->sequence;
    return t->code;
}

// ---- what is there

static const Stockade__V1__AuditServiceListResponse *
list(const struct tailing *t, uint64_t after, uint32_t size, const char *page,
     struct stockade_error *e)
{
    Stockade__V1__AuditServiceListRequest request = STOCKADE__V1__AUDIT_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    arena_reset(t->arena);
    request.tenant = tenant_of(t);
    request.after_sequence = after;
    request.page_size = size;
    request.page_token = page;
    if (remote_call(t->s, METHOD("List"), &request.base,
                    &stockade__v1__audit_service_list_response__descriptor, t->arena, &m, e) < 0)
        return NULL;
    return (const Stockade__V1__AuditServiceListResponse *)m;
}

struct last {
    uint64_t sequence[LINES]; // a ring
    size_t n;
};

// The sequences of the last records behind `after`. False: *e says why.
static bool
look(const struct tailing *t, uint64_t after, struct last *l, struct stockade_error *e)
{
    char page[33] = "";
    l->n = 0;
    do {
        const Stockade__V1__AuditServiceListResponse *m = list(t, after, PAGE_MAX, page, e);
        if (m == NULL)
            return false;
        for (size_t i = 0; i < m->n_records; i++)
            l->sequence[l->n++ % LINES] = m->records[i]->sequence;
        (void)snprintf(page, sizeof page, "%s", m->next_page_token);
    } while (page[0] != '\0');
    return true;
}

// The last records: looks back further and further until enough of them are the caller's.
static bool
show_last(struct tailing *t, struct stockade_error *e)
{
    const Stockade__V1__AuditServiceListResponse *m = list(t, UINT64_MAX, 1, "", e);
    struct last l = {.n = 0};
    if (m == NULL)
        return false;
    const uint64_t end = m->last_sequence;
    uint64_t from = end;
    t->printed = end;
    for (uint64_t back = UINT64_C(4) * LINES; l.n < LINES && from > 0; back *= 8) {
        from = end > back ? end - back : 0;
        if (!look(t, from, &l, e))
            return false;
    }
    if (l.n == 0)
        return true;
    const uint64_t first = l.n < LINES ? l.sequence[0] : l.sequence[l.n % LINES];
    m = list(t, first - 1, LINES, "", e);
    for (size_t i = 0; m != NULL && i < m->n_records && t->code == EXIT_OK; i++)
        (void)print(t, m->records[i]);
    return m != NULL;
}

// ---- what comes

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct tailing *t = cookie;
    struct err e;
    ProtobufCMessage *m = NULL;
    arena_reset(t->arena);
    if (wire_unpack(&stockade__v1__audit_service_watch_response__descriptor, bytes, n, t->arena, &m,
                    &e) < 0) {
        t->damaged = true;
        return 1;
    }
    const Stockade__V1__AuditRecord *one =
        ((const Stockade__V1__AuditServiceWatchResponse *)m)->record;
    if (one != NULL && print(t, one) == EXIT_OK)
        t->code = cli_flush(t->c);
    return t->code;
}

static int
watch_once(struct tailing *t, struct stockade_error *e)
{
    Stockade__V1__AuditServiceWatchRequest m = STOCKADE__V1__AUDIT_SERVICE_WATCH_REQUEST__INIT;
    m.tenant = tenant_of(t);
    m.after_sequence = t->printed;
    return remote_watch(t->s, METHOD("Watch"), &m.base, on_message, t, e);
}

// Goes on after a restart of the broker, and misses no record.
static int
follow(struct tailing *t)
{
    const struct feed_options feeding = {.s = t->s, .outlet = true};
    const struct timespec pause = {.tv_nsec = 200 * 1000000L};
    struct stockade_error e = {0};
    struct feed *feed = feed_start(&feeding);
    bool away = false;
    if (feed == NULL)
        return EXIT_PROBLEM;
    int rc = watch_once(t, &e);
    while (rc < 0 && e.code == STOCKADE_UNAVAILABLE && t->code == EXIT_OK && !sink_is_gone()) {
        if (!away)
            cli_connection(t->c, &e);
        away = true;
        (void)nanosleep(&pause, NULL);
        rc = watch_once(t, &e);
    }
    (void)feed_stop(feed);
    if (t->damaged)
        e = (struct stockade_error){.code = STOCKADE_DATA_LOSS, .text = "a response is damaged"};
    if (t->code != EXIT_OK)
        return t->code;
    if (rc < 0 && sink_is_gone())
        return EXIT_PIPE;
    return rc < 0 || t->damaged ? cli_fail(t->c, "", &e) : EXIT_OK;
}

int
audit_tail(const struct command *c, const struct options *o)
{
    int code = EXIT_OK;
    struct stockade_error e = {0};
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    struct tailing t = {.c = c, .o = o, .arena = arena, .s = cli_open(c, o, &code)};
    if (t.s == NULL)
        return code;
    if (arena == NULL)
        e = (struct stockade_error){.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    if (arena == NULL || !show_last(&t, &e))
        code = cli_fail(c, "", &e);
    else
        code = t.code == EXIT_OK ? cli_flush(c) : t.code;
    if (code == EXIT_OK && o->follow)
        code = follow(&t);
    stockade_close(t.s);
    return code;
}

// ---- proof

int
audit_prove(const struct command *c, const struct options *o, struct stockade *s,
            const char *process_id)
{
    struct stockade_error e = {0};
    ProtobufCMessage *m = NULL;
    Stockade__V1__GetProofRequest request = STOCKADE__V1__GET_PROOF_REQUEST__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    char id[64];
    (void)snprintf(id, sizeof id, "%s", process_id);
    request.process_id = id;
    request.tenant = o->tenant != NULL ? o->tenant : "";
    int r = arena != NULL
                ? remote_call(s, METHOD("GetProof"), &request.base,
                              &stockade__v1__get_proof_response__descriptor, arena, &m, &e)
                : -ENOMEM;
    const Stockade__V1__GetProofResponse *got = (const Stockade__V1__GetProofResponse *)m;
    char *auto_free text = r == 0 && got->proof != NULL ? audit_proof_text(got->proof) : NULL;
    if (r == 0 && text != NULL) {
        (void)printf("%s\n", text);
        return cli_flush(c);
    }
    if (r == 0 || arena == NULL)
        e = (struct stockade_error){.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    return cli_fail(c, id, &e);
}
