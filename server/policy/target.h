// SPDX-License-Identifier: Apache-2.0
// The rules of the named sets of destinations, and which set covers a rule. Pure.
#pragma once

#include <stdint.h>

#include "proto/destinations.h"
#include "server/relay/relay.h"

// The rules of a set, numbered from 0. Returns their number.
uint32_t network_set_rules(const struct destination_set *s,
                           struct relay_rule out[DESTINATIONS_MAX]);

// The first set with a rule that covers `rule`, ignoring ports if it has none; NULL: none.
const struct destination_set *network_set_around(const struct relay_rule *rule);
