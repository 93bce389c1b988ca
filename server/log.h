// SPDX-License-Identifier: Apache-2.0
// The broker's log: one line per event on stderr, as text or JSON.
//
// Whatever comes from a peer or a job is data: control bytes, bidirectional overrides and bytes that are not UTF-8 are
// escaped, and each line has a longest length. A line that stderr does not take at once is dropped and counted, so that
// a full pipe does not stop the loop; the next line that goes through says how many were lost.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/err.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

enum { LOG_LINE_MAX = 4096, LOG_VALUE_MAX = 512 };

// Where lines go, from which level on, in which form. Until it is called: stderr, info, text.
void log_setup(int fd, enum log_level from, bool json);

// One event: a short constant name, then a sentence.
void log_event(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// An event that is a failure: what e says, with its code.
void log_err(enum log_level level, const char *event, const struct err *e);

// What an event is about: fields of their own in a line of JSON. NULL or "": it is about none. Borrowed.
struct log_about {
    const char *sandbox, *job, *rule, *tenant;
};
void log_event_about(enum log_level level, const char *event, const struct log_about *about,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void log_err_about(enum log_level level, const char *event, const struct log_about *about,
                   const struct err *e);

// Lines lost so far.
uint64_t log_lost(void);

// Escapes `text` into `out` (ended by NUL, cut with "..." where it does not fit). Returns the length. Quotes and
// backslashes are escaped too, so the result can stand between quotes in JSON.
size_t log_escape(const char *text, char *out, size_t out_n);
