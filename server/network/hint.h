// SPDX-License-Identifier: Apache-2.0
// Hints for refusals: options of the command that would allow the same, or the reason why none does.
//
// A hint names an option only if the sandbox's template permits it. Pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/policy/network.h"

struct net_refused {
    const char *template;       // name of the template
    const struct network *most; // the template's maximum
    const struct network *now;  // the sandbox's policy; NULL: none yet
    enum net_reason reason;
    const char *name; // the queried name, or that of a synthetic address; NULL: none
    uint8_t address[16];
    uint16_t port;
    bool of_rule;     // a limit of the rule was reached
    uint8_t protocol; // IPPROTO_TCP, IPPROTO_UDP; others: both
};

// Writes a hint such as "--allow 192.0.2.1:443/tcp", or a sentence, or "". Returns out.
const char *net_hint(const struct net_refused *r, char *out, size_t n);
