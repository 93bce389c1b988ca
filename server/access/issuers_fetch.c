// SPDX-License-Identifier: Apache-2.0
// See issuers_private.h: key sets with a URL. One is fetched at a time.
//
//   due (interval, failure, an unknown key id) -> spawn_fetcher() -> fd -> order ... parts -> jwks_read() -> the row -> the next
//
// The intervals are random by a tenth, so that many brokers do not ask an issuer at the same moment.
#include "issuers_private.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/fetcher/fetch.h"
#include "server/sandbox/spawn.h"

enum {
    FULL_MS = 200,   // until the fetcher before has been reaped
    LATE_MS = 5000,  // after the spawner should have killed it
    AGAIN_MS = 2000, // after the first failure; each further one doubles it
    AGAIN_MS_MAX = 5 * 60 * 1000,
    DOUBLINGS_MAX = 8,
    ASK_MS = 60 * 1000, // between two fetches for key ids that nobody knows
    JITTER = 10,        // a part of an interval
    NS_PER_MS = 1000000,
};

// Outlives its issuers while it waits for the spawner.
struct fetch {
    struct issuers *is; // NULL: they are gone
    char url[JWT_URL_MAX];
    int fd; // -1: the spawner has not answered
    struct loop_poll *poll;
    struct loop_timer *timer;
    size_t n;
    char bytes[FETCH_BYTES_MAX];
};

static void look(struct issuers *is);

static int64_t
boot_ms(void)
{
    return now_ns(CLOCK_BOOTTIME) / NS_PER_MS;
}

static uint64_t
about(uint64_t ms)
{
    const uint32_t part = (uint32_t)(ms / JITTER);
    return ms - part / 2 + (part > 0 ? randombytes_uniform(part) : 0);
}

// Tenants of one provider are several issuers with the same URL: the first of them counts.
static uint32_t
first_of(const struct issuers *is, const char *url)
{
    uint32_t i = 0;
    while (i < is->settings->n && strcmp(is->settings->issuer[i].url, url) != 0)
        i++;
    return i;
}

// The row of an issuer with a URL. After a reload it may have been another's.
static struct row *
row_of(struct issuers *is, uint32_t issuer)
{
    const uint32_t i = first_of(is, is->settings->issuer[issuer].url);
    const char *url = is->settings->issuer[i].url;
    struct row *r = &is->row[i];
    for (uint32_t k = 0; k < JWT_ISSUERS_MAX && strcmp(r->from, url) != 0; k++) {
        if (strcmp(is->row[k].from, url) != 0)
            continue;
        const struct row other = *r;
        *r = is->row[k];
        is->row[k] = other;
    }
    if (strcmp(r->from, url) == 0)
        return r;
    jwks_free(r->keys);
    *r = (struct row){.due_ms = boot_ms()};
    (void)snprintf(r->from, sizeof r->from, "%s", url);
    return r;
}

static void
on_due(void *cookie)
{
    struct issuers *is = cookie;
    loop_timer_stop(&is->timer);
    look(is);
}

// ---- one fetch

static void
succeeded(struct row *r, const struct jwt_issuer *issuer, struct jwks *keys)
{
    if (r->failures > 0 || r->keys == NULL)
        log_event(LOG_INFO, "issuer-keys", "%s: %zu %s", r->from, keys->n,
                  plural(keys->n, "key", "keys"));
    jwks_free(r->keys);
    r->keys = keys;
    r->got_ms = boot_ms();
    r->due_ms = r->got_ms + (int64_t)about(issuer->refresh_ms);
    r->failures = 0;
    r->why[0] = '\0';
    metrics_add_by(METRIC_ISSUER_FETCHES, FETCH_DONE, 0, 1);
}

// The keys before stay in use until they are too old.
static void
failed(struct row *r, const struct jwt_issuer *issuer, struct err *e)
{
    const uint32_t doublings = r->failures < DOUBLINGS_MAX ? r->failures : DOUBLINGS_MAX;
    uint64_t again_ms = (uint64_t)AGAIN_MS << doublings;
    if (again_ms > AGAIN_MS_MAX)
        again_ms = AGAIN_MS_MAX;
    if (again_ms > issuer->refresh_ms)
        again_ms = issuer->refresh_ms;
    (void)snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, e->text);
    if (r->failures++ == 0) {
        (void)err_wrap(e, "fetch %s", r->from);
        log_err(LOG_WARNING, "issuer-keys", e);
    }
    r->due_ms = boot_ms() + (int64_t)about(again_ms);
    metrics_add_by(METRIC_ISSUER_FETCHES, FETCH_FAILED, 0, 1);
}

// e: it failed; NULL: all bytes are there.
static void
end(struct fetch *f, struct err *e)
{
    struct issuers *is = f->is;
    struct jwks *keys = NULL;
    struct err why;
    loop_poll_stop(&f->poll);
    loop_timer_stop(&f->timer);
    if (f->fd >= 0)
        (void)close(f->fd);
    if (is != NULL && e == NULL && jwks_read(f->bytes, f->n, &keys, &why) < 0)
        e = &why;
    const uint32_t i = is != NULL ? first_of(is, f->url) : 0;
    if (is == NULL || i == is->settings->n) // a reload may have removed it
        jwks_free(keys);
    else if (e != NULL && strcmp(e->reason, "FETCHERS") == 0)
        row_of(is, i)->due_ms = boot_ms() + FULL_MS;
    else if (e != NULL)
        failed(row_of(is, i), &is->settings->issuer[i], e);
    else
        succeeded(row_of(is, i), &is->settings->issuer[i], keys);
    if (is != NULL)
        is->fetch = NULL;
    free(f);
    if (is != NULL)
        look(is);
}

// All but the last one are full, so there are few.
static bool
part_fits(const struct fetch *f, const struct fetch_part *p)
{
    const bool is_last = p->last != 0 || p->err.code != ERR_OK;
    return p->n <= sizeof p->bytes && (is_last || p->n == sizeof p->bytes) &&
           f->n + p->n <= sizeof f->bytes;
}

// The fetcher passed its end of the socket on: it was killed, and there is no end of file.
static void
on_late(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the fetcher did not end in time");
    end(cookie, &e);
}

static void
on_part(void *cookie, int events)
{
    static struct fetch_part part;
    struct fetch *f = cookie;
    struct err e;
    (void)events;
    const ssize_t n = recv(f->fd, &part, sizeof part, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof part || !part_fits(f, &part)) {
        (void)err_set(&e, ERR_INTERNAL, "the fetcher ended before it was done");
        end(f, &e);
        return;
    }
    if (part.err.code != ERR_OK) {
        err_sanitize(&part.err);
        end(f, &part.err);
        return;
    }
    memcpy(f->bytes + f->n, part.bytes, part.n);
    f->n += part.n;
    if (part.last != 0)
        end(f, NULL);
}

static uint32_t
seconds_of(const struct jwt_issuer *issuer)
{
    return (uint32_t)(issuer->timeout_ms + 999) / 1000 + FETCH_MORE_SECONDS;
}

static bool
send_order(const struct fetch *f, const struct jwt_issuer *issuer)
{
    struct fetch_order o = {.timeout_ms = (uint32_t)issuer->timeout_ms, .private = issuer->private};
    (void)snprintf(o.url, sizeof o.url, "%s", issuer->url);
    (void)snprintf(o.ca_file, sizeof o.ca_file, "%s", issuer->ca_file);
    return send(f->fd, &o, sizeof o, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof o;
}

static void
on_started(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct fetch *f = cookie;
    struct issuers *is = f->is;
    struct err e = reply->err;
    const uint32_t i = is != NULL ? first_of(is, f->url) : 0;
    if (reply->ok == 0 || is == NULL || i == is->settings->n) {
        spawn_close_fds(fds);
        end(f, &e);
        return;
    }
    const struct jwt_issuer *issuer = &is->settings->issuer[i];
    f->fd = take_fd(&fds[0]);
    if (f->fd < 0 || !send_order(f, issuer) ||
        loop_timer_start(is->loop, &f->timer, seconds_of(issuer) * UINT64_C(1000) + LATE_MS,
                         on_late, f) < 0 ||
        loop_poll_start(is->loop, &f->poll, f->fd, UV_READABLE, on_part, f) < 0) {
        (void)err_set(&e, ERR_UNAVAILABLE, "the fetcher does not take its order");
        end(f, &e);
    }
}

static void
start(struct issuers *is, struct row *r)
{
    const struct jwt_issuer *issuer = &is->settings->issuer[first_of(is, r->from)];
    struct err e;
    struct fetch *f = calloc(1, sizeof *f);
    if (f == NULL) {
        r->due_ms = boot_ms() + AGAIN_MS;
        return;
    }
    f->is = is;
    f->fd = -1;
    (void)snprintf(f->url, sizeof f->url, "%s", r->from);
    is->fetch = f;
    r->due_ms = INT64_MAX; // until it has ended
    if (spawn_fetcher(is->spawn, seconds_of(issuer), on_started, f, &e) < 0)
        end(f, &e);
}

// Begins what is due, or waits until it is.
static void
look(struct issuers *is)
{
    const int64_t now = boot_ms();
    struct row *first = NULL;
    if (is->loop == NULL || is->fetch != NULL)
        return;
    for (uint32_t i = 0; i < is->settings->n; i++) {
        const struct jwt_issuer *issuer = &is->settings->issuer[i];
        struct row *r = issuer->url[0] != '\0' ? row_of(is, i) : NULL;
        if (r != NULL &&
            r->due_ms > now + (int64_t)(issuer->refresh_ms + issuer->refresh_ms / JITTER))
            r->due_ms = now + (int64_t)about(issuer->refresh_ms); // a reload has made it shorter
        if (r != NULL && (first == NULL || r->due_ms < first->due_ms))
            first = r;
    }
    loop_timer_stop(&is->timer);
    if (first == NULL)
        return;
    const int64_t wait_ms = first->due_ms - now;
    if (wait_ms > 0)
        (void)loop_timer_start(is->loop, &is->timer, (uint64_t)wait_ms, on_due, is);
    else
        start(is, first);
}

// ---- issuers.c

void
issuers_begin(struct issuers *is, uv_loop_t *loop, struct spawn *spawn)
{
    is->loop = loop;
    is->spawn = spawn;
    look(is);
}

void
issuers_reloaded(struct issuers *is)
{
    look(is);
}

void
issuers_stop_fetching(struct issuers *is)
{
    struct fetch *f = is->fetch;
    loop_timer_stop(&is->timer);
    is->loop = NULL;
    is->fetch = NULL;
    if (f == NULL)
        return;
    f->is = NULL;
    if (f->fd >= 0) // otherwise the spawner's answer ends it
        end(f, NULL);
}

const struct jwks *
issuers_fetched(const struct issuers *is, uint32_t i)
{
    const struct jwt_issuer *issuer = &is->settings->issuer[i];
    const struct row *r = &is->row[first_of(is, issuer->url)];
    return strcmp(r->from, issuer->url) == 0 && r->keys != NULL &&
                   boot_ms() - r->got_ms <= (int64_t)issuer->keep_ms
               ? r->keys
               : NULL;
}

const char *
issuers_why(const struct issuers *is, uint32_t i)
{
    return is->row[first_of(is, is->settings->issuer[i].url)].why;
}

bool
issuers_ask(struct issuers *is, uint32_t i)
{
    const int64_t now = boot_ms();
    struct row *r = is->loop != NULL ? row_of(is, i) : NULL;
    if (r == NULL || (r->asked_ms != 0 && now - r->asked_ms < ASK_MS))
        return false;
    r->asked_ms = now;
    if (r->due_ms != INT64_MAX) // it is not being fetched
        r->due_ms = now;
    look(is);
    return true;
}

bool
issuers_trouble(const struct issuers *is, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < is->settings->n; i++) {
        const struct jwt_issuer *issuer = &is->settings->issuer[i];
        const struct row *r = &is->row[i];
        char so[64] = "its tokens are refused";
        if (issuer->url[0] == '\0' || first_of(is, issuer->url) != i || r->failures == 0 || at >= n)
            continue;
        if (issuers_fetched(is, i) != NULL)
            (void)snprintf(so, sizeof so, "the keys of %" PRId64 " s ago are in use",
                           (boot_ms() - r->got_ms) / 1000);
        const int more = snprintf(out + at, n - at, "%s%.100s: %s (%s)",
                                  at > 0 ? "; " : "issuer-keys: ", issuer->issuer, r->why, so);
        at += more > 0 ? (size_t)more : 0;
    }
    return at > 0;
}
