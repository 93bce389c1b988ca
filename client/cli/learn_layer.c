// SPDX-License-Identifier: Apache-2.0
// See learn_private.h: what was seen of a template --> the layer of a policy.
#include <stdio.h>

#include "learn_private.h"

#define VERDICT(name) STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_##name

static const char *const runs[] = {"ProcessService/Run", "ProcessService/Start"};
static const char *const all_runs[] = {"ProcessService/Run", "ProcessService/Start",
                                       "ProcessService/AddToBatch", "CodeService/*"};
static const char *const makes[] = {"SandboxService/*"};
static const char *const puts_files[] = {"FileService/Write", "FileService/OpenWrite",
                                         "FileService/Upload"};
static const char *const gets_files[] = {"FileService/Read", "FileService/Download",
                                         "SnapshotService/DiffFile"};
static const char *const moves_files[] = {"FileService/Write",    "FileService/OpenWrite",
                                          "FileService/Upload",   "FileService/Read",
                                          "FileService/Download", "SnapshotService/DiffFile"};
static const char *const any[] = {"*"};

static Stockade__V1__PolicyRule *
add_rule(struct making *m, const char *id, Stockade__V1__PolicyVerdict verdict, const char *reason)
{
    const size_t i = m->layer.n_rules++;
    stockade__v1__policy_rule__init(&m->rule[i]);
    stockade__v1__policy_match__init(&m->match[i]);
    m->rule[i].id = id;
    m->rule[i].verdict = verdict;
    m->rule[i].reason = reason;
    m->rule[i].match = &m->match[i];
    m->rules[i] = &m->rule[i];
    return &m->rule[i];
}

#define SET_LIST(message, field, list, count)                                                      \
    ((message)->field = (const char **)(uintptr_t)(list), (message)->n_##field = (count))

static void
add_runs(struct making *m, const char *id, bool lines, const struct set *words)
{
    if (words->n == 0)
        return;
    Stockade__V1__PolicyMatch *match = add_rule(m, id, VERDICT(ALLOW), "")->match;
    SET_LIST(match, methods, runs, 2);
    if (lines)
        SET_LIST(match, lines, words->word, words->n);
    else
        SET_LIST(match, commands, words->word, words->n);
    if (m->destinations_n > 0)
        SET_LIST(match, destinations, m->destinations, m->destinations_n);
}

static void
add_other_network(struct making *m)
{
    static const char reason[] = "the learnt jobs reached other destinations, or none";
    Stockade__V1__PolicyMatch *match =
        add_rule(m, "other-destinations", VERDICT(DENY), reason)->match;
    SET_LIST(match, destinations, any, 1);
}

static void
add_tests(struct making *m, Stockade__V1__PolicyRule *to)
{
    static const char *const other[] = {"something-that-nobody-ran"};
    for (size_t i = 0; i <= m->s->tests_n; i++) {
        const bool last = i == m->s->tests_n;
        stockade__v1__policy_test__init(&m->test[i]);
        stockade__v1__policy_call__init(&m->call[i]);
        m->call[i].template_ = m->s->template;
        if (last)
            SET_LIST(&m->call[i], command, other, 1);
        else
            SET_LIST(&m->call[i], command, m->s->args[i], m->s->args_n[i]);
        m->test[i].call = &m->call[i];
        m->test[i].expect = last ? VERDICT(DENY) : VERDICT(ALLOW);
        m->tests[i] = &m->test[i];
    }
    to->tests = m->tests;
    to->n_tests = m->s->tests_n + 1;
}

static void
add_paths(struct making *m, const char *id, const char *const methods[3], const struct set *paths)
{
    if (paths->n == 0)
        return;
    Stockade__V1__PolicyMatch *match = add_rule(m, id, VERDICT(ALLOW), "")->match;
    SET_LIST(match, methods, methods, 3);
    SET_LIST(match, paths, paths->word, paths->n);
}

static void
add_path_test(struct making *m, size_t i, const char *method, const char *const *path,
              Stockade__V1__PolicyVerdict expect)
{
    stockade__v1__policy_test__init(&m->path_test[i]);
    stockade__v1__policy_call__init(&m->path_call[i]);
    m->path_call[i].template_ = m->s->template;
    m->path_call[i].method = method;
    SET_LIST(&m->path_call[i], paths, path, 1);
    m->path_test[i].call = &m->path_call[i];
    m->path_test[i].expect = expect;
    m->path_tests[i] = &m->path_test[i];
}

// Only if a transfer was seen: a policy that was learnt from commands alone says nothing about files.
static void
add_files(struct making *m)
{
    static const char *const other[] = {"/something/that/nobody/moved"};
    const struct seen *s = m->s;
    size_t n = 0;
    if (s->put.n + s->got.n == 0)
        return;
    add_paths(m, "files-in", puts_files, &s->put);
    add_paths(m, "files-out", gets_files, &s->got);
    Stockade__V1__PolicyRule *rule =
        add_rule(m, "other-files", VERDICT(DENY), "no learnt transfer had this path");
    SET_LIST(rule->match, methods, moves_files, 6);
    for (size_t i = 0; i < s->put.n && n < TEST_PATHS / 2; i++)
        add_path_test(m, n++, puts_files[0], &s->put.word[i], VERDICT(ALLOW));
    for (size_t i = 0; i < s->got.n && n < TEST_PATHS; i++)
        add_path_test(m, n++, gets_files[0], &s->got.word[i], VERDICT(ALLOW));
    add_path_test(m, n++, gets_files[0], other, VERDICT(DENY));
    rule->tests = m->path_tests;
    rule->n_tests = n;
}

void
learn_layer(struct making *m, const struct seen *s, bool complete)
{
    static const char about[] = "learnt from jobs: review it before it is used";
    static const char narrow[] =
        "learnt from jobs of which not all is known, so it may be too narrow: review it before it is used";
    *m = (struct making){.s = s};
    stockade__v1__policy_layer__init(&m->layer);
    (void)snprintf(m->name, sizeof m->name, "learnt.%.33s", s->template);
    m->layer.name = m->name;
    m->layer.about = complete ? about : narrow;
    m->templates[0] = s->template;
    SET_LIST(&m->layer, templates, m->templates, 1);
    m->layer.rules = m->rules;
    add_files(m);
    for (size_t i = 0; i < s->reached.n; i++)
        m->destinations[m->destinations_n++] = s->reached.word[i];
    for (size_t i = 0; i < s->denied.n && m->destinations_n < WORDS_OF_SET; i++)
        m->destinations[m->destinations_n++] = s->denied.word[i];
    if (m->destinations_n == 0)
        add_other_network(m); // before the others: they do not say what a network must be
    add_runs(m, "commands", false, &s->commands);
    add_runs(m, "lines", true, &s->lines);
    if (m->destinations_n > 0) {
        Stockade__V1__PolicyMatch *match = add_rule(m, "destinations", VERDICT(ALLOW), "")->match;
        SET_LIST(match, methods, makes, 1);
        SET_LIST(match, destinations, m->destinations, m->destinations_n);
        add_other_network(m);
    }
    Stockade__V1__PolicyRule *other =
        add_rule(m, "other-commands", VERDICT(DENY), "no learnt job ran this command");
    SET_LIST(other->match, methods, all_runs, 4);
    add_tests(m, other);
}
