// SPDX-License-Identifier: Apache-2.0
// Which texts are whole cells.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client/cli/repl_text.h"

struct row {
    const char *language, *text;
    bool whole;
};

static const struct row rows[] = {
    {"python", "1", true},
    {"python", "", true},
    {"python", "f(1,", false},
    {"python", "f(1,\n2)", true},
    {"python", "x = '('", true},
    {"python", "x = 'a\\'('", true},
    {"python", "x = '", true}, // python reports it
    {"python", "x = \"\"\"a", false},
    {"python", "x = \"\"\"a\n'\"\"\"", true},
    {"python", "x = ''", true},
    {"python", "x = 1 + \\", false},
    {"python", "x = 1 + \\\n2", true},
    {"python", "# (", true},
    {"python", "if x:", false},
    {"python", "if x: # why", false},
    {"python", "if x:\n  y", false},
    {"python", "if x:\n  y\n", true},
    {"python", "if x:\n  y\nelse:", false},
    {"python", "@one", false},
    {"python", ")))", true},
    {"python", "{'a': [1, (2)]}", true},
    {"bash", "echo 'a", false},
    {"bash", "echo 'a\\'", true},
    {"bash", "echo \"a\\\"", false},
    {"bash", "for i in 1; do", false},
    {"bash", "for i in 1; do\necho do; done", false},
    {"bash", "for i in 1; do\necho $i; done", true},
    {"bash", "if true; then", false},
    {"bash", "if true; then\na\nfi", true},
    {"bash", "f() {", false},
    {"bash", "f() {\na\n}", true},
    {"bash", "echo a#b(", false},
    {"bash", "echo # (", true},
    {"javascript", "f(`a", false},
    {"javascript", "f(`a\n`)", true},
    {"javascript", "/* (", false},
    {"javascript", "/* ( */ 1", true},
    {"javascript", "// (", true},
    {"javascript", "if (a) {", false},
    {"javascript", "if (a) {\n}", true},
};

static void
a_cell_is_whole_when_nothing_is_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (repl_is_whole(rows[i].language, rows[i].text) != rows[i].whole)
            fail_msg("%s: \"%s\"", rows[i].language, rows[i].text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cell_is_whole_when_nothing_is_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
