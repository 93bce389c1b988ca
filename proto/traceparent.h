// SPDX-License-Identifier: Apache-2.0
// The header traceparent of W3C Trace Context: the trace and the span of a caller. Pure.
//
//   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//      trace id                         span id          flags: 1: the caller records it
#pragma once

#include <stdbool.h>

enum { TRACEPARENT_LENGTH = 55 };

// Whether the text is one of version 00, with ids that are not 0.
bool traceparent_valid(const char *text);
