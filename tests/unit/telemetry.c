// SPDX-License-Identifier: Apache-2.0
// Reports of the kernel and the relay are checked like any input: an invalid record is ignored, one of a removed
// sandbox has no owner, and a valid one becomes an event of its sandbox with valid text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "server/anomaly/anomaly.h"
#include "server/anomaly/profiles.h"
#include "server/config/config.h"
#include "server/relay/relay.h"
#include "server/policy/network.h"
#include "server/telemetry/private.h"

struct fixture {
    uv_loop_t loop;
    struct server srv;
    struct config *config;
    struct jobs *jobs;
    struct tenant owner;
    struct sandbox box;
    struct events_reader *reader;
    struct arena *arena;
    struct {
        struct event head;
        union {
            struct net_event net;
            struct watch_exec exec;
            struct watch_open open;
            struct watch_syscall call;
            struct watch_exit exit;
        } body;
    } raw;
};

// An event of the sandbox, as sandbox.c reports it.
#define NOTIFY(f, fact) OBSERVERS_NOTIFY(sandboxes_observers((f)->srv.sandboxes), fact, &(f)->box)

static void
wake(void *cookie)
{
    (void)cookie;
}

static int
setup(void **state)
{
    static const struct event_filter all;
    const struct events_listener l = {"uid:1", wake, NULL};
    struct err e;
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->config = config_default();
    f->srv.loop = &f->loop;
    f->srv.config = f->config;
    f->srv.sandboxes = sandboxes_new(&f->srv, &f->config->sandbox);
    assert_non_null(f->srv.sandboxes);
    f->box.all = f->srv.sandboxes;
    f->jobs = jobs_new(&f->srv);
    f->srv.jobs = f->jobs;
    f->srv.telemetry = telemetry_new(&f->srv, &f->config->telemetry);
    assert_non_null(f->srv.telemetry);
    f->box.spec.template = &f->config->sandbox.template[0];
    network_unref(f->config->sandbox.template[0].network_max);
    f->config->sandbox.template[0].network_max = network_everything();
    f->box.live = true;
    f->box.slot = 7;
    f->box.generation = 3;
    list_init(&f->box.jobs);
    for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
        f->box.dirs.fd[i] = -1;
    memset(f->box.id.id, 'a', ID_HEX);
    memcpy(f->owner.name, "uid:1", sizeof "uid:1");
    NOTIFY(f, live);
    f->box.tenant = &f->owner;
    assert_int_equal(events_subscribe(f->srv.telemetry->events, &all, 0, "", &l, &f->reader, &e),
                     0);
    f->arena = arena_new(WIRE_ARENA_BYTES_MAX);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    events_unsubscribe(f->reader);
    NOTIFY(f, gone);
    jobs_free(f->jobs);
    telemetry_free(f->srv.telemetry);
    free(f->srv.sandboxes);
    config_free(f->config);
    arena_free(f->arena);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static size_t
make(struct fixture *f, uint16_t kind, uint16_t class, uint32_t size)
{
    f->raw.head = (struct event){.time_ns = 1000,
                                 .cgroup = 99,
                                 .slot = 7,
                                 .generation = 3,
                                 .pid = 4711,
                                 .kind = kind,
                                 .class = class,
                                 .size = size,
                                 .comm = "a\xff\nb"};
    return sizeof f->raw.head + size;
}

// The last event, or NULL.
static const Stockade__V1__Event *
last(struct fixture *f)
{
    struct events_batch *auto_free b = malloc(sizeof *b);
    ProtobufCMessage *m = NULL;
    struct err e;
    assert_non_null(b);
    arena_reset(f->arena);
    while (events_peek(f->reader, b)) {
        const struct event_packed *p = b->event[b->n - 1];
        assert_int_equal(wire_unpack(&stockade__v1__event__descriptor, p->bytes + p->head_n,
                                     p->n - p->head_n, f->arena, &m, &e),
                         0);
        events_taken(f->reader, b);
    }
    return (const Stockade__V1__Event *)m;
}

static void
an_invalid_record_is_skipped(void **state)
{
    struct fixture *f = *state;
    struct telemetry *t = f->srv.telemetry;
    size_t n = make(f, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event));
    for (size_t cut = 0; cut < n; cut++)
        assert_false(telemetry_event(t, &f->raw, cut));
    for (uint32_t kind = 0; kind < 300; kind++) {
        n = make(f, (uint16_t)kind, CLASS_DENIAL, 13); // no body has this size
        assert_false(telemetry_event(t, &f->raw, n));
    }
    n = make(f, EVENT_OOM, EVENT_CLASSES, 0);
    assert_false(telemetry_event(t, &f->raw, n));
    n = make(f, EVENT_OOM, CLASS_ALARM, 0);
    f->raw.head.slot = UINT32_MAX;
    assert_false(telemetry_event(t, &f->raw, n));
    n = make(f, EVENT_OOM, CLASS_ALARM, 0);
    f->raw.head.time_ns = UINT64_MAX;
    assert_false(telemetry_event(t, &f->raw, n));
    assert_null(last(f));
}

static void
an_event_of_another_generation_has_no_owner(void **state)
{
    struct fixture *f = *state;
    size_t n = make(f, EVENT_OOM, CLASS_ALARM, 0);
    f->raw.head.generation = 2;
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    n = make(f, EVENT_OOM, CLASS_ALARM, 0);
    f->raw.head.slot = 8;
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    f->box.tenant = NULL; // a ready sandbox, without an owner
    n = make(f, EVENT_OOM, CLASS_ALARM, 0);
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    f->box.tenant = &f->owner;
    assert_null(last(f));
}

static void
lengths_and_numbers_of_a_body_are_checked(void **state)
{
    struct fixture *f = *state;
    size_t n = make(f, EVENT_EXEC, CLASS_PROCESS, sizeof(struct watch_exec));
    memset(&f->raw.body, 0xff, sizeof f->raw.body); // a path without a terminating NUL, 4 GiB long
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    const Stockade__V1__Event *m = last(f);
    assert_int_equal(strlen(m->execution->path), 3 * WATCH_PATH);
    assert_true(m->execution->unnamed);
    assert_int_equal(m->severity, STOCKADE__V1__SEVERITY__SEVERITY_WARNING);
    n = make(f, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event));
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    assert_string_equal(last(f)->denial->reason, "other");
    n = make(f, EVENT_DANGEROUS, CLASS_SYSCALL, sizeof(struct watch_syscall));
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    assert_string_equal(last(f)->call->name, "syscall_511");
    n = make(f, EVENT_EXIT, CLASS_EXIT, sizeof(struct watch_exit));
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    assert_non_null(last(f));
}

static void
a_denial_names_the_operation_the_destination_and_a_hint(void **state)
{
    struct fixture *f = *state;
    size_t n = make(f, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event));
    f->raw.body.net = (struct net_event){
        .address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 9, 9, 9, 9},
        .port = 443,
        .protocol = 6,
        .reason = NET_NO_RULE,
        .hook = NET_HOOK_CONNECT,
        .rule = UINT32_MAX,
    };
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    const Stockade__V1__Event *m = last(f);
    assert_string_equal(m->denial->destination, "9.9.9.9:443");
    assert_string_equal(m->denial->hint, "--allow 9.9.9.9:443/tcp");
    assert_string_equal(m->comm, "a\xef\xbf\xbd\xef\xbf\xbd"
                                 "b");
    assert_int_equal(m->pid, 4711);
    assert_string_equal(m->tenant, "uid:1");
    struct telemetry_sums sums;
    telemetry_sandbox_sums(f->srv.telemetry, &f->box, &sums);
    assert_int_equal(sums.denials, 1);
}

static void
refused_options_and_devices_are_reported_by_name(void **state)
{
    static const struct {
        uint8_t hook, reason, first, second;
        const char *shown;
    } rows[] = {
        {NET_HOOK_OPTION, NET_OPTION, 1, 37, "SO_TIMESTAMPING"},
        {NET_HOOK_OPTION, NET_OPTION, 6, 99, "SOL_TCP option 99"},
        {NET_HOOK_DEVICE, NET_DEVICE, 10, 200, "device 10:200"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = make(f, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event));
        f->raw.body.net = (struct net_event){
            .address = {0, 0, 0, rows[i].first, 0, 0, 0, rows[i].second},
            .reason = rows[i].reason,
            .hook = rows[i].hook,
            .rule = UINT32_MAX,
        };
        assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
        assert_string_equal(last(f)->denial->destination, rows[i].shown);
    }
}

static void
events_before_a_sandbox_has_an_owner_are_not_reported(void **state)
{
    struct fixture *f = *state;
    struct timespec now;
    NOTIFY(f, taken);
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    size_t n = make(f, EVENT_EXEC, CLASS_ALARM, sizeof f->raw.body.exec);
    f->raw.body.exec = (struct watch_exec){.memfd = 1, .path_n = 9, .path = "/dev/fd/7"};
    (void)last(f); // the event of its creation
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    assert_null(last(f));
    f->raw.head.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    assert_true(telemetry_event(f->srv.telemetry, &f->raw, n));
    assert_non_null(last(f));
}

static void
reports_of_the_relay_become_events_of_their_sandbox(void **state)
{
    struct fixture *f = *state;
    struct relay_report r = {.kind = RELAY_DENIED,
                             .slot = 7,
                             .generation = 2,
                             .rule = UINT32_MAX,
                             .reason = NET_NAME,
                             .protocol = 17,
                             .name = "evil.example"};
    telemetry_relay(f->srv.telemetry, &r);
    assert_null(last(f));
    r.generation = 3;
    telemetry_relay(f->srv.telemetry, &r);
    const Stockade__V1__Event *m = last(f);
    assert_string_equal(m->denial->operation, "dns");
    assert_string_equal(m->denial->destination, "evil.example");
    r.kind = RELAY_FLOW_END;
    r.out_bytes = 12;
    r.rule = 4;
    telemetry_relay(f->srv.telemetry, &r);
    m = last(f);
    assert_int_equal(m->kind, STOCKADE__V1__EVENT_KIND__EVENT_KIND_FLOW_ENDED);
    assert_int_equal(m->flow->rule, 5);
    assert_int_equal(m->flow->out_bytes, 12);
    r.kind = UINT32_MAX;
    telemetry_relay(f->srv.telemetry, &r);
    assert_null(last(f));
}

static void
a_future_time_is_replaced_by_the_current_time(void **state)
{
    struct fixture *f = *state;
    struct relay_report r = {.kind = RELAY_DENIED, .slot = 7, .generation = 3, .name = "a.example"};
    static const uint64_t times[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 62};
    telemetry_drain(f->srv.telemetry); // reads the clocks
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        r.time_ns = times[i];
        telemetry_relay(f->srv.telemetry, &r);
        const Stockade__V1__Event *m = last(f);
        assert_non_null(m);
        assert_true(m->time->seconds - time(NULL) < 60 && time(NULL) - m->time->seconds < 60);
        size_t n = make(f, EVENT_OOM, CLASS_ALARM, 0);
        f->raw.head.time_ns = times[i] + 1;
        assert_int_equal(telemetry_event(f->srv.telemetry, &f->raw, n), times[i] == UINT64_MAX);
        (void)last(f);
    }
}

static void
removed_profiles_do_not_need_system_calls(void **state)
{
    struct fixture *f = *state;
    struct telemetry *t = f->srv.telemetry;
    f->config->anomaly.of_template[0].syscalls = 2; // only for profiles
    f->srv.anomaly = anomaly_new(&f->srv, &f->config->anomaly, f->config->state_dir);
    assert_non_null(f->srv.anomaly);
    NOTIFY(f, taken);
    assert_int_equal(t->wanted, 0);
    for (int i = 0; i < 3; i++) {
        anomaly_profiles(f->srv.anomaly)->set[0].state = PROFILES_LEARNING;
        anomaly_changed(f->srv.anomaly, 0);
        assert_int_equal(t->wanted, 1);
        anomaly_profiles(f->srv.anomaly)->set[0].state = PROFILES_OFF;
        anomaly_changed(f->srv.anomaly, 0);
        assert_int_equal(t->wanted, 0);
    }
    NOTIFY(f, gone);
    sandboxes_observers(f->srv.sandboxes)->n = 1;
    telemetry_detect(t, NULL, NULL);
    anomaly_free(f->srv.anomaly);
    f->srv.anomaly = NULL;
}

static void
without_telemetry_every_function_does_nothing(void **state)
{
    (void)state;
    telemetry_drain(NULL);
    telemetry_want(NULL);
    telemetry_unwant(NULL);
    assert_null(telemetry_events(NULL));
    struct err e;
    assert_true(telemetry_check_syscalls(NULL, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
}

int
main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_invalid_record_is_skipped),
        TEST(an_event_of_another_generation_has_no_owner),
        TEST(lengths_and_numbers_of_a_body_are_checked),
        TEST(a_denial_names_the_operation_the_destination_and_a_hint),
        TEST(refused_options_and_devices_are_reported_by_name),
        TEST(events_before_a_sandbox_has_an_owner_are_not_reported),
        TEST(a_future_time_is_replaced_by_the_current_time),
        TEST(reports_of_the_relay_become_events_of_their_sandbox),
        TEST(removed_profiles_do_not_need_system_calls),
        cmocka_unit_test(without_telemetry_every_function_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
