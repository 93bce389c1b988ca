// SPDX-License-Identifier: Apache-2.0
// See policies.h.
#include "policies.h"

#include <string.h>

#include "proto/arena.h"
#include "proto/now.h"
#include "proto/validate.h"
#include "proto/yaml_message.h"

struct policy *policy;
struct policy_decision decision;

static int
read_one(const char *name, const char *text, bool configuration, struct err *e)
{
    Stockade__V1__PolicyFile file = STOCKADE__V1__POLICY_FILE__INIT, *list[] = {&file};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    file.name = name;
    file.text = text;
    file.configuration = configuration;
    files.files = list;
    files.n_files = 1;
    policy_free(policy);
    policy = NULL;
    return policy_read(&files, &policy, e);
}

int
read_text(const char *text, struct err *e)
{
    return read_one("p.yaml", text, false, e);
}

int
read_configuration(const char *text, struct err *e)
{
    return read_one("c.yaml", text, true, e);
}

void
load(const char *text)
{
    struct err e = {.text = ""};
    if (read_text(text, &e) < 0)
        fail_msg("%s", e.text);
}

const char *
decide(const char *call)
{
    struct arena *auto_arena a = arena_new(1 << 20);
    struct yaml *y = NULL;
    struct yaml_node *root = NULL;
    ProtobufCMessage *m = NULL;
    const struct policy_words by = {.tenant = "uid:1000", .now_ms = now_wall_ms()};
    struct err e = {.text = ""};
    if (yaml_tree_read("call", call, strlen(call), false, &y, &root, &e) < 0 ||
        yaml_message("call", root, &stockade__v1__policy_call__descriptor, a, &m, &e) < 0 ||
        policy_decide_words(policy, (const Stockade__V1__PolicyCall *)m, &by, &decision, &e) < 0)
        fail_msg("%s", e.text);
    yaml_tree_free(y);
    return policy_verdict_name[decision.verdict];
}

int
policies_set_up(void **unused)
{
    struct err e;
    (void)unused;
    return validate_init(&e);
}

int
policies_tear_down(void **unused)
{
    (void)unused;
    policy_free(policy);
    return 0;
}
