// SPDX-License-Identifier: Apache-2.0
// Opening and closing a handle (stockade.h).
#include "handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "async.h"
#include "errors.h"
#include "link.h"
#include "requests.h"
#include "stockade.h"
#include "watch.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    KEEPALIVE_MS = 20000,
    APPROVAL_WAIT_MS_MAX = 600000,
    KEEPALIVE_MS_MIN = 6000, // the broker takes one PING in 5 s
};

static const char *
or_environment(const char *given, const char *name, const char *otherwise)
{
    if (given != NULL)
        return given;
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : otherwise;
}

static int
init_sync(struct stockade *s, struct err *e)
{
    pthread_condattr_t monotonic;
    s->watch = (struct watch){.epoll_fd = -1, .timer_fd = -1, .flag_fd = -1, .socket = -1};
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->wake_fd < 0 ? err_sys(e, errno, "make an eventfd") : 0;
}

// The handle has copies of the strings.
static int
take_proof(struct stockade *s, const struct stockade_options *o, struct err *e)
{
    const struct {
        const char *given, *name, **to;
    } strings[PROOFS] = {
        {o->ca_file, "STOCKADE_CA_FILE", &s->address.proof.ca_file},
        {o->pin, "STOCKADE_PIN", &s->address.proof.pin},
        {o->server_name, "STOCKADE_SERVER_NAME", &s->address.proof.server_name},
        {o->certificate_file, "STOCKADE_CERTIFICATE_FILE", &s->address.proof.certificate},
        {o->key_file, "STOCKADE_KEY_FILE", &s->address.proof.key},
    };
    for (size_t i = 0; i < PROOFS && s->address.tls; i++) {
        const char *value = or_environment(strings[i].given, strings[i].name, NULL);
        if (value == NULL)
            continue;
        s->proof[i] = strdup(value);
        if (s->proof[i] == NULL)
            return err_sys(e, ENOMEM, "open a handle");
        *strings[i].to = s->proof[i];
    }
    return 0;
}

static int
take_approval(struct stockade *s, const struct stockade_options *o, struct err *e)
{
    const char *id = o->approval != NULL ? o->approval : "";
    if (strlen(id) >= sizeof s->approval)
        return err_field(e, "approval", "longer than the id of an approval");
    if (o->approval_wait_ms > APPROVAL_WAIT_MS_MAX)
        return err_field(e, "approval_wait_ms", "must be at most %d", APPROVAL_WAIT_MS_MAX);
    (void)snprintf(s->approval, sizeof s->approval, "%s", id);
    if (o->approval_wait_ms != 0)
        (void)snprintf(s->approval_wait, sizeof s->approval_wait, "%u", o->approval_wait_ms);
    return 0;
}

static int
configure(struct stockade *s, const struct stockade_options *o, struct err *e)
{
    const char *address = or_environment(o->address, "STOCKADE_ADDRESS", STOCKADE_ADDRESS_DEFAULT);
    int rc = address_parse(&s->address, address, e);
    if (rc < 0)
        return rc;
    rc = take_proof(s, o, e);
    if (rc < 0)
        return rc;
    s->address_text = strdup(address);
    if (s->address_text == NULL)
        return err_sys(e, ENOMEM, "open a handle");
    const char *token = or_environment(o->token, "STOCKADE_TOKEN", NULL);
    if (token != NULL && token[0] != '\0' && asprintf(&s->authorization, "Bearer %s", token) < 0) {
        s->authorization = NULL;
        return err_sys(e, ENOMEM, "open a handle");
    }
    const char *trace = or_environment(o->traceparent, "TRACEPARENT", "");
    const bool valid = traceparent_valid(trace);
    if (o->traceparent != NULL && !valid)
        return err_field(e, "traceparent", "must be like 00-TRACE-SPAN-01");
    if (valid)
        (void)snprintf(s->traceparent, sizeof s->traceparent, "%s", trace);
    rc = take_approval(s, o, e);
    if (rc < 0)
        return rc;
    s->connect_timeout_ms = o->connect_timeout_ms != 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    s->keepalive_ms = o->keepalive_ms != 0 ? o->keepalive_ms : KEEPALIVE_MS;
    if (s->keepalive_ms < KEEPALIVE_MS_MIN)
        s->keepalive_ms = KEEPALIVE_MS_MIN;
    if (s->keepalive_ms > INT32_MAX)
        s->keepalive_ms = INT32_MAX;
    return 0;
}

int
stockade_open(struct stockade **out, const struct stockade_options *given,
              struct stockade_error *error)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct err e;
    if (given != NULL && request_options(&o, sizeof o, given, &e) < 0)
        return error_from_err(error, &e);
    struct stockade *s = calloc(1, sizeof *s);
    if (s == NULL) {
        (void)err_sys(&e, ENOMEM, "open a handle");
        return error_from_err(error, &e);
    }
    int rc = init_sync(s, &e);
    if (rc == 0)
        rc = configure(s, &o, &e);
    if (rc < 0) {
        stockade_close(s);
        return error_from_err(error, &e);
    }
    *out = s;
    return 0;
}

// An error of the calling program after which the library cannot go on.
_Noreturn static void
die(const char *why)
{
    (void)fprintf(stderr, "libstockade: %s\n", why);
    abort();
}

void
stockade_close(struct stockade *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->in_pump || s->closing)
        die("stockade_close() was called in a callback, or while a thread is in stockade_pump()");
    if (s->waits > 0)
        die("stockade_close() was called while a call is in progress");
    async_end_all(s);
    pthread_mutex_unlock(&s->lock);
    watch_close(s);
    link_close(s->link);
    call_set_clear(&s->calls);
    if (s->wake_fd >= 0)
        (void)close(s->wake_fd);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->address_text);
    for (size_t i = 0; i < PROOFS; i++)
        free(s->proof[i]);
    free(s->authorization);
    free(s);
}

const char *
stockade_address(const struct stockade *s)
{
    return s->address_text;
}

const char *
stockade_version(void)
{
    return STOCKADE_VERSION;
}

const char *
stockade_code_name(int code)
{
    return err_code_name(code);
}
