// SPDX-License-Identifier: Apache-2.0
// See words.h.
#include "words.h"

#include <string.h>

enum { WORD_MAX = 32, NEAR = 2 };

unsigned
words_distance(const char *a, const char *b, unsigned most)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > WORD_MAX || lb > WORD_MAX)
        return most + 1;
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];
    for (unsigned i = 0; i <= la; i++)
        d[i][0] = i;
    for (unsigned j = 0; j <= lb; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[la][lb] > most ? most + 1 : d[la][lb];
}

const char *
words_nearest(const char *typed, const char *const *words, size_t n)
{
    const char *best = NULL;
    unsigned most = strlen(typed) > NEAR ? NEAR : 0, nearest = most + 1;
    for (size_t i = 0; i < n; i++) {
        unsigned distance = words_distance(typed, words[i], most);
        if (distance < nearest) {
            nearest = distance;
            best = words[i];
        }
    }
    return best;
}
