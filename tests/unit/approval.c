// SPDX-License-Identifier: Apache-2.0
// server/access/approval: what is refused, what a grant covers, and what a restart keeps.
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

#include "proto/validate.h"
#include "proto/wire.h"
#include "server/access/access.h"
#include "server/access/approval.h"
#include "server/api/approval_call.h"
#include "server/base/metrics.h"
#include "server/state/state.h"
#include "stockade/v1/process_service.pb-c.h"

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static struct {
    char folder[64];
    uv_loop_t loop;
    struct state *state;
    struct access_settings settings;
    struct access *access;
    struct approvals *approvals;
    struct arena *arena;
    struct principal agent, other_agent, first, second, stranger, root;
} it;

static void
open_all(void)
{
    struct err e;
    assert_int_equal(uv_loop_init(&it.loop), 0);
    assert_int_equal(state_open(it.folder, &it.state, &e), 0);
    assert_int_equal(access_new(it.state, &it.settings, &it.access, &e), 0);
    assert_int_equal(approvals_new(it.access, it.state, &it.loop, &it.approvals, &e), 0);
    assert_int_equal(state_start(it.state, &it.loop, &e), 0);
}

static void
close_all(void)
{
    state_close(it.state);
    approvals_free(it.approvals);
    access_free(it.access);
    (void)uv_run(&it.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&it.loop), 0);
}

static struct principal
key_of(const char *tenant, const char *id)
{
    struct principal p = {.proof = PROOF_KEY, .scopes = scopes_usual()};
    (void)snprintf(p.tenant, sizeof p.tenant, "%s", tenant);
    (void)snprintf(p.credential_id, sizeof p.credential_id, "%s", id);
    return p;
}

static int
set_up(void **unused)
{
    (void)unused;
    struct err e;
    memset(&it, 0, sizeof it);
    assert_int_equal(validate_init(&e), 0);
    (void)snprintf(it.folder, sizeof it.folder, "/tmp/stockade-approvals-XXXXXX");
    assert_non_null(mkdtemp(it.folder));
    access_settings_default(&it.settings);
    it.arena = arena_new(16 * 1024 * 1024);
    assert_non_null(it.arena);
    it.agent = key_of("team", "aaaa");
    it.other_agent = key_of("team", "bbbb");
    it.first = key_of("team", "cccc");
    it.second = key_of("security", "dddd");
    it.stranger = key_of("else", "eeee");
    it.root = (struct principal){.tenant = "uid:0", .proof = PROOF_PEER};
    metrics_clear();
    open_all();
    return 0;
}

static int
tear_down(void **unused)
{
    char path[128];
    (void)unused;
    close_all();
    arena_free(it.arena);
    (void)snprintf(path, sizeof path, "%s/stockade.db", it.folder);
    (void)unlink(path);
    return rmdir(it.folder);
}

// ---- calls

static struct approval_call
run_of(const char *workdir, size_t n, const char **args)
{
    struct err e;
    struct approval_call call;
    Stockade__V1__RunRequest m = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command c = STOCKADE__V1__COMMAND__INIT;
    m.command = &c;
    c.n_args = n;
    c.args = args;
    c.workdir = workdir;
    assert_int_equal(approval_call_read("ProcessService/Run", &m.base, it.arena, &call, &e), 0);
    return call;
}

static struct approval_call
echo(const char *word)
{
    const char *args[] = {"echo", word};
    return run_of("/tmp", LENGTH(args), args);
}

struct answer {
    bool came;
    int32_t code;
    char reason[40], id[88];
    Stockade__V1__ApprovalState state;
};

static void
take(struct answer *a, const struct err *e)
{
    a->came = true;
    a->code = e->code;
    memcpy(a->reason, e->code == ERR_RESOURCE_EXHAUSTED ? e->rule : e->reason, sizeof a->reason);
    memcpy(a->id, e->subject, sizeof a->id);
}
static void
on_done(void *cookie, const struct approval *a, const struct err *e)
{
    struct answer *answer = cookie;
    answer->came = true;
    if (e != NULL)
        take(answer, e);
    if (a != NULL)
        answer->state = a->state;
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
static void
settle(int r, struct answer *a, const struct err *e)
{
    if (r < 0)
        take(a, e);
    else if (r > 0)
        wait_for(a);
}
static struct answer
ask_with(const struct approval_ask *ask)
{
    struct answer a = {0};
    struct approval_op *op = NULL;
    struct err e;
    settle(approvals_ask(it.approvals, ask, on_done, &a, &op, &e), &a, &e);
    return a;
}

// By the agent, with the id of an approval or NULL.
static struct answer
ask(const struct approval_call *call, const char *id)
{
    const struct approval_ask one = {.who = &it.agent, .call = call, .rule = "r1", .id = id};
    return ask_with(&one);
}

static struct answer
answer_as(const struct principal *who, const char *whose, const struct approval_vote *vote)
{
    struct answer a = {0};
    struct approval_op *op = NULL;
    struct err e;
    struct approval_vote v = *vote;
    v.who = who;
    v.whose = whose;
    v.comment = "because";
    settle(approvals_answer(it.approvals, &v, on_done, &a, &op, &e), &a, &e);
    return a;
}

static struct answer
agree(const struct principal *who, const char *id, const Stockade__V1__ApprovalGrant *grant)
{
    const struct approval_vote vote = {.id = id, .agrees = true, .grant = grant};
    return answer_as(who, who->tenant, &vote);
}

static struct answer
deny(const struct principal *who, const char *id)
{
    const struct approval_vote vote = {.id = id};
    return answer_as(who, who->tenant, &vote);
}

static void
expect(struct answer a, const char *reason)
{
    assert_string_equal(a.reason, reason);
}

static Stockade__V1__ApprovalGrant
grant_of(Stockade__V1__ApprovalReach reach, const char *pattern)
{
    Stockade__V1__ApprovalGrant g = STOCKADE__V1__APPROVAL_GRANT__INIT;
    g.reach = reach;
    g.pattern = pattern;
    return g;
}

static void
a_call_that_needs_an_approval_is_refused_until_it_has_one(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a");
    const struct answer first = ask(&call, NULL), again = ask(&call, NULL);
    assert_string_equal(first.reason, "APPROVAL_PENDING");
    assert_string_equal(again.reason, "APPROVAL_PENDING");
    assert_string_equal(again.id, first.id); // the same one
    expect(agree(&it.first, first.id, NULL), "");
    expect(ask(&call, NULL), "");
}

static void
nobody_answers_an_approval_of_its_own(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a");
    const struct answer pending = ask(&call, NULL);
    expect(agree(&it.agent, pending.id, NULL), "APPROVAL_OWN");
    expect(deny(&it.agent, pending.id), "APPROVAL_OWN");
    const struct approval_vote vote = {.id = pending.id, .agrees = true};
    expect(answer_as(&it.agent, NULL, &vote), "APPROVAL_OWN"); // with all rights
    expect(ask(&call, NULL), "APPROVAL_PENDING");
}

static void
other_tenants_see_nothing_and_answer_nothing(void **unused)
{
    (void)unused;
    struct err e;
    const struct approval_call call = echo("a");
    const struct answer pending = ask(&call, NULL);
    const struct answer refused = agree(&it.stranger, pending.id, NULL);
    assert_int_equal(refused.code, ERR_NOT_FOUND);
    assert_null(approvals_find(it.approvals, &it.stranger, "else", pending.id, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    const struct approval_ask theirs = {
        .who = &it.stranger, .call = &call, .rule = "r1", .id = pending.id};
    assert_int_equal(ask_with(&theirs).code, ERR_NOT_FOUND);
    assert_non_null(approvals_find(it.approvals, &it.root, NULL, pending.id, &e));
}

static void
only_named_approvers_count_also_of_another_tenant(void **unused)
{
    (void)unused;
    struct err e;
    static const char *const approvers[] = {"security"};
    const struct approval_call call = echo("a");
    const struct approval_ask one = {
        .who = &it.agent, .call = &call, .approvers_n = 1, .approvers = approvers};
    const struct answer pending = ask_with(&one);
    expect(agree(&it.first, pending.id, NULL), "APPROVAL_NOT_APPROVER");
    const struct approval_vote vote = {.id = pending.id, .agrees = true};
    expect(answer_as(&it.root, NULL, &vote), "APPROVAL_NOT_APPROVER");
    assert_non_null(approvals_find(it.approvals, &it.second, "security", pending.id, &e));
    expect(agree(&it.second, pending.id, NULL), "");
    expect(ask_with(&one), "");
}

static void
two_calls_at_once_do_not_share_one_approval(void **unused)
{
    (void)unused;
    struct approval_op *op = NULL;
    struct err e;
    const struct approval_call call = echo("a");
    struct answer one = {0}, other = {0};
    const struct answer pending = ask(&call, NULL);
    expect(agree(&it.first, pending.id, NULL), "");
    const struct approval_ask a = {.who = &it.agent, .call = &call, .id = pending.id};
    assert_int_equal(approvals_ask(it.approvals, &a, on_done, &one, &op, &e), 1);
    assert_int_equal(approvals_ask(it.approvals, &a, on_done, &other, &op, &e), 1);
    wait_for(&one);
    wait_for(&other);
    assert_string_equal(one.reason, "");
    assert_string_equal(other.reason, "APPROVAL_USED");
    const struct answer next = ask(&call, NULL); // and later none
    assert_string_equal(next.reason, "APPROVAL_PENDING");
    assert_string_not_equal(next.id, pending.id);
}

static void
a_changed_call_another_caller_and_an_answer_to_another_call_are_refused(void **unused)
{
    (void)unused;
    const char *args[] = {"echo", "a"};
    const struct approval_call call = echo("a"), changed = echo("b"),
                               elsewhere = run_of("/", LENGTH(args), args);
    const struct answer pending = ask(&call, NULL);
    const struct approval_vote wrong = {.id = pending.id, .agrees = true, .digest = changed.digest};
    const struct approval_vote right = {.id = pending.id, .agrees = true, .digest = call.digest};
    expect(answer_as(&it.first, "team", &wrong), "APPROVAL_MISMATCH"); // the approver saw that one
    expect(answer_as(&it.first, "team", &right), "");
    expect(ask(&changed, pending.id), "APPROVAL_MISMATCH");
    expect(ask(&elsewhere, pending.id), "APPROVAL_MISMATCH");
    const struct approval_ask other = {.who = &it.other_agent, .call = &call, .id = pending.id};
    expect(ask_with(&other), "APPROVAL_MISMATCH");
    expect(ask(&call, pending.id), "");
}

static void
as_many_approvers_as_needed_must_agree(void **unused)
{
    (void)unused;
    static const char *const approvers[] = {"team/key:cccc", "security"};
    const struct approval_call call = echo("a");
    const struct approval_ask one = {
        .who = &it.agent, .call = &call, .approvers_n = 2, .approvers = approvers, .needed = 2};
    const struct answer pending = ask_with(&one);
    const struct answer half = agree(&it.first, pending.id, NULL);
    assert_int_equal(half.state, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING);
    expect(agree(&it.first, pending.id, NULL), "APPROVAL_ANSWERED");
    expect(ask_with(&one), "APPROVAL_PENDING");
    const struct answer whole = agree(&it.second, pending.id, NULL);
    assert_int_equal(whole.state, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED);
    expect(ask_with(&one), "");
}

static void
votes_do_not_count_for_a_rule_that_names_others(void **unused)
{
    (void)unused;
    static const char *const approvers[] = {"security"};
    const struct approval_call call = echo("a");
    const struct answer pending = ask(&call, NULL); // of a rule that names nobody
    expect(agree(&it.first, pending.id, NULL), "");
    const struct approval_ask stricter = {
        .who = &it.agent, .call = &call, .approvers_n = 1, .approvers = approvers};
    const struct approval_ask by_id = {.who = &it.agent,
                                       .call = &call,
                                       .approvers_n = 1,
                                       .approvers = approvers,
                                       .id = pending.id};
    expect(ask_with(&by_id), "APPROVAL_MISMATCH");
    const struct answer next = ask_with(&stricter);
    assert_string_equal(next.reason, "APPROVAL_PENDING");
    assert_string_not_equal(next.id, pending.id);
}

static void
one_denial_is_enough_and_lasts_a_while(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a"), other = echo("b");
    const struct answer pending = ask(&call, NULL);
    expect(deny(&it.first, pending.id), "");
    expect(agree(&it.other_agent, pending.id, NULL), "APPROVAL_ENDED");
    const struct answer again = ask(&call, NULL); // the approvers are not asked again
    assert_string_equal(again.reason, "APPROVAL_DENIED");
    expect(ask(&call, pending.id), "APPROVAL_DENIED");
    expect(ask(&other, NULL), "APPROVAL_PENDING");
}

static void
a_session_permits_the_same_call_again(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a"), other = echo("b");
    const Stockade__V1__ApprovalGrant g =
        grant_of(STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_SESSION, "");
    const struct answer pending = ask(&call, NULL);
    expect(agree(&it.first, pending.id, &g), "");
    for (int i = 0; i < 3; i++)
        expect(ask(&call, NULL), "");
    expect(ask(&other, NULL), "APPROVAL_PENDING");
}

static void
a_pattern_covers_the_command_line_alone(void **unused)
{
    (void)unused;
    const char *args[] = {"echo", "abc"};
    const char *split[] = {"echo", "a", "b"};
    const char *joined[] = {"echo a"};
    const struct approval_call call = echo("a"), match = echo("abc"), other = echo("b"),
                               elsewhere = run_of("/", LENGTH(args), args);
    const struct approval_call more = run_of("/tmp", LENGTH(split), split);
    const struct approval_call program = run_of("/tmp", LENGTH(joined), joined);
    Stockade__V1__ApprovalGrant g =
        grant_of(STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_PATTERN, "");
    const struct answer pending = ask(&call, NULL);
    assert_int_equal(agree(&it.first, pending.id, &g).code, ERR_INVALID_ARGUMENT);
    g.pattern = "echo a*";
    expect(agree(&it.first, pending.id, &g), "");
    expect(ask(&match, NULL), "");
    expect(ask(&more, NULL), "");
    expect(ask(&other, NULL), "APPROVAL_PENDING");
    expect(ask(&elsewhere, NULL), "APPROVAL_PENDING");
    expect(ask(&program, NULL), "APPROVAL_PENDING"); // 'echo a' is one word
}

static void
the_narrowest_grant_counts(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a");
    const struct approval_ask two = {.who = &it.agent, .call = &call, .needed = 2};
    const Stockade__V1__ApprovalGrant wide =
        grant_of(STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_SESSION, "");
    const struct answer pending = ask_with(&two);
    expect(agree(&it.first, pending.id, &wide), "");
    expect(agree(&it.other_agent, pending.id, NULL), "");
    expect(ask_with(&two), "");
    expect(ask_with(&two), "APPROVAL_PENDING");
}

static void
the_requester_withdraws_its_own(void **unused)
{
    (void)unused;
    struct approval_op *op = NULL;
    struct err e;
    struct answer a = {0};
    const struct approval_call call = echo("a");
    const struct answer pending = ask(&call, NULL);
    struct approval_vote by = {.who = &it.other_agent, .whose = "team", .id = pending.id};
    assert_true(approvals_cancel(it.approvals, &by, on_done, &a, &op, &e) < 0);
    assert_string_equal(e.reason, "APPROVAL_NOT_REQUESTER");
    by.who = &it.agent;
    assert_int_equal(approvals_cancel(it.approvals, &by, on_done, &a, &op, &e), 1);
    wait_for(&a);
    expect(agree(&it.first, pending.id, NULL), "APPROVAL_ENDED");
    expect(ask(&call, pending.id), "APPROVAL_CANCELLED");
}

struct watched {
    struct approval_watcher w;
    struct answer answer;
    Stockade__V1__ApprovalState state;
};

static void
on_changed(void *cookie, const struct approval *a)
{
    struct watched *w = cookie;
    w->state = a->state;
    w->answer.came = a->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
}

static void
without_an_answer_it_expires_and_that_is_a_denial(void **unused)
{
    (void)unused;
    const struct approval_call call = echo("a");
    const struct approval_ask soon = {.who = &it.agent, .call = &call, .timeout_ms = 1};
    struct watched w = {.w = {.changed = on_changed}};
    w.w.cookie = &w;
    approvals_watch(it.approvals, &w.w);
    const struct answer pending = ask_with(&soon);
    wait_for(&w.answer);
    assert_int_equal(w.state, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_EXPIRED);
    expect(agree(&it.first, pending.id, NULL), "APPROVAL_ENDED");
    expect(ask(&call, pending.id), "APPROVAL_EXPIRED");
    list_remove(&w.w.node);
    assert_int_equal(metrics_value(METRIC_APPROVALS_PENDING, 0, 0), 0);
    assert_int_equal(metrics_value(METRIC_APPROVALS_ANSWERED,
                                   STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_EXPIRED, 0),
                     1);
}

static void
a_restart_keeps_pending_granted_and_used_ones(void **unused)
{
    (void)unused;
    const struct approval_call one = echo("a"), two = echo("b"), three = echo("c");
    const struct answer pending = ask(&one, NULL), granted = ask(&two, NULL),
                        used = ask(&three, NULL);
    expect(agree(&it.first, granted.id, NULL), "");
    expect(agree(&it.first, used.id, NULL), "");
    expect(ask(&three, used.id), "");
    const uint64_t revision = approvals_revision(it.approvals);
    close_all();
    metrics_clear();
    open_all();
    assert_int_equal(approvals_revision(it.approvals), revision);
    assert_int_equal(metrics_value(METRIC_APPROVALS_PENDING, 0, 0), 1);
    expect(ask(&three, used.id), "APPROVAL_USED");
    expect(ask(&two, granted.id), "");
    expect(ask(&one, NULL), "APPROVAL_PENDING");
    expect(agree(&it.first, pending.id, NULL), "");
    expect(ask(&one, pending.id), "");
    assert_non_null(approvals_changed_after(it.approvals, revision));
}

static struct answer
ask_number(int i)
{
    char word[16];
    (void)snprintf(word, sizeof word, "%d", i);
    const struct approval_call call = echo(word);
    return ask(&call, NULL);
}

static void
a_tenant_has_a_number_of_pending_and_of_valid_ones(void **unused)
{
    (void)unused;
    enum { PENDING = APPROVALS_PENDING_OF_TENANT, KEPT = APPROVALS_KEPT_OF_TENANT };
    const struct approval_call call = echo("one more");
    for (int i = 0; i < KEPT; i++) {
        const struct answer one = ask_number(i);
        expect(one, "APPROVAL_PENDING");
        if (i < KEPT - PENDING)
            expect(agree(&it.first, one.id, NULL), "");
    }
    expect(ask(&call, NULL), "approvals.pending_of_tenant");
    expect(deny(&it.first, ask_number(KEPT - 1).id), "");
    expect(agree(&it.first, ask(&call, NULL).id, NULL), ""); // the denied one gives way
    expect(ask_number(KEPT), "approvals.kept_of_tenant");
    const struct approval_ask other = {.who = &it.stranger, .call = &call};
    expect(ask_with(&other), "APPROVAL_PENDING"); // a tenant fills only its own part
}

static void
what_has_ended_is_forgotten_before_what_is_in_use(void **unused)
{
    (void)unused;
    struct err e;
    const struct approval_call call = echo("kept");
    const Stockade__V1__ApprovalGrant g =
        grant_of(STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_SESSION, "");
    expect(agree(&it.first, ask(&call, NULL).id, &g), "");
    struct answer first = {0};
    for (int i = 0; i <= APPROVALS_KEPT_OF_TENANT; i++) {
        const struct answer one = ask_number(i);
        assert_string_equal(one.reason, "APPROVAL_PENDING");
        expect(deny(&it.first, one.id), "");
        first = i == 0 ? one : first;
    }
    assert_null(approvals_find(it.approvals, &it.agent, "team", first.id, &e));
    expect(ask(&call, NULL), "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_answers_an_approval_of_its_own),
        TEST(other_tenants_see_nothing_and_answer_nothing),
        TEST(only_named_approvers_count_also_of_another_tenant),
        TEST(a_changed_call_another_caller_and_an_answer_to_another_call_are_refused),
        TEST(votes_do_not_count_for_a_rule_that_names_others),
        TEST(one_denial_is_enough_and_lasts_a_while),
        TEST(without_an_answer_it_expires_and_that_is_a_denial),
        TEST(a_call_that_needs_an_approval_is_refused_until_it_has_one),
        TEST(two_calls_at_once_do_not_share_one_approval),
        TEST(as_many_approvers_as_needed_must_agree),
        TEST(a_session_permits_the_same_call_again),
        TEST(a_pattern_covers_the_command_line_alone),
        TEST(the_narrowest_grant_counts),
        TEST(the_requester_withdraws_its_own),
        TEST(a_restart_keeps_pending_granted_and_used_ones),
        TEST(a_tenant_has_a_number_of_pending_and_of_valid_ones),
        TEST(what_has_ended_is_forgotten_before_what_is_in_use),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
