// SPDX-License-Identifier: Apache-2.0
// policy show: the policy of the caller. policy diff: what other files would change. policy reload: has the broker read its files again.
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "policies.h"
#include "proto/plural.h"
#include "proto/yaml_write.h"
#include "server/access/policy_answer.h"
#include "text.h"

enum { ANSWER_MAX = 16 * 1024 * 1024, LINE_BYTES = 8192, EXIT_DIFFERENT = 1, EXIT_TROUBLE = 2 };

static void
print_digest(const char *head, const ProtobufCBinaryData *digest)
{
    char hex[2 * POLICY_DIGEST + 1] = "";
    if (digest->len == POLICY_DIGEST)
        (void)sodium_bin2hex(hex, sizeof hex, digest->data, digest->len);
    (void)printf("%s%s\n", head, hex);
}

static void
print_yaml(const char *before, const ProtobufCMessage *m)
{
    char text[LINE_BYTES], clean[LINE_BYTES];
    (void)yaml_write(m, YAML_LINE, text, sizeof text);
    (void)printf("%s%s\n", before, text_clean(text, clean, sizeof clean));
}

// ---- show

static void
print_layer(const Stockade__V1__PolicyLayerShown *l)
{
    char file[1100], line[32];
    (void)printf("%s layer ", l->kind);
    print_yaml("", &l->layer->base);
    (void)printf("  in %s:%" PRIu32 "\n", text_clean(l->file, file, sizeof file), l->line);
    for (size_t i = 0; i < l->n_rules; i++) {
        (void)snprintf(line, sizeof line, "  %6" PRIu32 "  ", l->rules[i]->line);
        print_yaml(line, &l->rules[i]->rule->base);
    }
}

int
policies_show(const struct policing *p)
{
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    Stockade__V1__PolicyServiceShowRequest request =
        STOCKADE__V1__POLICY_SERVICE_SHOW_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    if (a == NULL)
        return policies_no_memory(p);
    request.tenant = p->o->tenant != NULL ? p->o->tenant : "";
    request.template_ = p->o->template_name != NULL ? p->o->template_name : "";
    if (!policies_call(p, "Show", &request.base,
                       &stockade__v1__policy_service_show_response__descriptor, a, &out, &code))
        return code;
    const Stockade__V1__PolicyServiceShowResponse *m =
        (const Stockade__V1__PolicyServiceShowResponse *)out;
    if (p->o->json)
        return policies_json(out);
    print_digest("digest ", &m->digest);
    for (size_t i = 0; i < m->n_layers; i++)
        print_layer(m->layers[i]);
    if (m->n_layers == 0)
        (void)printf("no layer applies: every call that its caller has the right for is allowed\n");
    if (m->cut)
        (void)fprintf(stderr, "there are more layers; --template shows those of one template\n");
    return cli_flush(p->c);
}

// ---- diff

static void
print_difference(const Stockade__V1__PolicyDifference *d)
{
    static const char *const words[] = {"?", "added", "removed", "changed", "moved"};
    char layer[64], rule[64], file[1100], text[LINE_BYTES];
    const char *word =
        (unsigned)d->change < sizeof words / sizeof words[0] ? words[d->change] : "?";
    (void)printf("%s %s%s%s (%s:%" PRIu32 ")\n", word, text_clean(d->layer, layer, sizeof layer),
                 d->rule[0] != '\0' ? "/" : "", text_clean(d->rule, rule, sizeof rule),
                 text_clean(d->file, file, sizeof file), d->line);
    if (strcmp(word, "moved") == 0)
        return;
    if (d->before[0] != '\0')
        (void)printf("  - %s\n", text_clean(d->before, text, sizeof text));
    if (d->after[0] != '\0')
        (void)printf("  + %s\n", text_clean(d->after, text, sizeof text));
}

static int
put_diff(const struct policing *p, const Stockade__V1__PolicyServiceDiffResponse *m)
{
    int code = EXIT_OK;
    if (p->o->json)
        code = policies_json(&m->base);
    for (size_t i = 0; i < m->n_differences && !p->o->json; i++)
        print_difference(m->differences[i]);
    if (m->cut && !p->o->json)
        (void)fprintf(stderr, "there are more than %d differences\n", POLICY_DIFFERENCES_MAX);
    if (code == EXIT_OK)
        code = cli_flush(p->c);
    if (code != EXIT_OK)
        return EXIT_TROUBLE;
    return m->n_differences > 0 ? EXIT_DIFFERENT : EXIT_OK;
}

static int
diff_here(const struct policing *p, struct arena *a)
{
    Stockade__V1__PolicyServiceDiffResponse out = STOCKADE__V1__POLICY_SERVICE_DIFF_RESPONSE__INIT;
    struct policy_differing x = {.a = a, .out = &out};
    struct policy *before = NULL, *after = NULL;
    struct policy_view was, is;
    struct err e;
    int r = policies_read(&p->o->against, 1, true, &before, &e);
    if (r == 0)
        r = policies_read(p->words, p->words_n, true, &after, &e);
    if (r == 0)
        r = policy_diff(before, after, policy_answer_difference, &x, &e);
    policy_view(before, &was);
    policy_view(after, &is);
    out.digest_before = (ProtobufCBinaryData){sizeof was.digest, was.digest};
    out.digest_after = (ProtobufCBinaryData){sizeof is.digest, is.digest};
    int code = EXIT_TROUBLE;
    if (r < 0)
        (void)policies_fail(p, &e);
    else if (x.failed)
        (void)policies_no_memory(p);
    else
        code = put_diff(p, &out);
    policy_free(before);
    policy_free(after);
    return code;
}

static int
diff_there(const struct policing *p, struct arena *a)
{
    Stockade__V1__PolicyServiceDiffRequest request =
        STOCKADE__V1__POLICY_SERVICE_DIFF_REQUEST__INIT;
    Stockade__V1__PolicyFiles files;
    ProtobufCMessage *out = NULL;
    struct err e;
    int code = EXIT_OK;
    if (policies_files(p->words, p->words_n, a, &files, &e) < 0) {
        (void)policies_fail(p, &e);
        return EXIT_TROUBLE;
    }
    request.files = &files;
    if (!policies_call(p, "Diff", &request.base,
                       &stockade__v1__policy_service_diff_response__descriptor, a, &out, &code))
        return code == EXIT_PROBLEM ? EXIT_TROUBLE : code;
    return put_diff(p, (const Stockade__V1__PolicyServiceDiffResponse *)out);
}

int
policies_diff(const struct policing *p)
{
    struct arena *auto_arena a = arena_new(POLICIES_ARENA);
    if (a == NULL)
        return policies_no_memory(p);
    return p->o->against != NULL ? diff_here(p, a) : diff_there(p, a);
}

// ---- reload

int
policies_reload(const struct policing *p)
{
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    Stockade__V1__PolicyServiceReloadRequest request =
        STOCKADE__V1__POLICY_SERVICE_RELOAD_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    if (a == NULL)
        return policies_no_memory(p);
    request.check = p->o->check;
    if (!policies_call(p, "Reload", &request.base,
                       &stockade__v1__policy_service_reload_response__descriptor, a, &out, &code))
        return code;
    const Stockade__V1__PolicyServiceReloadResponse *m =
        (const Stockade__V1__PolicyServiceReloadResponse *)out;
    if (p->o->json)
        return policies_json(out);
    (void)printf("%s: %" PRIu32 " %s, %" PRIu32 " %s, %" PRIu32 " %s\n",
                 !m->changed   ? "unchanged"
                 : p->o->check ? "would change"
                               : "changed",
                 m->layers, plural(m->layers, "layer", "layers"), m->rules,
                 plural(m->rules, "rule", "rules"), m->tests, plural(m->tests, "test", "tests"));
    print_digest("digest ", &m->digest);
    return cli_flush(p->c);
}
