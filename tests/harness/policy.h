// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of policies and of their rules: makes a policy from destinations in the configuration's form.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/target.h"
#include "server/policy/rule.h"
#include "server/policy/network.h"

struct network *policy(enum net_mode mode, size_t n, const char *const *targets);

#define POLICY(mode, ...)                                                                          \
    policy(mode, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                           \
           (const char *[]){__VA_ARGS__})
