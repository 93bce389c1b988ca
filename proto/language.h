// SPDX-License-Identifier: Apache-2.0
// The names of the languages of code (server/code/language.h): those that a caller may write, and the one that policies and replies have.
#pragma once

#include <stdbool.h>

#include "err.h"

// The name of the language that is called so, or NULL: "sh" is "bash". "" is "python", the default.
const char *language_name(const char *word);

// As above, with an error of the field `language`.
const char *language_named(const char *word, struct err *e);

// Whether a pattern (glob.h) of a policy fits the name of a language. If not, the error says which names there are.
bool language_any(const char *pattern, struct err *e);
