// SPDX-License-Identifier: Apache-2.0
// audit: check and read the files of an audit log, without the broker: verify, export, grep, show, proof. tail asks the broker.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/audit.h"
#include "proto/audit_prove.h"
#include "proto/audit_verify.h"
#include "proto/auto.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "audit_files.h"
#include "audit_tail.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { TIME_TEXT = 40, PROOF_ARENA = 2 * 1024 * 1024 };

struct auditing {
    const struct command *c;
    const struct options *o;
    const char *word;         // TEXT, SEQUENCE or PROCESS
    const char *const *files; // the rest of the line
    int files_n;
};

static int
fail(const struct auditing *a, const struct err *why)
{
    struct stockade_error e = {.code = why->code};
    (void)snprintf(e.text, sizeof e.text, "%s", why->text);
    (void)snprintf(e.reason, sizeof e.reason, "%s", why->reason);
    (void)snprintf(e.hint, sizeof e.hint, "%s", why->hint);
    return cli_fail(a->c, "", &e);
}

// The whole file, at most n - 1 bytes. False: reported.
static bool
read_text(const struct auditing *a, const char *path, char *out, size_t n, int *code)
{
    struct err e;
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && have < n - 1 && (got = read(fd, out + have, n - 1 - have)) > 0)
        have += (size_t)got;
    out[got >= 0 ? have : 0] = '\0';
    if (got >= 0)
        return true;
    (void)err_sys(&e, errno, "read %s", path);
    *code = fail(a, &e);
    return false;
}

// The public keys that --public-key names.
struct keys {
    uint8_t all[AUDIT_KEYS_MAX][AUDIT_KEY];
    uint32_t n;
};

static bool
take_keys(const struct auditing *a, struct keys *k, int *code)
{
    char text[AUDIT_KEYS_TEXT];
    struct err e;
    if (a->o->key == NULL) {
        *code = cli_usage(a->c, "verify needs --public-key",
                          "the broker writes it to audit.pub, beside the log");
        return false;
    }
    k->n = 1;
    if (audit_key_read(a->o->key, k->all[0]))
        return true;
    if (!read_text(a, a->o->key, text, sizeof text, code))
        return false;
    k->n = audit_keys_read(text, k->all);
    if (k->n > 0)
        return true;
    (void)err_set(&e, ERR_INVALID_ARGUMENT, "%s is no public key: 64 hex digits", a->o->key);
    *code = fail(a, &e);
    return false;
}

// ---- verify

static const char *const problem_names[AUDIT_PROBLEMS] = {
    [AUDIT_MISSING] = "missing", [AUDIT_CHANGED] = "changed", [AUDIT_REORDERED] = "reordered",
    [AUDIT_TORN] = "torn",       [AUDIT_FOREIGN] = "foreign",
};

struct verifying {
    struct audit_verify *v;
    json_t *problems; // NULL: as text
};

static void
on_problem(void *cookie, const struct audit_problem *p)
{
    const struct verifying *w = cookie;
    if (w->problems == NULL)
        (void)printf("%s: %s: byte %" PRIu64 ": %s\n", problem_names[p->kind], p->file, p->offset,
                     p->text);
    else
        (void)json_array_append_new(
            w->problems,
            json_pack("{ss ss sI sI ss}", "kind", problem_names[p->kind], "file", p->file, "offset",
                      (json_int_t)p->offset, "sequence", (json_int_t)p->sequence, "text", p->text));
}

static int
verify_file(void *cookie, int fd, const char *name, struct err *e)
{
    const struct verifying *w = cookie;
    return audit_verify_file(w->v, fd, name, e);
}

static const char *
time_text(int64_t seconds, char out[TIME_TEXT])
{
    struct tm tm;
    const time_t t = (time_t)seconds;
    if (seconds == 0 || gmtime_r(&t, &tm) == NULL || strftime(out, TIME_TEXT, "%FT%TZ", &tm) == 0)
        (void)snprintf(out, TIME_TEXT, "never");
    return out;
}

static void
print_summary(const struct audit_verified *s)
{
    char signed_at[TIME_TEXT], head[2 * AUDIT_HASH + 1], key[2 * AUDIT_KEY + 1];
    (void)printf("%s: records %" PRIu64 " to %" PRIu64 " in %u %s; %" PRIu64 " %s, %" PRIu64
                 " %s, %" PRIu64 " %s, the last at %s\n",
                 s->whole ? "whole" : "NOT WHOLE", s->first, s->last, s->files,
                 plural(s->files, "file", "files"), s->calls, plural(s->calls, "call", "calls"),
                 s->jobs, plural(s->jobs, "job", "jobs"), s->checkpoints,
                 plural(s->checkpoints, "checkpoint", "checkpoints"),
                 time_text(s->signed_s, signed_at));
    if (s->first > 1)
        (void)printf("note: records 1 to %" PRIu64 " are in files that were not given\n",
                     s->first - 1);
    if (s->not_covered > 0)
        (void)printf("note: the signature of the first %" PRIu64
                     " records covers others that were not given\n",
                     s->not_covered);
    if (s->not_signed > 0)
        (void)printf("note: %" PRIu64 " %s after the last checkpoint %s not signed yet\n",
                     s->not_signed, plural(s->not_signed, "record", "records"),
                     plural(s->not_signed, "is", "are"));
    if (s->missed > 0)
        (void)printf("note: the broker itself says that it could not keep %" PRIu64 " %s\n",
                     s->missed, plural(s->missed, "record", "records"));
    if (s->kills > 0)
        (void)printf(
            "note: the broker was killed %u %s; %u %s in bytes that are no record, as its next start "
            "says\n",
            s->kills, plural(s->kills, "time", "times"), s->recovered,
            plural(s->recovered, "file ends", "files end"));
    if (s->rekeyed > 0)
        (void)printf("note: the key changed %u %s, and each one names the next; the last is %s\n",
                     s->rekeyed, plural(s->rekeyed, "time", "times"),
                     sodium_bin2hex(key, sizeof key, s->key, sizeof s->key));
    (void)printf("head: %" PRIu64 " %s\n", s->last,
                 sodium_bin2hex(head, sizeof head, s->head, sizeof s->head));
}

static json_t *
json_of_summary(const struct audit_verified *s, json_t *problems)
{
    char signed_at[TIME_TEXT], head[2 * AUDIT_HASH + 1], key[2 * AUDIT_KEY + 1];
    return json_pack(
        "{sb si sI sI sI sI sI sI sI sI sI si si si si ss ss ss so}", "whole", (int)s->whole,
        "files", (int)s->files, "first", (json_int_t)s->first, "last", (json_int_t)s->last,
        "records", (json_int_t)s->records, "checkpoints", (json_int_t)s->checkpoints, "calls",
        (json_int_t)s->calls, "jobs", (json_int_t)s->jobs, "missed", (json_int_t)s->missed,
        "not_signed", (json_int_t)s->not_signed, "not_covered", (json_int_t)s->not_covered,
        "starts", (int)s->starts, "kills", (int)s->kills, "recovered", (int)s->recovered, "rekeyed",
        (int)s->rekeyed, "key", sodium_bin2hex(key, sizeof key, s->key, sizeof s->key),
        "signed_time", time_text(s->signed_s, signed_at), "head",
        sodium_bin2hex(head, sizeof head, s->head, sizeof s->head), "problems", problems);
}

static int
verify_files(const struct auditing *a, const struct keys *keys)
{
    struct err e;
    struct verifying w = {.problems = a->o->json ? json_array() : NULL};
    int r =
        audit_verify_new((const uint8_t(*)[AUDIT_KEY])keys->all, keys->n, on_problem, &w, &w.v, &e);
    if (r == 0)
        r = audit_files_each(a->files, a->files_n, verify_file, &w, &e);
    if (r < 0) {
        audit_verify_free(w.v);
        json_decref(w.problems);
        return fail(a, &e);
    }
    const struct audit_verified s = audit_verify_end(w.v);
    audit_verify_free(w.v);
    if (a->o->json)
        (void)json_put(json_of_summary(&s, w.problems));
    else
        print_summary(&s);
    return s.whole && s.records > 0 ? EXIT_OK : EXIT_PROBLEM;
}

// What the proof is about, and the job's record if it is in it.
static int
print_proof(const Stockade__V1__AuditProof *p, const Stockade__V1__AuditRecord *m,
            const Stockade__V1__AuditTree *t, struct arena *arena)
{
    struct err none;
    ProtobufCMessage *job = NULL;
    json_t *json = json_object();
    (void)json_object_set_new(json, "record", json_of_message(&m->base));
    (void)json_object_set_new(json, "tree", json_of_message(&t->base));
    if (p->job.len > 0 && wire_unpack(&stockade__v1__get_record_response__descriptor, p->job.data,
                                      p->job.len, arena, &job, &none) == 0)
        (void)json_object_set_new(json, "job", json_of_message(job));
    return json_put(json);
}

// The key that may have signed it.
static const uint8_t *
key_of(const struct keys *keys, const Stockade__V1__AuditProof *p)
{
    const Stockade__V1__AuditCheckpoint *c = p->checkpoint;
    for (uint32_t i = 0; i < keys->n; i++)
        if (c != NULL && c->key_id.len == AUDIT_KEY_ID &&
            memcmp(c->key_id.data, keys->all[i], AUDIT_KEY_ID) == 0)
            return keys->all[i];
    return keys->all[0];
}

static int
verify_proof(const struct auditing *a, const struct keys *keys)
{
    int code = EXIT_OK;
    struct err e;
    const Stockade__V1__AuditProof *p = NULL;
    const Stockade__V1__AuditRecord *m = NULL;
    const Stockade__V1__AuditTree *t = NULL;
    struct arena *auto_arena arena = arena_new(PROOF_ARENA);
    char *auto_free text = malloc(AUDIT_PROOF_TEXT);
    if (arena == NULL || text == NULL) {
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
        (void)err_sys(&e, ENOMEM, "check a proof");
        return fail(a, &e);
    }
    if (!read_text(a, a->o->path, text, AUDIT_PROOF_TEXT, &code))
        return code;
    int r = audit_proof_read(text, arena, &p, &e);
    if (r == 0)
        r = audit_proof_check(p, key_of(keys, p), arena, &m, &t, &e);
    if (r < 0) {
        (void)err_wrap(&e, "%s", a->o->path);
        return fail(a, &e);
    }
    return print_proof(p, m, t, arena);
}

static int
verify(const struct auditing *a)
{
    int code = EXIT_OK;
    struct keys keys;
    if (a->o->path == NULL && a->files_n == 0)
        return cli_usage(a->c, "verify needs a FILE or a FOLDER", "or --proof");
    if (!take_keys(a, &keys, &code))
        return code;
    return a->o->path != NULL ? verify_proof(a, &keys) : verify_files(a, &keys);
}

// ---- export, grep, show

struct showing {
    const char *text; // NULL: all
    uint64_t sequence;
    struct arena *arena;
    bool failed, found;
};

static int
show_frame(void *cookie, const struct audit_frame *f, struct err *e)
{
    struct showing *s = cookie;
    const Stockade__V1__AuditRecord *m = NULL;
    arena_reset(s->arena);
    if (audit_record_read(f->record, f->n, s->arena, &m, e) < 0)
        return err_wrap(e, "a damaged record");
    if (s->sequence != 0 && m->sequence != s->sequence)
        return 0;
    const char *line = stockade_json(&m->base);
    if (line == NULL)
        return err_sys(e, ENOMEM, "show a record");
    if (s->text == NULL || strstr(line, s->text) != NULL) {
        s->found = true;
        s->failed = printf("%s\n", line) < 0;
    }
    stockade_free(line);
    return s->failed || (s->sequence != 0 && s->found);
}

static int
show_all(const struct auditing *a, struct showing *s)
{
    struct err e;
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    s->arena = arena;
    int r = arena != NULL ? audit_frames_each(a->files, a->files_n, show_frame, s, &e)
                          : err_sys(&e, ENOMEM, "show records");
    return r < 0 ? fail(a, &e) : cli_flush(a->c);
}

static int export(const struct auditing *a)
{
    struct showing s = {0};
    return show_all(a, &s);
}

static int
grep(const struct auditing *a)
{
    struct showing s = {.text = a->word};
    const int code = show_all(a, &s);
    return code == EXIT_OK && !s.found ? EXIT_PROBLEM : code;
}

static int
show(const struct auditing *a)
{
    char *end = NULL;
    struct err e;
    struct showing s = {.sequence = strtoull(a->word, &end, 10)};
    if (s.sequence == 0 || *end != '\0')
        return cli_usage(a->c, "show needs the sequence of a record, such as 17", "");
    const int code = show_all(a, &s);
    if (code != EXIT_OK || s.found)
        return code;
    (void)err_set(&e, ERR_NOT_FOUND, "there is no record %s", a->word);
    return fail(a, &e);
}

// ---- proof

static int
prove_frame(void *cookie, const struct audit_frame *f, struct err *e)
{
    return audit_prover_feed(cookie, f, e);
}

static int
proof(const struct auditing *a)
{
    struct err e;
    struct audit_prover *p = audit_prover_new(a->word);
    int r = p != NULL ? audit_frames_each(a->files, a->files_n, prove_frame, p, &e)
                      : err_sys(&e, ENOMEM, "prove a record");
    if (r == 0)
        r = audit_prover_missing(p, &e);
    char *auto_free text = r > 0 ? audit_prover_text(p, NULL, 0) : NULL;
    if (r > 0 && text == NULL)
        r = err_sys(&e, ENOMEM, "prove a record");
    audit_prover_free(p);
    if (r < 0)
        return fail(a, &e);
    (void)printf("%s\n", text);
    return cli_flush(a->c);
}

// ---- tail

static int
tail(const struct auditing *a)
{
    return a->files_n == 0
               ? audit_tail(a->c, a->o)
               : cli_usage(a->c, "tail has no files: it asks the broker", "see export for files");
}

// ---- the actions

static const struct {
    const char *name;
    const char *word; // what follows it; NULL: files
    bool needs_files;
    int (*run)(const struct auditing *a);
} all[] = {
    {"verify", NULL, false, verify},     {"export", NULL, true, export},
    {"grep", "a TEXT", true, grep},      {"show", "a SEQUENCE", true, show},
    {"proof", "a PROCESS", true, proof}, {"tail", NULL, false, tail},
};

int
cli_audit(const struct command *c, const struct options *o)
{
    static const char hint[] = "the actions are verify, export, grep TEXT, show SEQUENCE and "
                               "proof PROCESS, and then files or folders; and tail";
    char why[128];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, o->args[0]) != 0)
            continue;
        const int used = all[i].word != NULL ? 2 : 1;
        (void)snprintf(why, sizeof why, "%s needs %s", all[i].name,
                       o->args_n < used ? all[i].word : "a FILE or a FOLDER");
        if (o->args_n < used || (all[i].needs_files && o->args_n == used))
            return cli_usage(c, why, hint);
        if ((o->key != NULL || o->path != NULL) && all[i].run != verify)
            return cli_usage(c, "--public-key and --proof need the action verify", "");
        if ((o->follow || o->tenant != NULL) && all[i].run != tail)
            return cli_usage(c, "--follow and --tenant need the action tail", "");
        const struct auditing a = {c, o, used == 2 ? o->args[1] : NULL, o->args + used,
                                   o->args_n - used};
        return sodium_init() < 0 ? EXIT_PROBLEM : all[i].run(&a);
    }
    (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    return cli_usage(c, why, hint);
}
