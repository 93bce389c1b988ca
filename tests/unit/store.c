// SPDX-License-Identifier: Apache-2.0
// server/store: records as files, what a start makes of them, and what a tenant holds. The layers themselves are tested with
// their processes (tests/priv/keeper.c, tests/flow/kept.py).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "proto/auto.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/store/private.h"

enum { MIB = 1 << 20 };

static char folder[64];
static const struct quotas quotas = {.usual = {[QUOTA_KEPT_BYTES] = 8 * MIB}};
static struct tenants tenants = {.quotas = &quotas};
static uv_loop_t loop;
static struct server srv = {.tenants = &tenants, .loop = &loop};

static int
set_up(void **unused)
{
    char path[128];
    (void)unused;
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-store-XXXXXX");
    if (mkdtemp(folder) == NULL || uv_loop_init(&loop) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER, folder);
    return mkdir(path, 0700);
}

static int
tear_down(void **unused)
{
    char path[512];
    (void)unused;
    (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER, folder);
    DIR *d = opendir(path);
    for (const struct dirent *it = d == NULL ? NULL : readdir(d); it != NULL; it = readdir(d)) {
        (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER "/%s", folder, it->d_name);
        (void)unlink(path);
    }
    if (d != NULL)
        (void)closedir(d);
    (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER, folder);
    assert_int_equal(uv_loop_close(&loop), 0);
    return rmdir(path) < 0 ? -1 : rmdir(folder);
}

// A record of `uid:1` with layers whose digests begin with these bytes, of 1 MiB each.
struct sample {
    struct stored r;
    struct stored_layer layer[STORE_LAYERS_MAX];
    uint8_t about[8];
};

static void
fill(struct sample *s, const char *id, const char *name, uint32_t layers_n, uint8_t first)
{
    *s = (struct sample){.r = {.kind = STORE_SNAPSHOT,
                               .created_ms = 1700000000123,
                               .order = first,
                               .layers_n = layers_n,
                               .about = s->about,
                               .about_n = sizeof s->about},
                         .about = "about it"};
    (void)snprintf(s->r.id, sizeof s->r.id, "%s", id);
    (void)snprintf(s->r.name, sizeof s->r.name, "%s", name);
    (void)snprintf(s->r.sandbox, sizeof s->r.sandbox, "its sandbox");
    (void)snprintf(s->r.template, sizeof s->r.template, "default");
    for (uint32_t i = 0; i < layers_n; i++) {
        s->layer[i] = (struct stored_layer){.bytes = MIB, .entries = i};
        s->layer[i].digest[0] = (uint8_t)(first + i);
        s->r.layer[i] = &s->layer[i];
    }
    s->r.tenant = tenant_hold(&tenants, "uid:1");
    assert_non_null(s->r.tenant);
}

static uint8_t *
packed(const char *id, const char *name, uint32_t layers_n, uint8_t first, size_t *n)
{
    struct sample s;
    fill(&s, id, name, layers_n, first);
    struct err e;
    uint8_t *bytes = file_pack(&s.r, NULL, n, &e);
    assert_non_null(bytes);
    tenant_drop(s.r.tenant);
    return bytes;
}

static void
put_at(const char *file, const uint8_t *bytes, size_t n)
{
    char path[STORE_PATH_MAX];
    struct err e;
    (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER "/%s", folder, file);
    assert_int_equal(file_write(path, bytes, n, &e), 0);
}

static void
put(const char *id, const char *name, uint32_t layers_n, uint8_t first)
{
    char file[64];
    size_t n = 0;
    uint8_t *auto_free bytes = packed(id, name, layers_n, first, &n);
    (void)snprintf(file, sizeof file, "%s.record", id);
    put_at(file, bytes, n);
}

static bool
is_there(const char *file)
{
    char path[STORE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/" STORE_FOLDER "/%s", folder, file);
    return access(path, F_OK) == 0;
}

// With a file that is no record, so that the store removes no layer: there is no spawner here.
static struct store *
start(void)
{
    struct err e;
    put_at("broken.record", (const uint8_t *)"broken", 6);
    struct store *s = store_new(&srv, folder, &e);
    assert_non_null(s);
    return s;
}

static void
stop(struct store *s)
{
    store_stop(s);
    while (!store_is_quiet(s))
        (void)uv_run(&loop, UV_RUN_ONCE);
    store_free(s);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static uint32_t
count(struct store *s)
{
    uint32_t n = 0;
    list_each(it, store_records(s)) n += !list_entry(it, struct stored, node)->dropped;
    return n;
}

// ---- records as files

static void
refuses(const uint8_t *bytes, size_t n, enum err_code code)
{
    struct err e;
    struct file_content *auto_free c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_true(file_unpack(bytes, n, c, &e) < 0);
    assert_int_equal(e.code, code);
    assert_null(c->r.about);
}

static void
a_record_with_any_flipped_bit_is_refused(void **unused)
{
    size_t n = 0;
    (void)unused;
    uint8_t *auto_free bytes = packed("a", "name", 2, 1, &n);
    for (size_t i = 0; i < n * 8; i++) {
        struct err e;
        struct file_content *auto_free c = calloc(1, sizeof *c);
        assert_non_null(c);
        bytes[i / 8] ^= (uint8_t)(1U << (i % 8));
        assert_true(file_unpack(bytes, n, c, &e) < 0); // a version that is higher is another error
        assert_true(e.code == ERR_DATA_LOSS || e.code == ERR_FAILED_PRECONDITION);
        bytes[i / 8] ^= (uint8_t)(1U << (i % 8));
    }
}

static void
a_record_that_is_cut_or_longer_is_refused(void **unused)
{
    size_t n = 0;
    (void)unused;
    uint8_t *auto_free bytes = packed("a", "name", STORE_LAYERS_MAX, 1, &n);
    static uint8_t more[16384];
    assert_true(n < sizeof more);
    memcpy(more, bytes, n);
    for (size_t i = 0; i < n; i++)
        refuses(bytes, i, ERR_DATA_LOSS);
    refuses(more, n + 1, ERR_DATA_LOSS);
}

static void
a_record_is_read_as_it_was_written(void **unused)
{
    size_t n = 0;
    struct err e;
    (void)unused;
    uint8_t *auto_free bytes = packed("0123", "name", STORE_LAYERS_MAX, 1, &n);
    struct file_content *auto_free c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_int_equal(file_unpack(bytes, n, c, &e), 0);
    assert_string_equal(c->r.id, "0123");
    assert_string_equal(c->r.name, "name");
    assert_string_equal(c->tenant, "uid:1");
    assert_string_equal(c->r.sandbox, "its sandbox");
    assert_string_equal(c->r.template, "default");
    assert_int_equal(c->r.created_ms, 1700000000123);
    assert_int_equal(c->r.layers_n, STORE_LAYERS_MAX);
    assert_int_equal(c->layer[5].digest[0], 6);
    assert_int_equal(c->layer[5].entries, 5);
    assert_memory_equal(c->r.about, "about it", 8);
    free(c->r.about);
}

// ---- the start

static void
what_is_no_record_is_left_and_what_a_crash_left_is_removed(void **unused)
{
    size_t n = 0;
    (void)unused;
    put("a", "first", 1, 1);
    uint8_t *auto_free bytes = packed("a", "first", 1, 1, &n);
    put_at("copy.record", bytes, n); // the same record under another name
    put_at("b.record.new", bytes, n / 2);
    put_at("notes.txt", bytes, n);
    struct store *s = start();
    assert_int_equal(count(s), 1);
    assert_true(is_there("a.record") && is_there("copy.record") && is_there("broken.record"));
    assert_true(is_there("notes.txt"));
    assert_false(is_there("b.record.new"));
    stop(s);
}

static void
records_come_back_in_their_order_and_share_layers(void **unused)
{
    (void)unused;
    put("c", "third", 2, 3);  // layers 3, 4
    put("a", "first", 2, 1);  // 1, 2
    put("b", "second", 2, 2); // 2, 3
    struct store *s = start();
    assert_int_equal(count(s), 3);
    assert_string_equal(list_entry(store_records(s)->next, struct stored, node)->id, "a");
    const struct stored *a = store_find(s, "uid:1", STORE_SNAPSHOT, "first");
    const struct stored *b = store_find(s, "uid:1", STORE_SNAPSHOT, "b");
    assert_ptr_equal(a->layer[1], b->layer[0]);
    assert_null(store_find(s, "uid:2", STORE_SNAPSHOT, "b"));
    assert_null(store_find(s, "uid:1", STORE_TEMPLATE, "b"));
    assert_null(store_find(s, "uid:1", STORE_SNAPSHOT, ""));
    assert_int_equal(metrics_value(METRIC_KEPT_RECORDS, STORE_SNAPSHOT, 0), 3);
    assert_int_equal(metrics_value(METRIC_KEPT_LAYERS, 0, 0), 4);
    assert_int_equal(metrics_value(METRIC_KEPT_BYTES, 0, 0), 4 * MIB);
    stop(s);
    assert_int_equal(metrics_value(METRIC_KEPT_RECORDS, STORE_SNAPSHOT, 0), 0);
    assert_int_equal(metrics_value(METRIC_KEPT_BYTES, 0, 0), 0);
}

static void
a_layer_counts_once_to_a_quota(void **unused)
{
    struct err e;
    (void)unused;
    put("a", "first", 4, 1);
    put("b", "second", 4, 1);
    struct store *s = start();
    assert_int_equal(store_has_room(s, "uid:1", 4 * MIB, &e), 0);
    assert_true(store_has_room(s, "uid:1", 4 * MIB + 1, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "KEPT_BYTES");
    assert_int_equal(store_has_room(s, "uid:2", 8 * MIB, &e), 0);
    stop(s);
}

// ---- changes

static void
on_done(void *cookie, struct stored *r, const struct err *e)
{
    assert_null(r);
    assert_null(e);
    ++*(int *)cookie;
}

static void
one_that_is_dropped_is_gone_also_while_it_is_written_again(void **unused)
{
    int done = 0;
    struct err e;
    (void)unused;
    put("a", "first", 1, 1);
    put("b", "second", 1, 2);
    struct store *s = start();
    struct stored *a = store_find(s, "uid:1", STORE_SNAPSHOT, "a");
    struct stored *b = store_find(s, "uid:1", STORE_SNAPSHOT, "b");
    for (int i = 0; i < 3; i++) {
        uint8_t *about = calloc(1, 100);
        assert_non_null(about);
        assert_int_equal(store_amend(s, b, about, 100, &e), 0);
    }
    assert_int_equal(store_drop(s, a, on_done, &done, &e), 0);
    assert_int_equal(store_drop(s, b, on_done, &done, &e), 0);
    assert_int_equal(count(s), 0);
    while (done < 2)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_false(is_there("a.record") || is_there("b.record"));
    assert_true(list_empty(store_records(s)));
    stop(s);
}

static void
an_amended_record_has_the_last_description(void **unused)
{
    struct err e;
    (void)unused;
    put("a", "first", 1, 1);
    struct store *s = start();
    struct stored *r = store_find(s, "uid:1", STORE_SNAPSHOT, "a");
    for (uint8_t i = 1; i <= 3; i++) {
        uint8_t *about = malloc(i);
        assert_non_null(about);
        memset(about, i, i);
        assert_int_equal(store_amend(s, r, about, i, &e), 0);
    }
    while (r->amending)
        (void)uv_run(&loop, UV_RUN_ONCE);
    stop(s);
    s = start();
    r = store_find(s, "uid:1", STORE_SNAPSHOT, "a");
    assert_int_equal(r->about_n, 3);
    assert_memory_equal(r->about, "\3\3\3", 3);
    stop(s);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_record_with_any_flipped_bit_is_refused),
        TEST(a_record_that_is_cut_or_longer_is_refused),
        TEST(a_record_is_read_as_it_was_written),
        TEST(what_is_no_record_is_left_and_what_a_crash_left_is_removed),
        TEST(records_come_back_in_their_order_and_share_layers),
        TEST(a_layer_counts_once_to_a_quota),
        TEST(one_that_is_dropped_is_gone_also_while_it_is_written_again),
        TEST(an_amended_record_has_the_last_description),
    };
#undef TEST
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
