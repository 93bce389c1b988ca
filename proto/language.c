// SPDX-License-Identifier: Apache-2.0
// See language.h.
#include "language.h"

#include <stddef.h>
#include <string.h>

#include "glob.h"

static const struct language_words {
    const char *name, *aliases[2];
} languages[] = {
    {"python", {"py", "python3"}},
    {"bash", {"sh", "shell"}},
    {"javascript", {"js", "node"}},
};
enum { LANGUAGES = sizeof languages / sizeof languages[0] };

static bool
is_called(const struct language_words *l, const char *word)
{
    return strcmp(l->name, word) == 0 || strcmp(l->aliases[0], word) == 0 ||
           strcmp(l->aliases[1], word) == 0;
}

const char *
language_name(const char *word)
{
    if (word[0] == '\0')
        return languages[0].name;
    for (size_t i = 0; i < LANGUAGES; i++)
        if (is_called(&languages[i], word))
            return languages[i].name;
    return NULL;
}

const char *
language_named(const char *word, struct err *e)
{
    const char *name = language_name(word);
    if (name == NULL)
        (void)err_field(e, "language", "%.32s: not python, bash or javascript", word);
    return name;
}

bool
language_any(const char *pattern, struct err *e)
{
    for (size_t i = 0; i < LANGUAGES; i++)
        if (glob_match(pattern, languages[i].name, strlen(languages[i].name)))
            return true;
    const char *name = language_name(pattern);
    if (name != NULL)
        (void)err_set(e, ERR_INVALID_ARGUMENT, "%.32s: the name is %s, which fits all names of it",
                      pattern, name);
    else
        (void)err_set(e, ERR_INVALID_ARGUMENT, "%.32s: not python, bash or javascript", pattern);
    return false;
}
