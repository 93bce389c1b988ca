// SPDX-License-Identifier: Apache-2.0
// The format that a client's Accept header asks for (RFC 9110, 12.5.1). Pure.
#pragma once

#include "client/exposition.h"

// OpenMetrics if the header names it, in version 1.0.0 or without a version, with at least the weight of text/plain;
// otherwise, also for "" and for a header that is malformed, the text format.
enum exposition accept_form(const char *header);
