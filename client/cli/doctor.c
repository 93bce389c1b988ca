// SPDX-License-Identifier: Apache-2.0
// `stockade doctor`: runs every check, asks the broker what is missing, and prints how to fix each problem.
#include "doctor.h"

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/plural.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"
#include "tty.h"

enum { TEXT_MAX = 600, NAME_WIDTH = 18, WIDTH_MIN = 60 };

static const char *const verdict_names[VERDICTS] = {"ok", "note", "warning", "problem", "unknown"};
static const char *const signs_plain[VERDICTS] = {"ok  ", "note", "warn", "BAD ", "?   "};
static const char *const signs_utf8[VERDICTS] = {"\u2713", "i", "!", "\u2717", "?"};

struct report {
    bool json;
    int width; // of the terminal
    const char *const *signs;
    json_t *array;
    unsigned counts[VERDICTS];
};

void
finding_set(struct finding *f, enum verdict v, const char *fix, const char *found, ...)
{
    va_list ap;
    f->verdict = v;
    (void)snprintf(f->fix, sizeof f->fix, "%s", fix);
    va_start(ap, found);
    (void)vsnprintf(f->found, sizeof f->found, found, ap);
    va_end(ap);
}

bool
probe_read_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool ok = fgets(out, (int)n, f) != NULL;
    (void)fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

static void
report(struct report *r, const char *name, const struct finding *f)
{
    char found[TEXT_MAX], fix[TEXT_MAX];
    r->counts[f->verdict]++;
    text_clean(f->found, found, sizeof found);
    text_clean(f->fix, fix, sizeof fix);
    if (r->json) {
        json_t *o = json_object();
        (void)json_object_set_new(o, "check", json_string(name));
        (void)json_object_set_new(o, "verdict", json_string(verdict_names[f->verdict]));
        (void)json_object_set_new(o, "found", json_string(found));
        (void)json_object_set_new(o, "fix", json_string(fix));
        (void)json_array_append_new(r->array, o);
        return;
    }
    int from = (int)text_width(r->signs[0]) + NAME_WIDTH + 2;
    (void)printf("%s %-*s ", r->signs[f->verdict], NAME_WIDTH, name);
    text_wrap(stdout, found, from, from, r->width);
    if (fix[0] == '\0')
        return;
    int at = printf("%*sto fix: ", from, "");
    text_wrap(stdout, fix, at, at, r->width);
}

static void
run_checks(struct report *r, const struct check *checks)
{
    for (const struct check *c = checks; c->name != NULL; c++) {
        struct finding f = {.verdict = VERDICT_UNKNOWN};
        c->look(&f);
        report(r, c->name, &f);
    }
}

// Features that the broker lacks: a warning if a protection is weaker, otherwise a note.
static void
report_missing(struct report *r, const struct stockade_info *info)
{
    struct finding f;
    for (size_t i = 0; i < info->degraded_n; i++) {
        finding_set(&f, VERDICT_WARN, "", "%s", info->degraded[i]);
        report(r, "broker says", &f);
    }
    for (size_t i = 0; i < info->features_n; i++) {
        const struct stockade_feature *missing = &info->features[i];
        size_t n = strlen(missing->name);
        bool listed = missing->available;
        for (size_t k = 0; k < info->degraded_n; k++)
            listed |= strncmp(info->degraded[k], missing->name, n) == 0;
        finding_set(&f, VERDICT_NOTE, "", "%s: %s", missing->name, missing->detail);
        if (!listed)
            report(r, "broker says", &f);
    }
}

// What the broker says about itself with this credential; NULL: the environment's, "": none.
static int
get_info(const struct options *o, const char *token, struct stockade **s,
         const struct stockade_info **info, struct stockade_error *e)
{
    struct stockade_options so = STOCKADE_OPTIONS_INIT;
    so.address = o->address;
    so.ca_file = o->ca_file;
    so.token = token;
    so.connect_timeout_ms = 2000;
    int r = stockade_open(s, &so, e);
    return r < 0 ? r : stockade_info(*s, info, e);
}

// A credential that the broker refuses, or does not let see its report.
static bool
concerns_credential(const struct stockade_error *e)
{
    return e->code == STOCKADE_UNAUTHENTICATED ||
           (e->code == STOCKADE_PERMISSION_DENIED &&
            (strcmp(e->reason, "CAVEAT") == 0 || strcmp(e->reason, "SCOPE_MISSING") == 0)) ||
           (e->code == STOCKADE_RESOURCE_EXHAUSTED &&
            strcmp(e->reason, "CREDENTIAL_FAILURES") == 0);
}

// UNAUTHENTICATED: expired, revoked, for another audience, unknown, or missing. Otherwise it is valid for other calls.
static void
report_credential(struct report *r, const char *from, const struct stockade_error *e)
{
    struct finding f;
    const bool valid = e != NULL && e->code == STOCKADE_PERMISSION_DENIED;
    if (e == NULL)
        finding_set(&f, VERDICT_OK, "", "the broker accepts %s", from);
    else if (valid)
        finding_set(&f, VERDICT_NOTE, "", "the broker accepts %s for other calls: %s", from,
                    e->text);
    else
        finding_set(&f, VERDICT_BAD, e->hint[0] != '\0' ? e->hint : "'stockade help token'",
                    "%s: %s", from, e->text);
    report(r, "credential", &f);
}

// The credential of the options or the environment, and where it is from. NULL: there is none; *token is "" if it cannot be read.
static const char *
find_credential(struct report *r, const struct options *o, char token[CLI_TOKEN_BYTES_MAX])
{
    struct finding f;
    const char *value = getenv("STOCKADE_TOKEN");
    token[0] = '\0';
    if (o->token_file == NULL) {
        if (value != NULL)
            (void)snprintf(token, CLI_TOKEN_BYTES_MAX, "%s", value);
        return token[0] != '\0' ? "STOCKADE_TOKEN" : NULL;
    }
    const char *why = cli_read_token(o->token_file, token);
    if (why == NULL)
        return "the token of --token-file";
    token[0] = '\0';
    finding_set(&f, VERDICT_BAD, "name a file that has the credential in its first line",
                "read the token in %s: %s", o->token_file, why);
    report(r, "credential", &f);
    return NULL;
}

// The broker's own report. A host can be correct without a running broker, so its absence is a warning. If the broker refuses
// the credential, it is asked again without one.
static void
ask_broker(struct report *r, const struct options *o)
{
    struct stockade_error e, first;
    struct stockade *s = NULL;
    const struct stockade_info *info = NULL;
    struct finding f;
    char token[CLI_TOKEN_BYTES_MAX];
    const char *from = find_credential(r, o, token);
    int done = get_info(o, token, &s, &info, &e);
    const bool refused = done < 0 && concerns_credential(&e);
    first = e;
    if (refused && from != NULL) {
        stockade_close(s);
        s = NULL;
        done = get_info(o, "", &s, &info, &e);
    }
    if (done == 0)
        finding_set(&f, VERDICT_OK, "", "%s at %s", info->version, stockade_address(s));
    else if (refused)
        finding_set(&f, VERDICT_NOTE, "", "it answers, and shows nothing without a credential");
    else
        finding_set(&f, VERDICT_WARN, e.hint, "%s", e.text);
    report(r, "broker", &f);
    if (done == 0)
        report_missing(r, info);
    if (refused)
        report_credential(r, from != NULL ? from : "no credential", &first);
    else if (from != NULL && done == 0)
        report_credential(r, from, NULL);
    stockade_free(info);
    stockade_close(s);
}

static int
conclude(struct report *r)
{
    bool sound = r->counts[VERDICT_BAD] == 0;
    if (r->json) {
        json_t *o = json_object();
        (void)json_object_set_new(o, "sound", json_boolean(sound));
        (void)json_object_set_new(o, "checks", r->array);
        (void)json_put_list(o);
    } else {
        const unsigned warned = r->counts[VERDICT_WARN] + r->counts[VERDICT_UNKNOWN];
        (void)printf("\n%u ok, %u %s, %u %s%s\n", r->counts[VERDICT_OK] + r->counts[VERDICT_NOTE],
                     warned, plural(warned, "warning", "warnings"), r->counts[VERDICT_BAD],
                     plural(r->counts[VERDICT_BAD], "problem", "problems"),
                     sound ? ": sandboxes can run here" : "");
    }
    return sound ? EXIT_OK : EXIT_PROBLEM;
}

int
cli_doctor(const struct command *c, const struct options *o)
{
    (void)c;
    (void)setlocale(LC_CTYPE, "");
    bool terminal = isatty(STDOUT_FILENO);
    bool utf8 = terminal && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    struct report r = {
        .json = o->json, .signs = utf8 ? signs_utf8 : signs_plain, .width = INT_MAX / 2};
    uint32_t rows = 0, columns = 0;
    tty_size(&rows, &columns);
    if (terminal)
        r.width = columns < WIDTH_MIN ? WIDTH_MIN : (int)columns;
    r.array = o->json ? json_array() : NULL;
    run_checks(&r, checks_kernel);
    run_checks(&r, checks_host);
    ask_broker(&r, o);
    return conclude(&r);
}
