// client/cli_completion.c, and the manual: both say what the tables say.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli_commands.h"

// What the script for a shell is. Owned by the caller.
static char *
script(const char *shell)
{
    static char *text; // gcc takes an automatic one for what is returned
    static size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    assert_true(completion_write(f, shell));
    assert_int_equal(fclose(f), 0);
    return text;
}

static void
another_shell_is_refused(void **state)
{
    (void)state;
    assert_false(completion_write(stdout, "tcsh"));
    assert_false(completion_write(stdout, ""));
}

static unsigned
count(const char *text, const char *word)
{
    unsigned n = 0;
    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word))
        n++;
    return n;
}

static void
bash_offers_every_command_and_exactly_its_options(void **state)
{
    (void)state;
    char *text = script("bash");
    for (const struct command *c = commands; c->name != NULL; c++) {
        char head[64], wanted[2048] = "words=\"";
        (void)snprintf(head, sizeof head, "\n  %s)\n", c->name);
        const char *branch = strstr(text, head);
        assert_non_null(branch);
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++) {
                size_t at = strlen(wanted);
                (void)snprintf(wanted + at, sizeof wanted - at, " --%s", r->name);
                if (r->letter != 0) {
                    at = strlen(wanted);
                    (void)snprintf(wanted + at, sizeof wanted - at, " -%c", r->letter);
                }
            }
        size_t end = strlen(wanted);
        (void)snprintf(wanted + end, sizeof wanted - end, "\";");
        const char *found = strstr(branch, wanted);
        assert_non_null(found);
        assert_true(found < strstr(branch, "esac ;;"));
    }
    free(text);
}

static void
zsh_and_fish_offer_every_option_of_every_command(void **state)
{
    (void)state;
    char *zsh = script("zsh"), *fish = script("fish");
    for (const struct command *c = commands; c->name != NULL; c++) {
        char line[128];
        (void)snprintf(line, sizeof line, "    '%s:", c->name);
        assert_int_equal(count(zsh, line), 1);
        (void)snprintf(line, sizeof line, "-n __fish_use_subcommand -a %s -d", c->name);
        assert_int_equal(count(fish, line), 1);
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++) {
                (void)snprintf(line, sizeof line, "__fish_seen_subcommand_from %s' -l %s ", c->name,
                               r->name);
                assert_int_equal(count(fish, line), 1);
                (void)snprintf(line, sizeof line, "--%s%s[", r->name, r->value != NULL ? "=" : "");
                assert_true(count(zsh, line) >= 1);
            }
    }
    free(zsh);
    free(fish);
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
        cmocka_unit_test(bash_offers_every_command_and_exactly_its_options),
        cmocka_unit_test(zsh_and_fish_offer_every_option_of_every_command),
        cmocka_unit_test(help_names_every_command_and_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
