// SPDX-License-Identifier: Apache-2.0
// See learn.h. Jobs --> sets of words by template --> messages of a policy --> YAML.
#include "learn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/target.h"
#include "proto/utf8.h"
#include "proto/yaml_write.h"
#include "server/access/policy.h"

enum {
    ARENA_MAX = 16 * 1024 * 1024,
    TEMPLATES = 16,
    WORDS_OF_SET = 256,
    COMMAND_MAX = 1024, // of a pattern
    TEXT_MAX = 2 * 1024 * 1024,
    TEST_COMMANDS = 8,
};

#define VERDICT(name) STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_##name

// Different texts in the order in which they came.
struct set {
    const char *word[WORDS_OF_SET];
    size_t n, left_out;
};

// What was seen of one template.
struct seen {
    const char *template;
    // Commands whose words have no blank in them, and others, as one text.
    struct set commands, lines;
    struct set reached, denied; // destinations
    struct set executed;
    // Of some commands, their words, for tests.
    const char **args[TEST_COMMANDS];
    size_t args_n[TEST_COMMANDS], tests_n;
};

struct learning {
    struct arena *arena;
    struct seen seen[TEMPLATES];
    size_t n;
};

struct learning *
learning_new(void)
{
    struct learning *l = calloc(1, sizeof *l);
    if (l != NULL)
        l->arena = arena_new(ARENA_MAX);
    if (l != NULL && l->arena == NULL)
        free(take_ptr(l));
    return l;
}

void
learning_free(struct learning *l)
{
    if (l == NULL)
        return;
    arena_free(l->arena);
    free(l);
}

// ---- adding

static int
no_memory(struct err *e)
{
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "learn a policy: out of memory");
}

static int
add_word(struct learning *l, struct set *s, const char *word, struct err *e)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->word[i], word) == 0)
            return 0;
    if (s->n == WORDS_OF_SET) {
        s->left_out++;
        return 0;
    }
    s->word[s->n] = arena_copy(l->arena, word, strlen(word));
    return s->word[s->n++] != NULL ? 0 : no_memory(e);
}

static int
find_template(struct learning *l, const char *template, struct seen **out, struct err *e)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->seen[i].template, template) == 0) {
            *out = &l->seen[i];
            return 0;
        }
    if (l->n == TEMPLATES)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "learn a policy: more than %d templates",
                       TEMPLATES);
    *out = &l->seen[l->n];
    (*out)->template = arena_copy(l->arena, template, strlen(template));
    if ((*out)->template == NULL)
        return no_memory(e);
    l->n++;
    return 0;
}

// Whether each word stays one word in a pattern: commands are split at blanks.
static bool
is_splittable(const char *const *args, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (args[i][0] == '\0' || strchr(args[i], ' ') != NULL)
            return false;
    return strcmp(args[n - 1], "...") != 0;
}

// A control character cannot stand in a policy: any text may be in its place.
static void
put_char(char out[COMMAND_MAX + 1], size_t *used, char c)
{
    const bool plain = (unsigned char)c >= 0x20 && c != 0x7f;
    if (!plain && *used > 0 && out[*used - 1] == '*')
        return;
    if (*used < COMMAND_MAX)
        out[(*used)++] = (char)(plain ? c : '*');
}

static void
make_pattern(const char *const *args, size_t n, char out[COMMAND_MAX + 1])
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            put_char(out, &used, ' ');
        for (const char *p = args[i]; *p != '\0'; p++)
            put_char(out, &used, *p);
    }
    out[used] = '\0';
    if (used == COMMAND_MAX) // any text may be in place of what does not fit
        (void)snprintf(out + utf8_cut(out, COMMAND_MAX - 1), 2, "*");
}

static int
add_test(struct learning *l, struct seen *s, const char *const *args, size_t n, struct err *e)
{
    if (s->tests_n == TEST_COMMANDS)
        return 0;
    const char **copy = arena_alloc(l->arena, (n + 1) * sizeof(void *));
    for (size_t i = 0; i < n && copy != NULL; i++) {
        for (const char *p = args[i]; *p != '\0'; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                return 0; // it cannot be written
        copy[i] = arena_copy(l->arena, args[i], strlen(args[i]));
        if (copy[i] == NULL)
            return no_memory(e);
    }
    if (copy == NULL)
        return no_memory(e);
    s->args_n[s->tests_n] = n;
    s->args[s->tests_n++] = copy;
    return 0;
}

static int
add_command(struct learning *l, struct seen *s, const char *const *args, size_t n, struct err *e)
{
    char pattern[COMMAND_MAX + 1];
    if (n == 0)
        return 0;
    make_pattern(args, n, pattern);
    struct set *to =
        is_splittable(args, n) && strlen(pattern) < COMMAND_MAX ? &s->commands : &s->lines;
    const size_t before = to->n;
    int r = add_word(l, to, pattern, e);
    return r == 0 && to->n > before ? add_test(l, s, args, n, e) : r;
}

// Only what a policy can name.
static int
add_destination(struct learning *l, struct set *to, const char *text, struct err *e)
{
    struct target_text unused;
    struct err none;
    return target_parse(text, &unused, &none) == 0 ? add_word(l, to, text, e) : 0;
}

static int
add_record(struct learning *l, struct seen *s, const Stockade__V1__Record *m, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < m->n_reached && r == 0; i++)
        r = add_destination(l, &s->reached, m->reached[i], e);
    for (size_t i = 0; i < m->n_denials && r == 0; i++) {
        static const char *const operations[] = {"connect", "sendmsg", "dns", "relay"};
        for (size_t k = 0; k < sizeof operations / sizeof operations[0] && r == 0; k++)
            if (strcmp(m->denials[i]->operation, operations[k]) == 0)
                r = add_destination(l, &s->denied, m->denials[i]->destination, e);
    }
    for (size_t i = 0; i < m->n_executed && r == 0; i++)
        r = add_word(l, &s->executed, m->executed[i]->path, e);
    return r;
}

int
learning_add(struct learning *l, const char *template, const char *const *args, size_t args_n,
             const Stockade__V1__Record *record, struct err *e)
{
    struct seen *s = NULL;
    int r = find_template(l, template[0] != '\0' ? template : "default", &s, e);
    if (r == 0)
        r = add_command(l, s, args, args_n, e);
    return r == 0 && record != NULL ? add_record(l, s, record, e) : r;
}

// ---- the messages

enum { RULES_OF_LAYER = 6 };

struct making {
    const struct seen *s;
    Stockade__V1__PolicyLayer layer;
    char name[41];
    const char *templates[1];
    Stockade__V1__PolicyRule rule[RULES_OF_LAYER], *rules[RULES_OF_LAYER];
    Stockade__V1__PolicyMatch match[RULES_OF_LAYER];
    const char *destinations[2 * WORDS_OF_SET];
    size_t destinations_n;
    Stockade__V1__PolicyTest test[TEST_COMMANDS + 1], *tests[TEST_COMMANDS + 1];
    Stockade__V1__PolicyCall call[TEST_COMMANDS + 1];
};

static const char *const runs[] = {"ProcessService/Run", "ProcessService/Start"};
static const char *const all_runs[] = {"ProcessService/Run", "ProcessService/Start",
                                       "ProcessService/AddToBatch", "CodeService/*"};
static const char *const makes[] = {"SandboxService/*"};
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
make_layer(struct making *m, const struct seen *s)
{
    static const char about[] = "learnt from jobs: review it before it is used";
    *m = (struct making){.s = s};
    stockade__v1__policy_layer__init(&m->layer);
    (void)snprintf(m->name, sizeof m->name, "learnt.%.33s", s->template);
    m->layer.name = m->name;
    m->layer.about = about;
    m->templates[0] = s->template;
    SET_LIST(&m->layer, templates, m->templates, 1);
    m->layer.rules = m->rules;
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

// ---- writing

static void
put_comments(const char *what, const struct set *s, FILE *to)
{
    for (size_t i = 0; i < s->n; i++) {
        (void)fprintf(to, "# %s ", what);
        for (const char *p = s->word[i]; *p != '\0'; p++)
            (void)fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, to);
        (void)fputc('\n', to);
    }
    if (s->left_out > 0)
        (void)fprintf(to, "# ... and %zu more\n", s->left_out);
}

// What was written must be what a broker accepts.
static int
check(const char *text, struct err *e)
{
    Stockade__V1__PolicyFile file = STOCKADE__V1__POLICY_FILE__INIT, *list[] = {&file};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    struct policy *p = NULL;
    file.name = "the learnt policy";
    file.text = text;
    files.files = list;
    files.n_files = 1;
    int r = policy_read(&files, &p, e);
    policy_free(p);
    return r;
}

int
learning_write(const struct learning *l, FILE *to, struct err *e)
{
    struct making *auto_free all = calloc(TEMPLATES, sizeof *all);
    char *auto_free text = malloc(TEXT_MAX);
    Stockade__V1__PolicyLayer *layers[TEMPLATES];
    Stockade__V1__PolicyDocument document = STOCKADE__V1__POLICY_DOCUMENT__INIT;
    if (all == NULL || text == NULL)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return no_memory(e);
    if (l->n == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "there is no job to learn from");
    for (size_t i = 0; i < l->n; i++) {
        make_layer(&all[i], &l->seen[i]);
        layers[i] = &all[i].layer;
    }
    document.layers = layers;
    document.n_layers = l->n;
    if (yaml_write(&document.base, YAML_BLOCK, text, TEXT_MAX) >= TEXT_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "learn a policy: it is too large");
    int r = check(text, e);
    if (r < 0)
        return err_wrap(e, "learn a policy");
    (void)fprintf(to, "# Learnt by stockade: review each line, then put the file into "
                      "/etc/stockade/policy.d.\n");
    for (size_t i = 0; i < l->n; i++) {
        (void)fprintf(to, "# Template %s:\n", l->seen[i].template);
        put_comments("reached", &l->seen[i].reached, to);
        put_comments("was denied, remove it if it shall not be reached:", &l->seen[i].denied, to);
        put_comments("executed", &l->seen[i].executed, to);
    }
    (void)fputs(text, to);
    return fflush(to) == 0 ? 0 : err_sys(e, errno, "write the learnt policy");
}

int
learning_save(const struct learning *l, const char *path, struct err *e)
{
    if (strcmp(path, "-") == 0)
        return learning_write(l, stdout, e);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (to == NULL) {
        const int r = err_sys(e, errno, "write %s", path);
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    int r = learning_write(l, to, e);
    if (fclose(to) != 0 && r == 0)
        r = err_sys(e, errno, "write %s", path);
    if (r < 0)
        (void)unlink(path);
    return r;
}
