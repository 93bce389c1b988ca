// SPDX-License-Identifier: Apache-2.0
// See learn.h: gathers what was seen, and writes what learn_layer.c makes of it.
#include "learn_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/glob.h"
#include "proto/plural.h"
#include "proto/target.h"
#include "proto/utf8.h"
#include "proto/yaml_write.h"
#include "server/access/policy.h"

enum {
    ARENA_MAX = 16 * 1024 * 1024,
    COMMAND_MAX = 1024,  // of a pattern
    PATH_TEXT_MAX = 255, // of a path in an event: a longer one is cut
    NOTE_MAX = 512,
    COMMENT_MAX = 6 * 1024 + 3, // of a text in quotes, escaped
    TEXT_MAX = 4 * 1024 * 1024,
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
add_word(struct learning *l, struct set *s, const char *word, const char *job, struct err *e)
{
    const char *at = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->word[i], word) == 0)
            return 0;
    if (s->n == (s->most != 0 ? s->most : WORDS_OF_SET)) {
        s->left_out++;
        return 0;
    }
    s->word[s->n] = arena_copy(l->arena, word, strlen(word));
    s->from[s->n] = at = arena_copy(l->arena, job, strnlen(job, JOB_SHOWN));
    return s->word[s->n++] != NULL && at != NULL ? 0 : no_memory(e);
}

int
learning_note(struct learning *l, struct err *e, const char *fmt, ...)
{
    char text[NOTE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text[utf8_cut(text, strlen(text))] = '\0';
    return add_word(l, &l->notes, text, "", e);
}

static int
find_template(struct learning *l, const char *template, struct seen **out, struct err *e)
{
    if (template[0] == '\0')
        template = "default";
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
    (*out)->lines.most = LINES_OF_RULE;
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

// Whether a pattern made of it would mean commands that were not run: in a pattern '*' is any text, and nothing means a '*' alone. Between
// the lines of a script it is unavoidable; a program's name is one line.
static bool
means_others(const char *const *args, size_t n)
{
    for (const char *p = args[0]; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return true;
    for (size_t i = 0; i < n; i++)
        if (!glob_is_plain(args[i]))
            return true;
    return false;
}

static int
leave_out(struct learning *l, const struct learnt_job *j, struct err *e)
{
    char text[COMMAND_MAX + 1], shown[COMMENT_MAX];
    size_t used = 0;
    for (size_t i = 0; i < j->args_n && used < COMMAND_MAX; i++) {
        (void)snprintf(text + used, sizeof text - used, "%s%.200s", i > 0 ? " " : "", j->args[i]);
        used += strlen(text + used);
    }
    text[utf8_cut(text, used)] = '\0';
    (void)yaml_write_quoted(text, shown, sizeof shown);
    return learning_note(l, e,
                         "job %.*s: the command %.300s is left out: its '*' or control character "
                         "would allow other commands",
                         JOB_SHOWN, j->id, shown);
}

static int
add_command(struct learning *l, struct seen *s, const struct learnt_job *j, struct err *e)
{
    char pattern[COMMAND_MAX + 1];
    const char *const *args = j->args;
    const size_t n = j->args_n;
    if (n == 0)
        return 0;
    if (means_others(args, n))
        return leave_out(l, j, e);
    make_pattern(args, n, pattern);
    struct set *to =
        is_splittable(args, n) && strlen(pattern) < COMMAND_MAX ? &s->commands : &s->lines;
    const size_t before = to->n;
    int r = add_word(l, to, pattern, j->id, e);
    return r == 0 && to->n > before ? add_test(l, s, args, n, e) : r;
}

// A job chooses the names that it looks up. One that a policy would read as more than one host ("*", "*.org", "@pypi",
// "10.0.0.0/8"), or cannot hold, is left out.
static bool
is_one_host(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-[]";
    struct target_text unused;
    struct err none;
    return text[0] != '\0' && text[strspn(text, letters)] == '\0' &&
           target_parse(text, &unused, &none) == 0;
}

static int
add_destination(struct learning *l, struct set *to, const char *text, const char *job,
                struct err *e)
{
    char shown[COMMENT_MAX];
    if (is_one_host(text))
        return add_word(l, to, text, job, e);
    (void)yaml_write_quoted(text, shown, sizeof shown);
    return learning_note(l, e, "job %.*s: the destination %.300s is left out: it is not one host",
                         JOB_SHOWN, job, shown);
}

// Notes everything that the record of a job does not have.
static int
add_gaps(struct learning *l, const struct learnt_job *j, struct err *e)
{
    const Stockade__V1__Completeness *c = j->record != NULL ? j->record->completeness : NULL;
    int r = 0;
    if (c == NULL)
        return learning_note(l, e, "job %.*s: nothing recorded what it did", JOB_SHOWN, j->id);
    if (!j->ended)
        r = learning_note(l, e, "job %.*s: it has not ended", JOB_SHOWN, j->id);
    if (r == 0 && j->record->cut)
        r = learning_note(
            l, e, "job %.*s: some of its destinations, denials or programs are not in its record",
            JOB_SHOWN, j->id);
    for (size_t i = 0; i < c->n_lost && r == 0; i++)
        r = learning_note(l, e, "job %.*s: %" PRIu64 " %s of class %s %s lost", JOB_SHOWN, j->id,
                          c->lost[i]->events, plural(c->lost[i]->events, "event", "events"),
                          c->lost[i]->event_class, plural(c->lost[i]->events, "was", "were"));
    for (size_t i = 0; i < c->n_missing && !c->complete && r == 0; i++)
        r = learning_note(l, e, "job %.*s: not watched: %s", JOB_SHOWN, j->id, c->missing[i]);
    return r == 0 && !c->complete
               ? learning_note(l, e, "job %.*s: its record is not complete", JOB_SHOWN, j->id)
               : r;
}

static int
add_record(struct learning *l, struct seen *s, const struct learnt_job *j, struct err *e)
{
    static const char *const operations[] = {"connect", "sendmsg", "dns", "relay"};
    const Stockade__V1__Record *m = j->record;
    int r = 0;
    for (size_t i = 0; i < m->n_reached && r == 0; i++)
        r = add_destination(l, &s->reached, m->reached[i], j->id, e);
    for (size_t i = 0; i < m->n_denials && r == 0; i++)
        for (size_t k = 0; k < sizeof operations / sizeof operations[0] && r == 0; k++)
            if (strcmp(m->denials[i]->operation, operations[k]) == 0)
                r = add_destination(l, &s->denied, m->denials[i]->destination, j->id, e);
    for (size_t i = 0; i < m->n_executed && r == 0; i++)
        r = add_word(l, &s->executed, m->executed[i]->path, j->id, e);
    return r;
}

int
learning_add(struct learning *l, const struct learnt_job *j, struct err *e)
{
    struct seen *s = NULL;
    int r = find_template(l, j->template, &s, e);
    if (r == 0)
        r = add_command(l, s, j, e);
    if (r == 0)
        r = add_gaps(l, j, e);
    return r == 0 && j->record != NULL ? add_record(l, s, j, e) : r;
}

// ---- events

// Why a path cannot be written as a pattern that means this path alone; NULL: it can.
static const char *
unfit(const char *path)
{
    if (path[0] != '/')
        return "it is relative";
    if (strlen(path) >= PATH_TEXT_MAX)
        return "it is too long for an event";
    if (!glob_is_plain(path))
        return "it has a '*', which would allow other paths";
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "it has control characters";
    return strstr(path, "\xef\xbf\xbd") != NULL ? "it is not UTF-8" : NULL;
}

static int
add_transfer(struct learning *l, struct seen *s, const Stockade__V1__FileTransfer *t, struct err *e)
{
    char shown[COMMENT_MAX];
    const char *why = unfit(t->path);
    if (why == NULL)
        return add_word(l, strcmp(t->direction, "in") == 0 ? &s->put : &s->got, t->path, "", e);
    (void)yaml_write_quoted(t->path, shown, sizeof shown);
    return learning_note(l, e, "the path %.300s of a transfer is left out: %s", shown, why);
}

static int
add_touched(struct learning *l, struct seen *s, const Stockade__V1__Event *event, struct err *e)
{
    char text[2048];
    const Stockade__V1__FileOpen *f = event->file;
    (void)snprintf(text, sizeof text, "%s%s %s", f->operation, f->error != 0 ? " (it failed)" : "",
                   f->resolved[0] != '\0' ? f->resolved : f->path);
    text[utf8_cut(text, strlen(text))] = '\0';
    return add_word(l, &s->touched, text, event->process_id, e);
}

int
learning_add_event(struct learning *l, const Stockade__V1__Event *event, struct err *e)
{
    struct seen *s = NULL;
    const bool transfer = event->detail_case == STOCKADE__V1__EVENT__DETAIL_TRANSFER;
    if (!transfer && event->detail_case != STOCKADE__V1__EVENT__DETAIL_FILE)
        return 0;
    int r = find_template(l, event->template_, &s, e);
    if (r < 0)
        return r;
    return transfer ? add_transfer(l, s, event->transfer, e) : add_touched(l, s, event, e);
}

// ---- writing

struct text {
    char *bytes;
    size_t n; // up to TEXT_MAX: too large
};

__attribute__((format(printf, 2, 3))) static void
put(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(t->bytes + t->n, TEXT_MAX - t->n, fmt, args);
    va_end(args);
    t->n = n < 0 || (size_t)n >= TEXT_MAX - t->n ? TEXT_MAX - 1 : t->n + (size_t)n;
}

// Texts of jobs stay in quotes: no character of them can end the comment.
static void
put_comments(struct text *t, const char *what, const struct set *s)
{
    char shown[COMMENT_MAX];
    for (size_t i = 0; i < s->n; i++) {
        (void)yaml_write_quoted(s->word[i], shown, sizeof shown);
        put(t, "# %s %s", what, shown);
        put(t, s->from[i][0] != '\0' ? " (job %s)\n" : "%s\n", s->from[i]);
    }
    if (s->left_out > 0)
        put(t, "# ... and more that did not fit here: %zu %s\n", s->left_out,
            plural(s->left_out, "time", "times"));
}

static void
put_template(struct text *t, const struct seen *s)
{
    put(t, "# Template %s: where the entries of its layer come from.\n", s->template);
    put_comments(t, "command ('*' stands for any text)", &s->commands);
    put_comments(t, "line ('*' stands for any text)", &s->lines);
    put_comments(t, "reached", &s->reached);
    put_comments(t, "was denied, remove it if it shall not be reached:", &s->denied);
    put_comments(t, "file that went in:", &s->put);
    put_comments(t, "file that came out:", &s->got);
    if (s->executed.n + s->touched.n > 0)
        put(t, "# What its jobs did by themselves, about which no policy decides:\n");
    put_comments(t, "executed", &s->executed);
    put_comments(t, "sensitive path:", &s->touched);
}

static bool
is_complete(const struct learning *l)
{
    size_t left_out = l->notes.n;
    for (size_t i = 0; i < l->n; i++) {
        const struct seen *s = &l->seen[i];
        left_out += s->commands.left_out + s->lines.left_out + s->reached.left_out +
                    s->denied.left_out + s->put.left_out + s->got.left_out;
    }
    return left_out == 0;
}

static void
put_all(struct text *t, const struct learning *l)
{
    put(t, "# Learnt by stockade: review each line, then put the file into "
           "/etc/stockade/policy.d.\n");
    if (!is_complete(l))
        put(t, "# INCOMPLETE: not all of what the jobs did is known, so this policy may be too "
               "narrow:\n");
    put_comments(t, "INCOMPLETE:", &l->notes);
    for (size_t i = 0; i < l->n; i++)
        put_template(t, &l->seen[i]);
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
    char *auto_free bytes = malloc(TEXT_MAX);
    struct text text = {.bytes = bytes};
    Stockade__V1__PolicyLayer *layers[TEMPLATES];
    Stockade__V1__PolicyDocument document = STOCKADE__V1__POLICY_DOCUMENT__INIT;
    if (all == NULL || bytes == NULL)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        return no_memory(e);
    if (l->n == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "there is no job to learn from");
    for (size_t i = 0; i < l->n; i++) {
        learn_layer(&all[i], &l->seen[i], is_complete(l));
        layers[i] = &all[i].layer;
    }
    document.layers = layers;
    document.n_layers = l->n;
    put_all(&text, l);
    text.n += yaml_write(&document.base, YAML_BLOCK, bytes + text.n, TEXT_MAX - text.n);
    if (text.n >= TEXT_MAX - 1)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "learn a policy: it is too large");
    int r = check(bytes, e);
    if (r < 0)
        return err_wrap(e, "learn a policy");
    (void)fputs(bytes, to);
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
