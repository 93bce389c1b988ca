// SPDX-License-Identifier: Apache-2.0
// A file of policies and a call: any bytes are read or refused, and whatever was read decides without a fault. The first line of the
// input is the call: its words, with spaces between them; the rest is the file.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/glob.h"
#include "proto/validate.h"
#include "server/access/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { WORDS_MAX = 64 };

static struct policy_decision decision;

// The simple way: what glob_match() must agree with.
static bool
slow_match(const char *pattern, const char *text)
{
    if (*pattern == '\0')
        return *text == '\0';
    if (*pattern != '*')
        return *pattern == *text && slow_match(pattern + 1, text + 1);
    return slow_match(pattern + 1, text) || (*text != '\0' && slow_match(pattern, text + 1));
}

static void
check_globs(size_t n, const char *const *words)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        if (strlen(words[i]) < 12 && strlen(words[i + 1]) < 12)
            assert(glob_match(words[i], words[i + 1], strlen(words[i + 1])) ==
                   slow_match(words[i], words[i + 1]));
}

static void
decide(const struct policy *p, size_t n, const char *const *words)
{
    struct limits l = {{0}};
    const struct deed_command command = {n, 0, words, NULL};
    const struct deed d = {.method = "ProcessService/Run",
                           .runs = true,
                           .template = n > 0 ? words[n - 1] : "default",
                           .commands = &command,
                           .commands_n = n > 0,
                           .limits = &l};
    const struct policy_call c = {.deed = &d,
                                  .tenant = n > 1 ? words[1] : "uid:1000",
                                  .credential = "peer",
                                  .language = n > 2 ? words[2] : "",
                                  .paths_n = n,
                                  .paths = words,
                                  .labels_n = n,
                                  .labels = words,
                                  .now_ms = (int64_t)n * 3600000};
    struct err e;
    policy_decide(p, &c, NULL, NULL, &decision);
    assert(decision.verdict <= POLICY_DENY && decision.asks_n <= POLICY_ASKS_MAX &&
           decision.hits_n <= POLICY_HITS_MAX);
    assert((decision.verdict == POLICY_ASK) <= (decision.asks_n > 0));
    if (decision.verdict == POLICY_DENY)
        assert(policy_refuse(&decision, d.method, &e) < 0 && e.text[0] != '\0');
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static bool ready;
    Stockade__V1__PolicyFile file = STOCKADE__V1__POLICY_FILE__INIT, *list[] = {&file};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    const char *words[WORDS_MAX];
    struct policy *p = NULL;
    struct err e;
    size_t words_n = 0;
    if (!ready && validate_init(&e) < 0)
        abort();
    ready = true;
    char *text = calloc(1, n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    char *rest = strchr(text, '\n');
    file.text = rest != NULL ? rest + 1 : "";
    if (rest != NULL)
        *rest = '\0';
    char *next = NULL;
    for (char *w = strtok_r(text, " ", &next); w != NULL && words_n < WORDS_MAX;
         w = strtok_r(NULL, " ", &next))
        words[words_n++] = w;
    file.name = "fuzz";
    files.files = list;
    files.n_files = 1;
    check_globs(words_n, words);
    if (policy_read(&files, &p, &e) == 0)
        decide(p, words_n, words);
    policy_free(p);
    p = NULL;
    file.configuration =
        true; // the same text as that of a configuration, and as the policy of a request
    if (policy_read(&files, &p, &e) == 0)
        decide(p, words_n, words);
    policy_free(p);
    p = NULL;
    if (policy_read_request(file.text, &p, &e) == 0)
        decide(p, words_n, words);
    policy_free(p);
    free(text);
    return 0;
}
