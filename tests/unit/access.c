// SPDX-License-Identifier: Apache-2.0
// server/access: API keys, refused credentials, and time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>
#include <sodium.h>

#include "server/access/access.h"
#include "server/rpc/transport.h"
#include "server/access/failures.h"
#include "server/access/keys.h"
#include "server/access/tokens.h"
#include "server/base/log.h"
#include "server/state/state.h"

static struct {
    char folder[64];
    uv_loop_t loop;
    struct state *state;
    struct access_settings settings;
    struct access *access;
    struct principal root, peer;
} it;

static void
open_all(void)
{
    struct err e;
    assert_int_equal(uv_loop_init(&it.loop), 0);
    assert_int_equal(state_open(it.folder, &it.state, &e), 0);
    assert_int_equal(access_new(it.state, &it.settings, &it.access, &e), 0);
    assert_int_equal(state_start(it.state, &it.loop, &e), 0);
}

static void
close_all(void)
{
    state_close(it.state);
    access_free(it.access);
    (void)uv_run(&it.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&it.loop), 0);
}

static int
set_up(void **unused)
{
    (void)unused;
    memset(&it, 0, sizeof it);
    (void)snprintf(it.folder, sizeof it.folder, "/tmp/stockade-access-XXXXXX");
    assert_non_null(mkdtemp(it.folder));
    access_settings_default(&it.settings);
    it.root = (struct principal){
        .tenant = "uid:0", .proof = PROOF_PEER, .scopes = (UINT32_C(1) << SCOPES_N) - 1};
    it.peer = (struct principal){.tenant = "tcp"};
    open_all();
    return 0;
}

static int
tear_down(void **unused)
{
    char path[128];
    (void)unused;
    close_all();
    (void)snprintf(path, sizeof path, "%s/stockade.db", it.folder);
    (void)unlink(path);
    return rmdir(it.folder);
}

struct answer {
    bool came;
    char id[64];
    int32_t code;
};

static void
on_key(void *cookie, const struct api_key *k, const struct err *e)
{
    struct answer *a = cookie;
    a->came = true;
    a->code = e != NULL ? e->code : 0;
    if (k != NULL)
        (void)snprintf(a->id, sizeof a->id, "%s", k->id);
}

static void
never(uv_timer_t *t)
{
    (void)t;
    fail_msg("no answer came");
}

static void
wait_for(const struct answer *a)
{
    uv_timer_t alive; // the state keeps no loop alive
    assert_int_equal(uv_timer_init(&it.loop, &alive), 0);
    assert_int_equal(uv_timer_start(&alive, never, 20000, 0), 0);
    while (!a->came)
        (void)uv_run(&it.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&alive, NULL);
    (void)uv_run(&it.loop, UV_RUN_NOWAIT);
}

static struct answer
make(const struct key_wanted *w, char text[KEY_TEXT])
{
    struct answer a = {0};
    struct key_op *op = NULL;
    struct err e;
    assert_int_equal(key_create(it.access, w, text, on_key, &a, &op, &e), 0);
    wait_for(&a);
    assert_int_equal(a.code, 0);
    return a;
}

static int32_t
check(const char *text, struct principal *out)
{
    struct err e;
    return access_check(it.access, &it.peer, text, out, &e) == 0 ? 0 : e.code;
}

static void
a_key_has_at_most_the_rights_of_its_maker(void **unused)
{
    (void)unused;
    const struct principal maker = {.tenant = "team", .scopes = UINT32_C(1) << SCOPE_SANDBOX_READ};
    struct key_wanted w = {
        .tenant = "team", .label = "", .maker = &maker, .scopes = UINT32_C(1) << SCOPE_PROCESS_RUN};
    char text[KEY_TEXT];
    struct key_op *op = NULL;
    struct err e;
    assert_true(key_create(it.access, &w, text, on_key, NULL, &op, &e) < 0);
    assert_int_equal(e.code, ERR_PERMISSION_DENIED);
    assert_string_equal(e.subject, "process.run");
    w.tenant = "*";
    w.scopes = 0;
    assert_true(key_create(it.access, &w, text, on_key, NULL, &op, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
}

static void
nobody_can_use_a_key_before_it_is_on_the_disk(void **unused)
{
    struct principal who;
    struct answer a = {0};
    struct key_op *op = NULL;
    struct err e;
    char text[KEY_TEXT];
    const struct key_wanted w = {.tenant = "team", .label = "", .maker = &it.root};
    (void)unused;
    assert_int_equal(key_create(it.access, &w, text, on_key, &a, &op, &e), 0);
    assert_int_equal(check(text, &who), ERR_UNAUTHENTICATED);
    assert_null(key_next(it.access, NULL));
    wait_for(&a);
    assert_int_equal(check(text, &who), 0);
    assert_string_equal(who.tenant, "team");
    assert_int_equal(who.proof, PROOF_KEY);
    assert_false(principal_has(&who, SCOPE_KEY_WRITE));
    assert_false(principal_has(&who, SCOPE_ADMIN_WRITE));
    assert_true(principal_has(&who, SCOPE_PROCESS_RUN));
}

static void
each_bit_of_a_key_counts(void **unused)
{
    struct principal who;
    char text[KEY_TEXT];
    const struct key_wanted w = {.tenant = "team", .label = "", .maker = &it.root, .e2b = true};
    (void)unused;
    it.settings.failures_per_minute = 1000;
    (void)make(&w, text);
    for (size_t i = 0; i < KEY_TEXT - 1; i++) {
        const char held = text[i];
        text[i] = held == 'a' ? 'b' : 'a';
        assert_int_equal(check(text, &who), ERR_UNAUTHENTICATED);
        text[i] = held;
    }
    assert_int_equal(check(text, &who), 0);
}

static void
a_revoked_key_is_refused_at_once_and_after_a_restart(void **unused)
{
    struct principal who;
    struct answer revoked = {0};
    struct key_op *op = NULL;
    struct err e;
    char text[KEY_TEXT], kept[KEY_TEXT];
    const struct key_wanted w = {.tenant = "team", .label = "x", .maker = &it.root};
    (void)unused;
    const struct answer made = make(&w, text);
    (void)make(&w, kept);
    assert_true(key_revoke(it.access, "other", made.id, on_key, &revoked, &op, &e) < 0);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(key_revoke(it.access, "team", made.id, on_key, &revoked, &op, &e), 0);
    assert_int_equal(check(text, &who), ERR_UNAUTHENTICATED);
    wait_for(&revoked);
    close_all();
    open_all();
    assert_int_equal(check(text, &who), ERR_UNAUTHENTICATED);
    assert_int_equal(check(kept, &who), 0);
}

static void
a_peer_with_too_many_refusals_waits_and_a_valid_key_does_not(void **unused)
{
    struct principal who;
    struct err e;
    char text[KEY_TEXT];
    const struct key_wanted w = {.tenant = "team", .label = "", .maker = &it.root};
    (void)unused;
    it.settings.failures_per_minute = 3;
    (void)make(&w, text);
    for (int i = 0; i < 3; i++)
        assert_int_equal(check("stk_0000000000000000000000000000000000000000", &who),
                         ERR_UNAUTHENTICATED);
    assert_true(access_check(it.access, &it.peer, "x", &who, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "CREDENTIAL_FAILURES");
    assert_int_equal(check(text, &who), 0);
    const struct principal other = {.tenant = "uid:7"};
    assert_true(access_check(it.access, &other, "x", &who, &e) < 0);
    assert_int_equal(e.code, ERR_UNAUTHENTICATED);
}

static void
refusals_are_forgotten_with_time(void **unused)
{
    static struct failures f;
    const uint64_t second = UINT64_C(1000000000);
    const struct err why = {.text = "x"};
    uint64_t wait_ms = 0, now = 100 * second;
    (void)unused;
    log_setup(-1, LOG_ERROR, false);
    failures_init(&f);
    for (int i = 0; i < 60; i++)
        failures_add(&f, "p", 60, now, &why);
    assert_true(failures_full(&f, "p", 60, now, &wait_ms));
    assert_in_range(wait_ms, 900, 1100);
    assert_false(failures_full(&f, "p", 60, now + 2 * second, &wait_ms));
    assert_int_equal(f.row[0].level == 0 || f.row[1].level == 0, 1); // of others there is nothing
    assert_false(failures_full(&f, "p", 60, now + 60 * second, &wait_ms));
}

// The owner of an IPv6 network has an address for each attempt.
static void
all_addresses_of_an_ipv6_network_are_one_peer(void **unused)
{
    static struct failures f;
    const uint64_t now = UINT64_C(1) << 40;
    uint64_t wait_ms;
    char peer[FAILURES_PEER];
    (void)unused;
    failures_init(&f);
    for (unsigned i = 0; i < 60; i++) {
        (void)snprintf(peer, sizeof peer, "2001:db8:0:7:%x::%x", i, i);
        failures_count(&f, peer, 60, now);
    }
    assert_true(failures_full(&f, "2001:db8:0:7:ffff::1", 60, now, &wait_ms));
    unsigned full = 0;
    for (unsigned i = 0; i < 32;
         i++) { // others are not limited with it, but for one of a shared row
        (void)snprintf(peer, sizeof peer, i % 2 == 0 ? "2001:db8:0:%x::1" : "192.0.2.%u", 8 + i);
        full += failures_full(&f, peer, 60, now, &wait_ms);
    }
    assert_in_range(full, 0, 4);
    static const uint8_t a[16] = {0x20, 1, [7] = 7, [15] = 1}, b[16] = {0x20, 1, [7] = 7, [8] = 1},
                         c[16] = {0x20, 1, [7] = 8, [15] = 1}, loopback[16] = {[15] = 1},
                         v4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1},
                         w4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 2};
    assert_true(transport_same_network(a, b) && transport_same_network(v4, v4));
    assert_false(transport_same_network(a, c) || transport_same_network(v4, w4) ||
                 transport_same_network(a, v4) || transport_same_network(loopback, v4) ||
                 transport_same_network(v4, loopback));
}

// The row depends on a secret: addresses that share one with a victim in one broker do not in another.
static void
which_peers_share_a_row_cannot_be_computed(void **state)
{
    static struct failures f[2];
    uint64_t wait_ms;
    unsigned shared[2] = {0}, both = 0;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        failures_init(&f[i]);
        failures_count(&f[i], "192.0.2.1", 1, UINT64_C(1) << 40);
    }
    for (unsigned a = 0; a < 65536; a++) {
        char peer[FAILURES_PEER];
        (void)snprintf(peer, sizeof peer, "198.51.%u.%u", a >> 8, a & 255);
        bool full[2];
        for (unsigned i = 0; i < 2; i++) {
            full[i] = failures_full(&f[i], peer, 1, UINT64_C(1) << 40, &wait_ms);
            shared[i] += full[i];
        }
        both += full[0] && full[1];
    }
    assert_in_range(shared[0], 1, 300); // 64 are expected
    assert_in_range(shared[1], 1, 300);
    assert_in_range(both, 0, 20);
}

static void
of_a_flood_of_refusals_few_are_events_and_the_next_counts_the_others(void **unused)
{
    static struct failures f;
    const uint64_t minute = UINT64_C(60000000000);
    uint64_t left_out = 7;
    (void)unused;
    for (int i = 0; i < FAILURES_EVENTS; i++) {
        assert_true(failures_may_publish(&f, minute, &left_out));
        assert_int_equal(left_out, 0);
    }
    for (int i = 0; i < 10000; i++)
        assert_false(failures_may_publish(&f, 2 * minute - 1, &left_out));
    assert_true(failures_may_publish(&f, 2 * minute, &left_out));
    assert_int_equal(left_out, 10000);
    assert_true(failures_may_publish(&f, 2 * minute, &left_out));
    assert_int_equal(left_out, 0);
}

static void
time_goes_on_when_the_clock_of_the_host_is_set_back(void **unused)
{
    const struct access_clock start = {.wall_ms = 1000000, .boot_ms = 500};
    const struct access_clock usual = {.wall_ms = 1060000, .boot_ms = 60500};
    const struct access_clock back = {.wall_ms = 1000, .boot_ms = 120500};
    const struct access_clock forward = {.wall_ms = 9000000, .boot_ms = 180500};
    const struct access_clock corrected = {.wall_ms = 1240000, .boot_ms = 240500};
    (void)unused;
    assert_int_equal(access_time_ms(&start, &usual), 1060000);
    assert_int_equal(access_time_ms(&start, &back), 1120000);
    assert_int_equal(access_time_ms(&start, &forward), 9000000);
    assert_int_equal(access_time_ms(&start, &corrected), 1240000);
}

static unsigned
cache_place(const char *text)
{
    uint8_t digest[32];
    (void)crypto_generichash(digest, sizeof digest, (const uint8_t *)text, strlen(text), NULL, 0);
    return ((unsigned)digest[0] << 8 | digest[1]) % TOKENS_CACHED;
}

// Everybody can narrow a token without asking, so a neighbour can choose which place of the cache one takes.
static void
a_token_that_another_pushed_out_of_the_cache_is_still_valid(void **unused)
{
    static const char *scopes[] = {"process.run"};
    char token[TOKEN_TEXT_MAX + 1], other[TOKEN_TEXT_MAX + 1];
    struct err e;
    struct principal who, neighbour;
    Stockade__V1__TokenBlock b = STOCKADE__V1__TOKEN_BLOCK__INIT;
    Stockade__V1__Caveat c = STOCKADE__V1__CAVEAT__INIT, *caveats[] = {&c};
    const struct deed run = {.method = "ProcessService/Run"};
    (void)unused;
    b.tenant = "team";
    b.scopes = scopes;
    b.n_scopes = 1;
    assert_int_equal(token_make(it.access, &it.root, &b, token, &e), 0);
    assert_int_equal(check(token, &who), 0);
    assert_int_equal(access_still(it.access, &who, token, &e), 0);
    stockade__v1__token_block__init(&b);
    b.caveats = caveats;
    b.n_caveats = 1;
    c.caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS;
    c.expires_ms = INT64_C(1) << 50;
    do {
        c.expires_ms++;
        assert_int_equal(token_attenuate(token, &b, other, &e), 0);
    } while (cache_place(other) != cache_place(token));
    assert_int_equal(check(other, &neighbour), 0);
    assert_int_equal(token_allows(it.access, &neighbour, &run, &e), 0);
    assert_true(token_allows(it.access, &who, &run, &e) < 0);
    assert_int_equal(access_still(it.access, &who, token, &e), 0);
    assert_int_equal(token_allows(it.access, &who, &run, &e), 0);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_key_has_at_most_the_rights_of_its_maker),
        TEST(nobody_can_use_a_key_before_it_is_on_the_disk),
        TEST(each_bit_of_a_key_counts),
        TEST(a_revoked_key_is_refused_at_once_and_after_a_restart),
        TEST(a_peer_with_too_many_refusals_waits_and_a_valid_key_does_not),
        TEST(refusals_are_forgotten_with_time),
        TEST(all_addresses_of_an_ipv6_network_are_one_peer),
        TEST(which_peers_share_a_row_cannot_be_computed),
        TEST(of_a_flood_of_refusals_few_are_events_and_the_next_counts_the_others),
        TEST(a_token_that_another_pushed_out_of_the_cache_is_still_valid),
        TEST(time_goes_on_when_the_clock_of_the_host_is_set_back),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
