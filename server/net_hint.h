// SPDX-License-Identifier: Apache-2.0
// How to have what was refused: options of the command with which the same would be allowed, or why there are none.
//
// An option is offered only when the sandbox's template takes it. Pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "network.h"

struct net_refused {
    const char *template;       // its name
    const struct network *most; // what that allows
    const struct network *now;  // the sandbox's policy; NULL: none yet
    enum net_reason reason;
    const char *name; // that was asked for, or that a synthetic address stands for; NULL: none
    uint8_t address[16];
    uint16_t port;
    bool of_rule;     // a rule's own limit was met
    uint8_t protocol; // IPPROTO_TCP, IPPROTO_UDP; others: both
};

// "--allow 192.0.2.1:443/tcp", or a sentence, or "". Returns out.
const char *net_hint(const struct net_refused *r, char *out, size_t n);
