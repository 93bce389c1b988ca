// SPDX-License-Identifier: Apache-2.0
// See line.h. The text is one line of valid UTF-8; the cursor is between two characters. After each key the line is drawn
// again, moved to the left if it is wider than the terminal. Of an entry with several lines its last one is edited.
#include "line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/utf8.h"
#include "text.h"
#include "tty.h"

enum {
    CTRL_A = 1,
    CTRL_B = 2,
    CTRL_C = 3,
    CTRL_D = 4,
    CTRL_E = 5,
    CTRL_F = 6,
    CTRL_H = 8,
    TAB = 9,
    ENTER_LF = 10,
    CTRL_K = 11,
    CTRL_L = 12,
    ENTER = 13,
    CTRL_N = 14,
    CTRL_P = 16,
    CTRL_U = 21,
    CTRL_W = 23,
    ESCAPE = 27,
    BACKSPACE = 127,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_NONE,
    INDENT = 4,
};

struct line {
    const char *prompt;
    const struct history *history;
    char text[LINE_MAX_BYTES + 1];
    size_t n, at;   // bytes; the cursor
    size_t entry;   // of the history; history->n: the new line
    char *kept;     // owned: the new line, while an entry is shown
    unsigned width; // columns of the terminal
    int pushed;     // a byte that was read too early; -1: none
};

// ---- drawing

static size_t
before(const struct line *l, size_t at)
{
    while (at > 0 && ((unsigned char)l->text[--at] & 0xc0) == 0x80)
        continue;
    return at;
}

static size_t
after(const struct line *l, size_t at)
{
    size_t n = at < l->n ? utf8_decode(l->text + at, l->n - at, NULL) : 0;
    return at + (n > 0 ? n : at < l->n);
}

// Columns of the bytes from..to.
static size_t
columns(const struct line *l, size_t from, size_t to)
{
    static char part[LINE_MAX_BYTES + 1];
    memcpy(part, l->text + from, to - from);
    part[to - from] = '\0';
    return text_width(part);
}

static void
draw(const struct line *l)
{
    const size_t prompt = text_width(l->prompt);
    const size_t room = l->width > prompt + 2 ? l->width - prompt - 1 : 1;
    size_t first = 0;
    while (first < l->at && columns(l, first, l->at) >= room)
        first = after(l, first);
    size_t last = first;
    while (last < l->n && columns(l, first, after(l, last)) <= room)
        last = after(l, last);
    (void)printf("\r%s%.*s\033[K\r", l->prompt, (int)(last - first), l->text + first);
    const size_t cursor = prompt + columns(l, first, l->at);
    if (cursor > 0)
        (void)printf("\033[%zuC", cursor);
    (void)fflush(stdout);
}

// ---- keys

static int
read_byte(struct line *l)
{
    unsigned char b = 0;
    if (l->pushed >= 0) {
        b = (unsigned char)l->pushed;
        l->pushed = -1;
        return b;
    }
    for (;;) {
        ssize_t n = read(STDIN_FILENO, &b, 1);
        if (n == 1)
            return b;
        if (n == 0)
            return -1;
        if (errno != EINTR)
            return -2;
    }
}

// The rest of an escape sequence: ESC [ A, ESC O A, ESC [ 3 ~.
static int
read_escape(struct line *l)
{
    static const struct {
        char letter;
        int key;
    } letters[] = {{'A', KEY_UP},   {'B', KEY_DOWN}, {'C', KEY_RIGHT},
                   {'D', KEY_LEFT}, {'H', KEY_HOME}, {'F', KEY_END}};
    int b = read_byte(l);
    if (b != '[' && b != 'O')
        return KEY_NONE;
    int number = 0;
    for (b = read_byte(l); (b >= '0' && b <= '9') || b == ';'; b = read_byte(l))
        number = b == ';' || number > 99 ? 0 : number * 10 + b - '0';
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (b == letters[i].letter)
            return letters[i].key;
    if (b != '~')
        return KEY_NONE;
    return number == 3                  ? KEY_DELETE
           : number == 1 || number == 7 ? KEY_HOME
           : number == 4 || number == 8 ? KEY_END
                                        : KEY_NONE;
}

static void
erase(struct line *l, size_t from, size_t to)
{
    memmove(l->text + from, l->text + to, l->n - to + 1);
    l->n -= to - from;
    l->at = from;
}

static void
insert(struct line *l, const char *bytes, size_t n)
{
    if (l->n + n > LINE_MAX_BYTES)
        return;
    memmove(l->text + l->at + n, l->text + l->at, l->n - l->at + 1);
    memcpy(l->text + l->at, bytes, n);
    l->n += n;
    l->at += n;
}

// A character whose first byte was read. What is not UTF-8 is ignored.
static void
insert_character(struct line *l, int first)
{
    char bytes[4] = {(char)first};
    const size_t n = first < 0x80                     ? 1
                     : first >= 0xc0 && first <= 0xdf ? 2
                     : first >= 0xe0 && first <= 0xef ? 3
                     : first >= 0xf0 && first <= 0xf4 ? 4
                                                      : 0;
    for (size_t i = 1; i < n; i++) {
        int b = read_byte(l);
        if (b < 0 || (b & 0xc0) != 0x80) {
            l->pushed = b;
            return;
        }
        bytes[i] = (char)b;
    }
    if (n > 0 && utf8_decode(bytes, n, NULL) == n)
        insert(l, bytes, n);
}

static void
show_entry(struct line *l, size_t entry)
{
    const struct history *h = l->history;
    if (h == NULL || entry > h->n || entry == l->entry)
        return;
    if (l->entry == h->n) {
        free(l->kept);
        l->kept = strdup(l->text);
    }
    l->entry = entry;
    const char *text = entry < h->n ? h->entry[entry] : l->kept != NULL ? l->kept : "";
    const char *last = strrchr(text, '\n');
    (void)snprintf(l->text, sizeof l->text, "%s", last != NULL ? last + 1 : text);
    l->n = l->at = strlen(l->text);
}

static void
erase_word(struct line *l)
{
    size_t from = l->at;
    while (from > 0 && l->text[from - 1] == ' ')
        from--;
    while (from > 0 && l->text[from - 1] != ' ')
        from--;
    erase(l, from, l->at);
}

static void
move_key(struct line *l, int key)
{
    if (key == KEY_LEFT || key == CTRL_B)
        l->at = before(l, l->at);
    else if (key == KEY_RIGHT || key == CTRL_F)
        l->at = after(l, l->at);
    else if (key == KEY_HOME || key == CTRL_A)
        l->at = 0;
    else if (key == KEY_END || key == CTRL_E)
        l->at = l->n;
    else if ((key == KEY_UP || key == CTRL_P) && l->entry > 0)
        show_entry(l, l->entry - 1);
    else if (key == KEY_DOWN || key == CTRL_N)
        show_entry(l, l->entry + 1);
}

static void
edit_key(struct line *l, int key)
{
    static const char blanks[INDENT + 1] = "    ";
    if (key == BACKSPACE || key == CTRL_H)
        erase(l, before(l, l->at), l->at);
    else if (key == KEY_DELETE || key == CTRL_D)
        erase(l, l->at, after(l, l->at));
    else if (key == CTRL_U)
        erase(l, 0, l->at);
    else if (key == CTRL_K)
        erase(l, l->at, l->n);
    else if (key == CTRL_W)
        erase_word(l);
    else if (key == TAB)
        insert(l, blanks, INDENT);
    else if (key == CTRL_L)
        (void)printf("\033[H\033[2J");
    else if (key >= ' ' && key < KEY_UP)
        insert_character(l, key);
    else
        move_key(l, key);
}

// Until the line ends.
static enum line_end
edit(struct line *l)
{
    for (;;) {
        draw(l);
        int key = read_byte(l);
        if (key == -1)
            return LINE_ENDED;
        if (key < 0)
            return LINE_FAILED;
        if (key == ESCAPE)
            key = read_escape(l);
        if (key == ENTER || key == ENTER_LF)
            return LINE_ENTERED;
        if (key == CTRL_C)
            return LINE_INTERRUPTED;
        if (key == CTRL_D && l->n == 0)
            return LINE_ENDED;
        edit_key(l, key);
    }
}

// ---- all of it

static enum line_end
read_plain(char **out)
{
    char *text = NULL;
    size_t size = 0;
    errno = 0;
    ssize_t n = getline(&text, &size, stdin);
    if (n < 0) {
        free(text);
        return errno != 0 && ferror(stdin) != 0 ? LINE_FAILED : LINE_ENDED;
    }
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
    *out = text;
    return LINE_ENTERED;
}

enum line_end
line_read(const char *prompt, const struct history *h, char **out)
{
    uint32_t rows, width;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
        return read_plain(out);
    struct line *l = calloc(1, sizeof *l);
    if (l == NULL || !tty_raw()) {
        free(l);
        return LINE_FAILED;
    }
    tty_size(&rows, &width);
    l->prompt = prompt;
    l->history = h;
    l->entry = h != NULL ? h->n : 0;
    l->width = width;
    l->pushed = -1;
    enum line_end end = edit(l);
    l->at = l->n;
    draw(l);
    tty_restore();
    (void)printf(end == LINE_INTERRUPTED ? "^C\n" : "\n");
    (void)fflush(stdout);
    if (end == LINE_ENTERED && (*out = strdup(l->text)) == NULL)
        end = LINE_FAILED;
    free(l->kept);
    free(l);
    return end;
}
