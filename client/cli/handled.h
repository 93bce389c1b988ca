// SPDX-License-Identifier: Apache-2.0
// anomalies: the actions that acknowledge and silence findings (AnomalyService).
#pragma once

struct command;
struct options;

// The first operand is not "ls".
int handled_action(const struct command *c, const struct options *o);

// Why an option that belongs to such an action only is out of place; NULL: there is none.
const char *handled_option(const struct options *o);
