// SPDX-License-Identifier: Apache-2.0
// See glob.h. The leftmost place of each part leaves most room for the next one, so no choice is ever taken back.
#include "glob.h"

#include <string.h>

bool
glob_is_plain(const char *pattern)
{
    return strchr(pattern, '*') == NULL;
}

bool
glob_match(const char *pattern, const char *text, size_t n)
{
    size_t part = strcspn(pattern, "*");
    if (part > n || memcmp(pattern, text, part) != 0)
        return false;
    if (pattern[part] == '\0')
        return part == n;
    for (;;) {
        text += part;
        n -= part;
        pattern += part;
        pattern += strspn(pattern, "*");
        part = strcspn(pattern, "*");
        if (pattern[part] == '\0')
            return part <= n && memcmp(text + (n - part), pattern, part) == 0;
        const char *at = memmem(text, n, pattern, part);
        if (at == NULL)
            return false;
        n -= (size_t)(at - text);
        text = at;
    }
}
