// SPDX-License-Identifier: Apache-2.0
// Words of the command line for numbers of the schema (report.c).
#pragma once

#include <stdint.h>

// The name of an outcome as in JSON, such as "EXITED"; or "UNKNOWN".
const char *cli_outcome_name(uint32_t outcome);
const char *cli_state_name(uint32_t state);
const char *cli_network_name(uint32_t network);
const char *cli_severity_name(uint32_t severity); // "warning", or "?"
uint32_t cli_severity_number(const char *name);   // 0: NULL or unknown
int cli_network_number(const char *name);         // enum stockade_network; NULL: the template's
