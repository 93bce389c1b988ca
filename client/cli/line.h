// SPDX-License-Identifier: Apache-2.0
// A line editor, and a history in a file: what a prompt needs, and no more. Linking readline would put its license (GPL) on
// the whole command.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { LINE_MAX_BYTES = 64 * 1024, HISTORY_MAX = 1000 };

// Entries, oldest first. An entry may have several lines.
struct history {
    char *entry[HISTORY_MAX]; // owned
    size_t n;
    char *path; // owned; NULL: it is not kept
};

enum line_end { LINE_ENTERED, LINE_INTERRUPTED, LINE_ENDED, LINE_FAILED };

// Reads a line from stdin: with keys on a terminal, plainly otherwise. *out is *owned* by the caller, without the line break,
// and valid UTF-8. INTERRUPTED: ^C; ENDED: ^D on an empty line, or the end of stdin; FAILED: errno. NULL history: none.
enum line_end line_read(const char *prompt, const struct history *h, char **out);

// Reads $XDG_STATE_HOME/stockade/history (~/.local/state/stockade/history). A file that cannot be read is an empty history.
void history_open(struct history *h);
// Adds an entry, unless it is empty or the last one again, and appends it to the file. A failure to write is ignored.
void history_add(struct history *h, const char *text);
void history_close(struct history *h);
