// SPDX-License-Identifier: Apache-2.0
// The decision about one call: a policy of 1,000 rules, and a token of three blocks whose signatures are known.
//
//   decisions ROUNDS
//
// Rows: the policy whose last rule matches, with rules about programs and with patterns for each; the same with nothing that matches;
// and the caveats of the token. No broker, no request.
#include "bench.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/now.h"
#include "proto/token.h"
#include "proto/validate.h"
#include "server/access/caveats.h"
#include "server/access/policy.h"
#include "server/policy/network.h"

enum { RULES = 1000, ROOM = RULES * 160, EACH = 16 };

static struct policy *
make_policy(const char *folder)
{
    static char text[ROOM];
    Stockade__V1__PolicyFile file = STOCKADE__V1__POLICY_FILE__INIT, *list[] = {&file};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    struct policy *p = NULL;
    struct err e;
    size_t n = (size_t)snprintf(text, ROOM, "layers: [{name: a, rules: [");
    for (int i = 0; i < RULES; i++) {
        char command[64];
        (void)snprintf(command, sizeof command, "%stool%d ...", folder, i);
        n += (size_t)snprintf(
            text + n, ROOM - n,
            "{id: r%d, match: {methods: [ProcessService/Run], commands: [\"%s\"]}, "
            "verdict: deny},",
            i, command);
    }
    (void)snprintf(text + n, ROOM - n, "]}]");
    file.name = "bench.yaml";
    file.text = text;
    files.files = list;
    files.n_files = 1;
    if (policy_read(&files, &p, &e) < 0)
        bench_die("%s", e.text);
    return p;
}

// Samples of EACH decisions, because one is shorter than what clocks cost.
static void
decide(const struct policy *p, const char *program, const char *row, size_t rounds)
{
    static struct policy_decision out;
    struct samples s = {.row = row};
    const char *args[] = {program, "--verbose", "input.txt"};
    const struct deed_command command = {3, 0, args, NULL};
    struct limits l;
    limits_usual(&l);
    const struct deed d = {.method = "ProcessService/Run",
                           .runs = true,
                           .makes = true,
                           .template = "default",
                           .commands = &command,
                           .commands_n = 1,
                           .limits = &l,
                           .has_network = true};
    const struct policy_call c = {
        .deed = &d, .tenant = "uid:1000", .credential = "token", .language = ""};
    for (size_t i = 0; i < rounds; i++) {
        const double from = bench_now();
        for (int k = 0; k < EACH; k++)
            policy_decide(p, &c, NULL, NULL, &out);
        samples_add(&s, (bench_now() - from) / EACH);
    }
    samples_print(&s, "decisions",
                  out.verdict == POLICY_DENY ? ",\"verdict\":\"deny\"" : ",\"verdict\":\"allow\"");
}

static void
add_caveats(Stockade__V1__TokenBlock *b, const char *method)
{
    static Stockade__V1__Caveat caveats[2], *list[2];
    static Stockade__V1__CaveatWords words;
    static const char *methods[1];
    for (int i = 0; i < 2; i++) {
        stockade__v1__caveat__init(&caveats[i]);
        list[i] = &caveats[i];
    }
    stockade__v1__caveat_words__init(&words);
    methods[0] = method;
    words.words = methods;
    words.n_words = 1;
    caveats[0].caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_METHODS;
    caveats[0].methods = &words;
    caveats[1].caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS;
    caveats[1].expires_ms = UINT64_C(4102444800000);
    b->caveats = list;
    b->n_caveats = 2;
}

static void
check_token(size_t rounds)
{
    static char text[TOKEN_TEXT_MAX + 1], next[TOKEN_TEXT_MAX + 1];
    const char *scopes[] = {"process.run"};
    uint8_t seed[TOKEN_KEY_BYTES] = {1};
    struct arena *a = arena_new(TOKEN_ARENA);
    struct samples s = {.row = "three blocks of caveats"};
    const struct deed d = {.method = "ProcessService/Run", .template = "default"};
    struct token t;
    struct err e;
    Stockade__V1__TokenBlock b = STOCKADE__V1__TOKEN_BLOCK__INIT;
    add_caveats(&b, "ProcessService/*");
    b.tenant = "uid:1000";
    b.scopes = scopes;
    b.n_scopes = 1;
    int r = token_mint(seed, &b, text, &e);
    b.tenant = "";
    b.n_scopes = 0;
    for (int i = 0; i < 2 && r == 0; i++) {
        r = token_attenuate(text, &b, next, &e);
        memcpy(text, next, sizeof text);
    }
    if (r < 0 || token_read(text, a, &t, &e) < 0)
        bench_die("%s", e.text);
    for (size_t i = 0; i < rounds; i++) {
        const double from = bench_now();
        for (int k = 0; k < EACH; k++)
            if (caveats_valid(&t, now_wall_ms(), "here", &e) < 0 || caveats_allow(&t, &d, &e) < 0)
                bench_die("%s", e.text);
        samples_add(&s, (bench_now() - from) / EACH);
    }
    samples_print(&s, "decisions", "");
    arena_free(a);
}

int
main(int argc, char **argv)
{
    const size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    struct err e;
    if (sodium_init() < 0 || validate_init(&e) < 0)
        bench_die("start: %s", e.text);
    struct policy *named = make_policy(""), *patterns = make_policy("*/");
    decide(named, "tool999", "1,000 programs, the last matches", rounds);
    decide(named, "other", "1,000 programs, none matches", rounds);
    decide(patterns, "/usr/bin/tool999", "1,000 patterns, the last matches", rounds);
    decide(patterns, "/usr/bin/other", "1,000 patterns, none matches", rounds);
    check_token(rounds);
    policy_free(named);
    policy_free(patterns);
    return 0;
}
