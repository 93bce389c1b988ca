// SPDX-License-Identifier: Apache-2.0
// See repl_text.h.
#include "repl_text.h"

#include <stddef.h>
#include <string.h>

struct scan {
    const char *at;
    int depth;   // of brackets
    char last;   // the last character that is not blank, outside of comments
    bool open;   // a quotation, or a comment of javascript, has not ended
    bool follow; // the last line ends with a backslash
};

// Skips a quotation that begins at s->at. triple: python's; lines: it may span lines.
static void
skip_quotation(struct scan *s, bool triple, bool lines, bool escapes)
{
    const char quote = *s->at;
    const size_t n = triple && s->at[1] == quote && s->at[2] == quote ? 3 : 1;
    for (s->at += n; *s->at != '\0'; s->at++) {
        if (*s->at == '\\' && escapes && s->at[1] != '\0') {
            s->at++;
            continue;
        }
        if (*s->at == '\n' && n == 1 && !lines)
            return;
        if (*s->at == quote && (n == 1 || (s->at[1] == quote && s->at[2] == quote))) {
            s->at += n - 1;
            return;
        }
    }
    s->open = n == 3 || lines;
    s->at--;
}

static void
skip_line(struct scan *s)
{
    s->at += strcspn(s->at, "\n");
    s->at--;
}

static void
skip_comment(struct scan *s)
{
    const char *end = strstr(s->at + 2, "*/");
    s->open = end == NULL;
    s->at = end != NULL ? end + 1 : s->at + strlen(s->at) - 1;
}

static void
scan_text(struct scan *s, const char *language, const char *text)
{
    const bool python = strcmp(language, "python") == 0, bash = strcmp(language, "bash") == 0;
    for (s->at = text; *s->at != '\0'; s->at++) {
        const char c = *s->at;
        const bool word_ends = s->at == text || strchr(" \t\n;(", s->at[-1]) != NULL;
        s->follow = c == '\\' && (s->at[1] == '\n' || s->at[1] == '\0');
        if ((c == '#' && (python || (bash && word_ends))) ||
            (c == '/' && s->at[1] == '/' && !python && !bash)) {
            skip_line(s);
            continue;
        }
        if (c == '/' && s->at[1] == '*' && !python && !bash)
            skip_comment(s);
        else if (c == '\\' && s->at[1] != '\0')
            s->at++;
        else if (c == '\'' || c == '"' || (c == '`' && !python))
            skip_quotation(s, python, bash || c == '`', !(bash && c == '\''));
        else if (strchr("([{", c) != NULL)
            s->depth++;
        else if (strchr(")]}", c) != NULL)
            s->depth--;
        if (*s->at != '\0' && strchr(" \t\n", *s->at) == NULL)
            s->last = *s->at;
        if (s->open)
            return;
    }
}

// The first and the last line of a text: a block of python goes on until an empty line.
static bool
is_in_block(const char *text, char last)
{
    const char *line = strrchr(text, '\n');
    if (last == ':')
        return true;
    if (line == NULL)
        return text[0] == '@';
    return line[1] != '\0' && (line[1] == ' ' || line[1] == '\t' || strchr(text, ':') != NULL);
}

// `for`, `do`, `if`, `case`, ... of bash that have no end yet.
static int
open_words(const char *text)
{
    static const char *const opens[] = {"if", "case", "do"}, *const ends[] = {"fi", "esac", "done"};
    int n = 0;
    for (const char *at = text; *at != '\0';) {
        const size_t length = strcspn(at, " \t\n;");
        for (size_t i = 0; i < sizeof opens / sizeof opens[0]; i++) {
            n += strlen(opens[i]) == length && memcmp(at, opens[i], length) == 0;
            n -= strlen(ends[i]) == length && memcmp(at, ends[i], length) == 0;
        }
        n += length == 3 && memcmp(at, "for", 3) == 0 && strstr(at, "do") == NULL;
        n += length == 5 && memcmp(at, "while", 5) == 0 && strstr(at, "do") == NULL;
        at += length;
        at += strspn(at, " \t\n;");
    }
    return n;
}

bool
repl_is_whole(const char *language, const char *text)
{
    struct scan s = {0};
    scan_text(&s, language, text);
    if (s.open || s.depth > 0 || s.follow)
        return false;
    if (strcmp(language, "python") == 0)
        return !is_in_block(text, s.last);
    return strcmp(language, "bash") != 0 || open_words(text) <= 0;
}
