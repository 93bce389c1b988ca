// SPDX-License-Identifier: Apache-2.0
// policy check: reads files as a broker would. policy test: runs the tests of their rules, and those of files of tests. Neither needs a
// broker, unless there are only files of tests: then the broker's policy is asked.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "policies.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "proto/yaml_message.h"
#include "proto/yaml_tree.h"

enum { HEX = 2 * POLICY_DIGEST + 1, ANSWER_MAX = 4 * 1024 * 1024 };

// ---- check

int
policies_check(const struct policing *p)
{
    struct policy *policy = NULL;
    struct policy_view v;
    struct err e;
    char digest[HEX];
    if (policies_read(p->words, p->words_n, true, &policy, &e) < 0)
        return policies_fail(p, &e);
    policy_view(policy, &v);
    (void)sodium_bin2hex(digest, sizeof digest, v.digest, sizeof v.digest);
    int code = EXIT_OK;
    if (p->o->json)
        code = json_put(json_pack("{sI sI sI sI ss}", "files", (json_int_t)v.files->n_files,
                                  "layers", (json_int_t)v.layers, "rules", (json_int_t)v.rules,
                                  "tests", (json_int_t)v.tests, "digest", digest));
    else
        (void)printf("ok: %u %s, %u %s, %u %s; digest %.16s\n", v.layers,
                     plural(v.layers, "layer", "layers"), v.rules, plural(v.rules, "rule", "rules"),
                     v.tests, plural(v.tests, "test", "tests"), digest);
    policy_free(policy);
    return code == EXIT_OK ? cli_flush(p->c) : code;
}

// ---- test

struct testing {
    const struct policing *p;
    const struct policy *policy; // NULL: the broker's
    json_t *failed;              // array
    unsigned run, failures;
};

static const char *
name_of(const Stockade__V1__PolicyTest *t, size_t number, char *out, size_t n)
{
    if (t->name[0] != '\0')
        (void)snprintf(out, n, "%zu (%.100s)", number, t->name);
    else
        (void)snprintf(out, n, "%zu", number);
    return out;
}

// What a test was about, and what came instead.
struct outcome {
    const char *file, *of; // of: a rule, or ""
    uint32_t line;
    size_t number;
    const Stockade__V1__PolicyTest *test;
    const char *verdict, *rule, *reason;
    bool passed;
    const char *note;
};

static void
note(struct testing *t, const struct outcome *x)
{
    char name[128], location[POLICY_RULE_NAME + 16] = "", line[16] = "";
    t->run++;
    if (x->passed)
        return;
    t->failures++;
    if (x->of[0] != '\0')
        (void)snprintf(location, sizeof location, "rule %s: ", x->of);
    if (x->line != 0)
        (void)snprintf(line, sizeof line, ":%u", x->line);
    (void)name_of(x->test, x->number, name, sizeof name);
    if (t->p->o->json) {
        (void)json_array_append_new(
            t->failed, json_pack("{ss sI ss sI ss s{ss ss} s{ss ss ss}}", "file", x->file, "line",
                                 (json_int_t)x->line, "of", x->of, "test", (json_int_t)x->number,
                                 "name", x->test->name, "expected", "verdict",
                                 policies_verdict(x->test->expect), "rule", x->test->rule, "got",
                                 "verdict", x->verdict, "rule", x->rule, "reason", x->reason));
        return;
    }
    (void)printf("FAIL %s%s: %stest %s: it expects %s%s%s, but the decision is %s%s%s%s%s%s%s\n",
                 x->file, line, location, name, policies_verdict(x->test->expect),
                 x->test->rule[0] != '\0' ? " by " : "", x->test->rule, x->verdict,
                 x->rule[0] != '\0' ? " by " : "", x->rule, x->reason[0] != '\0' ? " (" : "",
                 x->reason, x->reason[0] != '\0' ? ")" : "", x->note != NULL ? x->note : "");
}

static void
on_tested(void *cookie, const struct policy_tested *t)
{
    const struct outcome x = {.file = t->file,
                              .of = t->rule,
                              .line = t->line,
                              .number = t->number,
                              .test = t->test,
                              .verdict = policy_verdict_name[t->decision->verdict],
                              .rule = t->decision->rule,
                              .reason = t->decision->reason,
                              .passed = t->passed,
                              .note = t->note};
    note(cookie, &x);
}

static int
test_here(struct testing *t, const char *file, size_t number, const Stockade__V1__PolicyTest *m)
{
    static struct policy_decision d;
    struct err e;
    const int r = policy_test(t->policy, m, now_wall_ms(), &d, &e);
    if (r < 0) {
        (void)err_wrap(&e, "%s: test %zu", file, number);
        return policies_fail(t->p, &e);
    }
    const struct outcome x = {.file = file,
                              .of = "",
                              .number = number,
                              .test = m,
                              .verdict = policy_verdict_name[d.verdict],
                              .rule = d.rule,
                              .reason = d.reason,
                              .passed = r > 0};
    note(t, &x);
    return EXIT_OK;
}

// A call in words says as whom in its own field; the broker wants that beside it.
static int
test_there(struct testing *t, const char *file, size_t number, const Stockade__V1__PolicyTest *m)
{
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    Stockade__V1__ExplainRequest request = STOCKADE__V1__EXPLAIN_REQUEST__INIT;
    Stockade__V1__PolicyCall call = STOCKADE__V1__POLICY_CALL__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    if (a == NULL)
        return policies_no_memory(t->p);
    if (m->call != NULL)
        call = *m->call;
    request.tenant = call.tenant;
    request.credential = call.credential;
    call.tenant = "";
    request.call = &call;
    if (!policies_call(t->p, "Explain", &request.base, &stockade__v1__explain_response__descriptor,
                       a, &out, &code))
        return code;
    const Stockade__V1__ExplainResponse *got = (const Stockade__V1__ExplainResponse *)out;
    const struct outcome x = {.file = file,
                              .of = "",
                              .number = number,
                              .test = m,
                              .verdict = policies_verdict(got->verdict),
                              .rule = got->rule,
                              .reason = got->reason,
                              .passed = got->verdict == m->expect &&
                                        (m->rule[0] == '\0' || strcmp(m->rule, got->rule) == 0)};
    note(t, &x);
    return EXIT_OK;
}

// Whether a file holds tests alone: its key is `tests`.
static bool
is_tests(const Stockade__V1__PolicyFile *f)
{
    struct yaml *y = NULL;
    struct yaml_node *root = NULL;
    struct err unused;
    if (yaml_tree_read(f->name, f->text, strlen(f->text), false, &y, &root, &unused) < 0)
        return false;
    const bool found = root != NULL && root->kind == YAML_MAP && root->child != NULL &&
                       strcmp(root->child->key, "tests") == 0;
    yaml_tree_free(y);
    return found;
}

static int
run_file(struct testing *t, const Stockade__V1__PolicyFile *f)
{
    struct arena *auto_arena a = arena_new(POLICIES_ARENA);
    struct yaml *y = NULL;
    struct yaml_node *root = NULL;
    ProtobufCMessage *m = NULL;
    struct err e;
    int code = EXIT_OK;
    if (a == NULL)
        return policies_no_memory(t->p);
    int r = yaml_tree_read(f->name, f->text, strlen(f->text), false, &y, &root, &e);
    if (r == 0)
        r = yaml_message(f->name, root, &stockade__v1__policy_tests__descriptor, a, &m, &e);
    if (r < 0)
        code = policies_fail(t->p, &e);
    const Stockade__V1__PolicyTests *all = (const Stockade__V1__PolicyTests *)m;
    for (size_t i = 0; code == EXIT_OK && all != NULL && i < all->n_tests; i++)
        code = t->policy != NULL ? test_here(t, f->name, i + 1, all->tests[i])
                                 : test_there(t, f->name, i + 1, all->tests[i]);
    yaml_tree_free(y);
    return code;
}

static int
report(const struct testing *t)
{
    int code = EXIT_OK;
    if (t->p->o->json)
        code = json_put(json_pack("{sI sI sO}", "tests", (json_int_t)t->run, "failures",
                                  (json_int_t)t->failures, "failed", t->failed));
    else
        (void)printf("%u %s, %u failed\n", t->run, plural(t->run, "test", "tests"), t->failures);
    if (code == EXIT_OK)
        code = cli_flush(t->p->c);
    return code == EXIT_OK && t->failures > 0 ? EXIT_PROBLEM : code;
}

// Splits the files into policies and tests. The first part stays in *all.
static void
split(Stockade__V1__PolicyFiles *all, Stockade__V1__PolicyFile **tests, size_t *tests_n)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->n_files; i++)
        if (is_tests(all->files[i]))
            tests[(*tests_n)++] = all->files[i];
        else
            all->files[kept++] = all->files[i];
    all->n_files = kept;
}

static int
run_all(struct testing *t, Stockade__V1__PolicyFiles *files)
{
    Stockade__V1__PolicyFile *tests[POLICY_FILES_MAX];
    size_t tests_n = 0;
    struct policy *policy = NULL;
    struct err e;
    int code = EXIT_OK;
    split(files, tests, &tests_n);
    if (files->n_files > 0 && (policy_read_untested(files, &policy, &e) < 0 ||
                               policy_run_tests(policy, on_tested, t, &e) < 0))
        code = policies_fail(t->p, &e);
    t->policy = policy;
    for (size_t i = 0; i < tests_n && code == EXIT_OK; i++)
        code = run_file(t, tests[i]);
    if (code == EXIT_OK)
        code = report(t);
    policy_free(policy);
    return code;
}

int
policies_test(const struct policing *p)
{
    struct arena *auto_arena a = arena_new(POLICIES_ARENA);
    struct testing t = {.p = p, .failed = json_array()};
    Stockade__V1__PolicyFiles files;
    const char *paths[POLICY_FILES_MAX + 1];
    int n = 0;
    struct err e;
    if (a == NULL)
        return policies_no_memory(p);
    if (p->o->policy_file != NULL)
        paths[n++] = p->o->policy_file;
    for (int i = 0; i < p->words_n && n <= POLICY_FILES_MAX; i++)
        paths[n++] = p->words[i];
    const int code =
        policies_files(paths, n, a, &files, &e) < 0 ? policies_fail(p, &e) : run_all(&t, &files);
    json_decref(t.failed);
    return code;
}
