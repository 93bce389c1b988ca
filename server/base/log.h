// SPDX-License-Identifier: Apache-2.0
// The broker's log: one line per event on stderr, as text or JSON.
//
// Data from peers and jobs is escaped (control bytes, bidirectional overrides and invalid UTF-8), and each line has a
// maximum length. A line that cannot be written to stderr immediately is dropped and counted, so that a full pipe does
// not stop the loop; the next line reports how many were lost.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

enum { LOG_LINE_MAX = 4096, LOG_VALUE_MAX = 512 };

// Sets the descriptor, the lowest level and the format. The default is stderr, info and text.
void log_setup(int fd, enum log_level from, bool json);

// Logs one event: a short constant name, and a sentence.
void log_event(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Logs a failure: the text and the code of e.
void log_err(enum log_level level, const char *event, const struct err *e);

// The objects that an event concerns; each is a field in a line of JSON. NULL or "": none. Borrowed.
struct log_about {
    const char *sandbox, *job, *rule, *tenant;
};
void log_event_about(enum log_level level, const char *event, const struct log_about *about,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void log_err_about(enum log_level level, const char *event, const struct log_about *about,
                   const struct err *e);

// Escapes `text` into `out` (terminated by NUL; truncated with "..." if it does not fit) and returns the length. Quotes
// and backslashes are escaped too, so the result can be used between quotes in JSON.
size_t log_escape(const char *text, char *out, size_t out_n);
