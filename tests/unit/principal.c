// SPDX-License-Identifier: Apache-2.0
// Rights of callers: the scopes of a principal, and that no handler runs without the scope, without a decision, or
// with a credential that is not supported.
#include "tests/harness/conn_memory.h"

#include "server/rpc/conn_private.h"
#include "server/rpc/principal.h"

static const struct principal_map no_rows;

static struct principal
peer(bool local, uint32_t uid)
{
    const struct transport_peer from = {.local = local, .uid = uid, .gid = 7, .pid = 8};
    struct principal p;
    principal_of_peer(&from, 997, &no_rows, &p);
    return p;
}

static void
only_root_and_the_brokers_account_have_the_scopes_of_operators(void **state)
{
    (void)state;
    const struct principal stranger = peer(true, 1000), far = peer(false, 0);
    for (unsigned i = 0; i < SCOPES_N; i++) {
        bool operators = i >= SCOPE_APPROVAL_ANSWER;
        assert_int_equal(principal_has(&stranger, (enum scope)i), !operators);
        assert_int_equal(principal_has(&far, (enum scope)i), !operators);
    }
    const struct principal root = peer(true, 0), own = peer(true, 997);
    for (unsigned i = 0; i < SCOPES_N; i++)
        assert_true(principal_has(&root, (enum scope)i) && principal_has(&own, (enum scope)i));
}

static void
a_reader_reads_what_belongs_to_all_tenants_and_no_output_and_changes_nothing(void **state)
{
    static const enum scope may[] = {SCOPE_SYSTEM_READ,  SCOPE_TELEMETRY_READ, SCOPE_ANOMALY_READ,
                                     SCOPE_TENANTS_READ, SCOPE_METRICS_READ,   SCOPE_APPROVAL_READ};
    (void)state;
    struct principal p = peer(true, 1000);
    principal_make_reader(&p);
    for (unsigned i = 0; i < SCOPES_N; i++) {
        bool wanted = false;
        for (size_t k = 0; k < sizeof may / sizeof may[0]; k++)
            wanted = wanted || i == may[k];
        assert_int_equal(principal_has(&p, (enum scope)i), wanted);
    }
    assert_string_equal(p.tenant, "uid:1000");
}

static void
a_principal_says_how_it_was_proven(void **state)
{
    (void)state;
    const struct principal local = peer(true, 1000), far = peer(false, 1000);
    assert_string_equal(local.tenant, "uid:1000");
    assert_int_equal(local.proof, PROOF_PEER);
    assert_int_equal(local.pid, 8);
    assert_string_equal(far.tenant, "tcp");
    assert_int_equal(far.proof, PROOF_NONE);
    assert_int_equal(far.uid, 0);
}

static void
every_scope_of_the_schema_is_known(void **state)
{
    (void)state;
    const struct method_rules *m;
    for (size_t i = 0; (m = validate_method_at(i)) != NULL; i++) {
        assert_int_not_equal(scope_find(m->scope), SCOPE_UNKNOWN);
        if (m->others_scope[0] != '\0')
            assert_true(scope_find(m->others_scope) == SCOPE_TENANTS_READ ||
                        scope_find(m->others_scope) == SCOPE_TENANTS_WRITE);
    }
    assert_int_equal(scope_find("sandbox.all"), SCOPE_UNKNOWN);
    assert_int_equal(scope_find(""), SCOPE_UNKNOWN);
}

static void
a_call_without_its_scope_does_not_reach_the_handler(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    struct conn *c = s->conn;
    c->principal.scopes &= ~(UINT32_C(1) << SCOPE_SANDBOX_WRITE);
    give_call(s, ID(1), NULL, "a");
    assert_next(s, ID(1), END, ERR_PERMISSION_DENIED);
    assert_int_equal(it.executed, 0);
    leave(s);
}

static void
an_unknown_credential_is_refused(void **state)
{
    (void)state;
    static char key[] = "authorization";
    static char value[] = "Bearer x";
    static char method[sizeof "/stockade.v1.SandboxService/Create"];
    struct transport_stream *s = open_one(0); // root, which has all scopes on a unix socket
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    Stockade__V1__Metadata m = STOCKADE__V1__METADATA__INIT;
    Stockade__V1__Metadata *all[] = {&m};
    memcpy(method, create_method, sizeof method);
    m.key = key;
    m.value = value;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = method;
    f.metadata = all;
    f.n_metadata = 1;
    give_frame(s, ID(1), &f);
    assert_next(s, ID(1), END, ERR_UNAUTHENTICATED);
    assert_int_equal(it.executed, 0);
    leave(s);
}

// ---- an authority

static struct {
    int says;
    struct call *waits;
    unsigned asked, given_up;
} authority;

static void
on_given_up(void *cookie, enum call_cancel why)
{
    (void)cookie;
    (void)why;
    authority.given_up++;
}

static int
decide(void *cookie, struct call *c, const ProtobufCMessage *request, struct err *e)
{
    (void)cookie;
    assert_non_null(request);
    authority.asked++;
    authority.waits = c;
    if (authority.says < 0)
        return err_set(e, ERR_PERMISSION_DENIED, "the authority says no");
    if (authority.says > 0)
        call_watch(c, on_given_up, NULL, NULL);
    return authority.says;
}

static struct transport_stream *
with_authority(int says)
{
    memset(&authority, 0, sizeof authority);
    authority.says = says;
    dispatch_set_authority(it.server.dispatch, decide, NULL);
    return open_one(1);
}

static void
an_authority_may_refuse_a_call(void **state)
{
    (void)state;
    struct transport_stream *s = with_authority(-1);
    give_call(s, ID(1), NULL, "a");
    assert_next(s, ID(1), END, ERR_PERMISSION_DENIED);
    assert_int_equal(it.executed, 0);
    leave(s);
}

static void
a_call_waits_for_a_decision_that_takes_time(void **state)
{
    (void)state;
    struct transport_stream *s = with_authority(1);
    give_call(s, ID(1), NULL, "a");
    give_call(s, ID(2), NULL, "b"); // is decided while the first one waits
    assert_int_equal(authority.asked, 2);
    assert_int_equal(it.executed, 0);
    dispatch_decide(authority.waits, NULL);
    pump(s);
    assert_int_equal(it.executed, 1);
    reply(s);
    assert_next(s, ID(2), END, 0);
    leave(s);
    assert_int_equal(authority.given_up, 1); // the first
}

static void
a_decision_may_be_a_refusal(void **state)
{
    (void)state;
    struct err e;
    struct transport_stream *s = with_authority(1);
    give_call(s, ID(1), NULL, "a");
    (void)err_set(&e, ERR_PERMISSION_DENIED, "nobody approved it");
    dispatch_decide(authority.waits, &e);
    pump(s);
    assert_next(s, ID(1), END, ERR_PERMISSION_DENIED);
    assert_int_equal(it.executed, 0);
    leave(s);
    assert_int_equal(authority.given_up, 0);
}

static void
a_call_that_is_cancelled_before_the_decision_never_runs(void **state)
{
    (void)state;
    struct transport_stream *s = with_authority(1);
    give_call(s, ID(1), NULL, "a");
    give_kind(s, ID(1), STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL);
    assert_int_equal(authority.given_up, 1);
    assert_next(s, ID(1), END, ERR_CANCELLED);
    assert_int_equal(it.executed, 0);
    leave(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_root_and_the_brokers_account_have_the_scopes_of_operators),
        TEST(a_reader_reads_what_belongs_to_all_tenants_and_no_output_and_changes_nothing),
        TEST(a_principal_says_how_it_was_proven),
        TEST(every_scope_of_the_schema_is_known),
        TEST(a_call_without_its_scope_does_not_reach_the_handler),
        TEST(an_unknown_credential_is_refused),
        TEST(an_authority_may_refuse_a_call),
        TEST(a_call_waits_for_a_decision_that_takes_time),
        TEST(a_decision_may_be_a_refusal),
        TEST(a_call_that_is_cancelled_before_the_decision_never_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
