// SPDX-License-Identifier: Apache-2.0
// policy: see policies.h. The table of its actions, and its options.
#include "policies.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "option_tables.h"
#include "proto/validate.h"
#include "remote.h"

static const char *const credentials[] = {"peer", "key",  "token", "certificate",
                                          "jwt",  "none", NULL};

const struct option_row policy_options[] = {
    {"policy", 0, OPTION_TEXT, AT(policy_file), "FILE",
     "with explain and test: decide by this file or folder, instead of asking the broker", NULL},
    {"write", 0, OPTION_TEXT, AT(learn_file), "FILE",
     "with learn: write to this file, which must not exist (default: stdout)", NULL},
    {"against", 0, OPTION_TEXT, AT(against), "FILE",
     "with diff: compare with this file or folder, instead of the broker's policy", NULL},
    {"check", 0, OPTION_FLAG, AT(check), NULL, "with reload: read everything and change nothing",
     NULL},
    {"method", 0, OPTION_TEXT, AT(methods), "METHOD",
     "with explain: the method (default: ProcessService/Run)", NULL},
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "with explain: the template of the sandbox (default: default); with show: only what applies to it; with learn: the template of the policy (default: that of the job)",
     NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX",
     "with explain: run in this sandbox, instead of a fresh one; with learn: all its processes",
     NULL},
    {"language", 0, OPTION_TEXT, AT(language), "NAME", "with explain: the language of code", NULL},
    {"path", 0, OPTION_TEXT, AT(path), "PATH", "with explain: a path that the call names", NULL},
    {"allow", 0, OPTION_ALLOW, AT(allow), "HOST[:PORT[-PORT]][/tcp|/udp]|@SET",
     "with explain: what jobs may reach after the call (repeatable)", NULL},
    {"memory", 'm', OPTION_BYTES, LIMIT(memory_bytes), "SIZE", "with explain: a limit", NULL},
    {"cpus", 0, OPTION_CPUS, LIMIT(cpu_millis), "N", "with explain: a limit", NULL},
    {"pids", 0, OPTION_COUNT, LIMIT(pids), "N", "with explain: a limit", NULL},
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME", "with explain: a limit", NULL},
    {"disk", 0, OPTION_BYTES, LIMIT(disk_bytes), "SIZE", "with explain: a limit", NULL},
    {"label", 0, OPTION_LABEL, AT(labels), "KEY=VALUE",
     "with explain: a label of the sandbox (repeatable)", NULL},
    {"credential", 0, OPTION_TEXT, AT(credential), "KIND",
     "with explain: how the caller proves who it is", credentials},
    {"time", 0, OPTION_TEXT, AT(at), "TIME",
     "with explain: when, such as 2026-11-23T08:30:00Z (default: now)", NULL},
    {"calls", 0, OPTION_COUNT, AT(count), "N",
     "with explain: calls before this one, for rates and histories", NULL},
    {"simulate", 0, OPTION_FLAG, AT(simulate), NULL, "with explain: the call is simulated", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with explain and show: as another tenant; with show '*' for the whole policy (root only)",
     NULL},
    {0},
};

// ---- helpers of all actions

int
policies_fail(const struct policing *p, const struct err *why)
{
    struct stockade_error e = {.code = why->code};
    (void)snprintf(e.text, sizeof e.text, "%s", why->text);
    (void)snprintf(e.reason, sizeof e.reason, "%s", why->reason);
    return cli_fail(p->c, "", &e);
}

int
policies_no_memory(const struct policing *p)
{
    struct err e;
    (void)err_sys(&e, ENOMEM, "read policies");
    return policies_fail(p, &e);
}

bool
policies_call(const struct policing *p, const char *method, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *response, struct arena *a, ProtobufCMessage **out,
              int *code)
{
    char path[64];
    struct stockade_error e;
    struct stockade *s = cli_open(p->c, p->o, code);
    if (s == NULL)
        return false;
    (void)snprintf(path, sizeof path, "/stockade.v1.PolicyService/%s", method);
    const bool fine = remote_call(s, path, request, response, a, out, &e) == 0;
    if (!fine)
        *code = cli_fail(p->c, "", &e);
    stockade_close(s);
    return fine;
}

int
policies_json(const ProtobufCMessage *m)
{
    const char *text = stockade_json(m);
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    stockade_free(text);
    return json_put(o);
}

const char *
policies_verdict(Stockade__V1__PolicyVerdict v)
{
    static const char *const words[] = {"?", "allow", "deny", "ask", "limit"};
    return (unsigned)v < sizeof words / sizeof words[0] ? words[v] : "?";
}

// ---- the actions

enum needs { NO_WORDS, MAY_HAVE_WORDS, NEEDS_WORDS };

static const struct {
    const char *name;
    enum needs needs;
    const char *what; // the words
    int (*run)(const struct policing *p);
} all[] = {
    {"check", NEEDS_WORDS, "FILE", policies_check},
    {"test", NEEDS_WORDS, "FILE", policies_test},
    {"explain", MAY_HAVE_WORDS, "COMMAND", policies_explain},
    {"show", NO_WORDS, NULL, policies_show},
    {"diff", NEEDS_WORDS, "FILE", policies_diff},
    {"reload", NO_WORDS, NULL, policies_reload},
    {"sets", MAY_HAVE_WORDS, "SET", policies_sets},
    {"learn", MAY_HAVE_WORDS, "PROCESS", policies_learn},
};

static const char hint[] = "the actions are check FILE..., test FILE..., explain [-- COMMAND...], "
                           "show, diff FILE..., reload, sets [SET] and learn [PROCESS...]";

static int
check_options(const struct command *c, const struct options *o, int (*run)(const struct policing *))
{
    const bool call = o->methods != NULL || o->language != NULL || o->path != NULL ||
                      o->allow_n > 0 || o->labels_n > 0 || o->credential != NULL || o->at != NULL ||
                      o->count != 0 || o->simulate;
    if (call && run != policies_explain)
        return cli_usage(c, "options of a call need the action explain", hint);
    if (o->policy_file != NULL && run != policies_explain && run != policies_test)
        return cli_usage(c, "--policy needs the action explain or test", hint);
    if (o->against != NULL && run != policies_diff)
        return cli_usage(c, "--against needs the action diff", hint);
    if (o->check && run != policies_reload)
        return cli_usage(c, "--check needs the action reload", hint);
    if (o->template_name != NULL && run != policies_explain && run != policies_show &&
        run != policies_learn)
        return cli_usage(c, "--template needs the action explain, show or learn", hint);
    if (o->sandbox != NULL && run != policies_explain && run != policies_learn)
        return cli_usage(c, "--sandbox needs the action explain or learn", hint);
    if (o->learn_file != NULL && run != policies_learn)
        return cli_usage(c, "--write needs the action learn", hint);
    if (o->tenant != NULL && run != policies_explain && run != policies_show)
        return cli_usage(c, "--tenant needs the action explain or show", hint);
    return EXIT_OK;
}

int
cli_policy(const struct command *c, const struct options *o)
{
    char why[128];
    struct err e;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct policing p = {c, o, o->args + 1, o->args_n - 1};
        if (strcmp(all[i].name, o->args[0]) != 0)
            continue;
        (void)snprintf(why, sizeof why, "%s needs a %s", all[i].name,
                       all[i].what != NULL ? all[i].what : "");
        if (all[i].needs == NEEDS_WORDS && p.words_n == 0)
            return cli_usage(c, why, hint);
        if (all[i].needs == NO_WORDS && p.words_n > 0)
            return cli_usage(c, "unexpected argument", hint);
        const int code = check_options(c, o, all[i].run);
        if (code != EXIT_OK)
            return code;
        if (sodium_init() < 0 || validate_init(&e) < 0)
            return EXIT_PROBLEM;
        return all[i].run(&p);
    }
    (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    return cli_usage(c, why, hint);
}
