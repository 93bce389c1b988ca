// SPDX-License-Identifier: Apache-2.0
// Reading the configuration again because a call asks for it: what server/reload.c does, for the layers below it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/access/policy.h"

// What was read.
struct config_reloaded {
    uint8_t digest[POLICY_DIGEST]; // of the policy
    uint32_t layers, rules, tests;
    bool policy_changed;
};

// e NULL: it was read, and applied unless it was only checked.
typedef void config_reloaded_fn(void *cookie, const struct config_reloaded *what,
                                const struct err *e);

struct config_reloader {
    void *cookie;
    // Reads it again. check: and changes nothing. `done` follows, once, and never from inside of this function. NULL: refused.
    void *(*ask)(void *cookie, bool check, config_reloaded_fn *done, void *done_cookie,
                 struct err *e);
    // `done` must not be called any more.
    void (*unask)(void *asked);
};
