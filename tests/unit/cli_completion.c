// SPDX-License-Identifier: Apache-2.0
// client/cli/words.c, completion.c and help.c: completions and help agree with the tables.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/commands.h"

enum { WORDS_MAX = 16 };

// The completions of a line; the cursor's word is the text after the last blank. Owned by the caller.
static char *
offers(const char *line)
{
    static char *text; // static, because gcc warns about returning an automatic variable
    static size_t n;
    char *copy = strdup(line), *word = copy;
    const char *words[WORDS_MAX];
    int words_n = 0;
    assert_non_null(copy);
    for (char *end; (end = strchr(word, ' ')) != NULL && words_n < WORDS_MAX - 1; word = end + 1) {
        *end = '\0';
        words[words_n++] = word;
    }
    words[words_n++] = word;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    words_offer(f, words, words_n);
    assert_int_equal(fclose(f), 0);
    free(copy);
    return text;
}

// Asserts that the words, without descriptions, are these, separated by blanks.
static void
assert_offers(const char *line, const char *wanted)
{
    char got[1024] = "", *text = offers(line);
    size_t at = 0;
    for (const char *p = text, *end; (end = strchr(p, '\n')) != NULL; p = end + 1) {
        int more = snprintf(got + at, sizeof got - at, "%.*s ", (int)strcspn(p, "\t\n"), p);
        at += (size_t)more;
        assert_true(at < sizeof got);
    }
    assert_string_equal(got, wanted);
    free(text);
}

static void
another_shell_is_refused(void **state)
{
    (void)state;
    assert_false(completion_write(stdout, "tcsh"));
    assert_false(completion_write(stdout, ""));
    assert_false(completion_write(stdout, "words"));
}

static void
nothing_follows_what_is_wrong_or_free_text(void **state)
{
    (void)state;
    assert_offers("no-such-command ", "");
    assert_offers("run --no-such-option=", "");
    assert_offers("run --memory ", "");
    assert_offers("run -m ", "");
    assert_offers("run --memory=", "");
    assert_offers("run --bill=", "");
    assert_offers("ls ", "");
    assert_offers("completion bash ", "");
    assert_offers("ls --=", "");
}

static void
every_command_is_offered_exactly_its_options(void **state)
{
    (void)state;
    for (const struct command *c = commands; c->name != NULL; c++) {
        char line[64], wanted[1024] = "";
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++) {
                size_t at = strlen(wanted);
                (void)snprintf(wanted + at, sizeof wanted - at, "--%s ", r->name);
            }
        (void)snprintf(line, sizeof line, "%s -", c->name);
        assert_offers(line, wanted);
        (void)snprintf(line, sizeof line, "--address x %s --", c->name);
        assert_offers(line, wanted);
        (void)snprintf(wanted, sizeof wanted, "%s ", c->name);
        assert_offers(c->name, wanted);
        (void)snprintf(line, sizeof line, "help %s", c->name);
        assert_offers(line, wanted);
    }
    assert_offers(
        "-",
        "--address --ca-file --token-file --approval --wait-approval --format --help --version ");
    assert_offers("run -m", "-m ");
}

static void
values_that_are_known_are_offered(void **state)
{
    (void)state;
    assert_offers("run --network ", "off none allowlist open ");
    assert_offers("run --network=a", "--network=allowlist ");
    assert_offers("run -ito ", "text json ");
    assert_offers("-o j", "json ");
    assert_offers("events --severity w", "warning ");
    assert_offers("completion ", "bash zsh fish ");
    assert_offers("policy ", "check test explain show diff reload sets learn ");
    assert_offers("policy test ", ":files ");
    assert_offers("policy sets p", "pypi ");
    assert_offers("profiles ", "ls export import reset freeze ");
    assert_offers("snapshot ", "create ls show diff restore rm ");
    assert_offers("transaction ", "begin ls show diff commit discard ");
    assert_offers("exec --transaction ", "ask on-success ");
    assert_offers("template ", "build create ls show rm prune push load ");
    assert_offers("template build ", ":files ");
    assert_offers("template load ", ":files ");
    assert_offers("profiles export default ", ":files ");
    assert_offers("key ", "create ls revoke ");
    assert_offers("token r", "revoke rotate ");
    assert_offers("approvals ", "ls show approve deny cancel watch ");
    assert_offers("audit ", "verify export grep show proof tail ");
    assert_offers("audit verify ", ":files ");
    assert_offers("audit verify a ", ":files ");
    assert_offers("audit grep text ", ":files ");
    assert_offers("audit grep ", "");
    assert_offers("audit tail ", "");
    assert_offers("rules ", "check test ls show set get rm enable disable ");
    assert_offers("rules set ", ":files ");
    assert_offers("admin ", "backup cert audit-key encryption ");
    assert_offers("admin backup ", ":files ");
    assert_offers("admin backup a ", "");
    assert_offers("admin audit-key ", "show rotate export ");
    assert_offers("admin audit-key export ", ":files ");
    assert_offers("admin audit-key show ", "");
    assert_offers("admin encryption r", "rotate ");
    assert_offers("policy explain --credential k", "key ");
    assert_offers("policy explain --policy ", ":files ");
    assert_offers("policy learn --write=", ":files ");
    assert_offers("--token-file ", ":files ");
    assert_offers("token mint --allow @py", "@pypi ");
    assert_offers("run --allow=@py", "--allow=@pypi ");
    assert_offers("run --allow example", "");
}

static void
the_shell_completes_a_command_for_the_sandbox(void **state)
{
    (void)state;
    assert_offers("run l", ":command 2 ");
    assert_offers("run -- ", ":command 3 ");
    assert_offers("run -m 1G -e A=b -- ls -", ":command 7 ");
    assert_offers("run ls -- -", ":command 2 ");
    assert_offers("exec -it box l", ":command 4 ");
    assert_offers("exec box -- ls --net", ":command 4 ");
    assert_offers("exec box ls run --", ":command 3 ");
}

static void
help_names_every_command_and_every_option(void **state)
{
    char *text = NULL;
    size_t n = 0;
    (void)state;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    help_all(f);
    assert_int_equal(fclose(f), 0);
    for (const struct command *c = commands; c->name != NULL; c++) {
        char line[64], *help = NULL;
        (void)snprintf(line, sizeof line, "\n  %s ", c->name);
        assert_non_null(strstr(text, line));
        f = open_memstream(&help, &n);
        assert_non_null(f);
        help_command(f, c);
        assert_int_equal(fclose(f), 0);
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++) {
                (void)snprintf(line, sizeof line, "--%s", r->name);
                assert_non_null(strstr(help, line));
            }
        for (const char *p = help, *end; (end = strchr(p, '\n')) != NULL; p = end + 1)
            assert_true(end - p <= 80 && (end == p || end[-1] != ' '));
        free(help);
    }
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_shell_is_refused),
        cmocka_unit_test(nothing_follows_what_is_wrong_or_free_text),
        cmocka_unit_test(every_command_is_offered_exactly_its_options),
        cmocka_unit_test(values_that_are_known_are_offered),
        cmocka_unit_test(the_shell_completes_a_command_for_the_sandbox),
        cmocka_unit_test(help_names_every_command_and_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
