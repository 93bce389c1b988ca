// `stockade completion`: scripts for shells, made from the tables of cli_commands.c.
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_commands.h"

static const char *const shells[] = {"bash", "zsh", "fish"};

// ---- bash

static void
bash_words(FILE *to, const struct command *c)
{
    for (const struct option_row *const *g = c->options; *g != NULL; g++)
        for (const struct option_row *r = *g; r->name != NULL; r++) {
            (void)fprintf(to, " --%s", r->name);
            if (r->letter != 0)
                (void)fprintf(to, " -%c", r->letter);
        }
}

static void
bash_choices(FILE *to, const struct command *c)
{
    for (const struct option_row *const *g = c->options; *g != NULL; g++)
        for (const struct option_row *r = *g; r->name != NULL; r++) {
            if (r->choices == NULL)
                continue;
            (void)fprintf(to, "    --%s", r->name);
            if (r->letter != 0)
                (void)fprintf(to, "|-%c", r->letter);
            (void)fprintf(to, ") words=\"");
            for (const char *const *choice = r->choices; *choice != NULL; choice++)
                (void)fprintf(to, "%s%s", choice == r->choices ? "" : " ", *choice);
            (void)fprintf(to, "\" ;;\n");
        }
}

static const char *
bash_operands(const struct command *c)
{
    static const char *const words[] = {
        [OPERAND_NONE] = "",
        [OPERAND_SANDBOX] = "$(stockade ls -q 2>/dev/null)",
        [OPERAND_PROCESS] = "$(stockade ps -q 2>/dev/null)",
        [OPERAND_SHELL] = "bash zsh fish",
        [OPERAND_COMMAND] = "$(compgen -c -- \"$cur\")",
        [OPERAND_PROFILES] = "ls export import reset freeze",
    };
    return words[c->operand];
}

static void
bash_write(FILE *to)
{
    (void)fprintf(to, "# bash completion for stockade\n_stockade()\n{\n"
                      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                      "  local words='' i=1\n"
                      "  while [[ ${COMP_WORDS[i]} == --address ]]; do i=$((i + 2)); done\n"
                      "  if ((COMP_CWORD <= i)); then\n    COMPREPLY=($(compgen -W \"");
    for (const struct command *c = commands; c->name != NULL; c++)
        (void)fprintf(to, "%s ", c->name);
    (void)fprintf(to, "--address --help --version\" -- \"$cur\"))\n    return\n  fi\n"
                      "  case ${COMP_WORDS[i]} in\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        (void)fprintf(to, "  %s)\n    case $prev in\n", c->name);
        bash_choices(to, c);
        (void)fprintf(to, "    *)\n      if [[ $cur == -* ]]; then words=\"");
        bash_words(to, c);
        (void)fprintf(to, "\"; else words=\"%s\"; fi ;;\n    esac ;;\n", bash_operands(c));
    }
    (void)fprintf(to, "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
                      "complete -o default -F _stockade stockade\n");
}

// ---- zsh and fish quote with single quotes

static void
quoted(FILE *to, const char *text, const char *escape)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            (void)fputs("'\\''", to);
        else if (strchr(escape, *text) != NULL)
            (void)fprintf(to, "\\%c", *text);
        else
            (void)fputc(*text, to);
    }
}

static void
zsh_value(FILE *to, const struct option_row *r)
{
    if (r->value == NULL)
        return;
    (void)fprintf(to, ":%s:", r->value);
    if (r->choices == NULL)
        return;
    (void)fputc('(', to);
    for (const char *const *choice = r->choices; *choice != NULL; choice++)
        (void)fprintf(to, "%s%s", choice == r->choices ? "" : " ", *choice);
    (void)fputc(')', to);
}

static void
zsh_option(FILE *to, const struct option_row *r)
{
    bool repeats = r->kind == OPTION_LABEL || r->kind == OPTION_ENV || r->kind == OPTION_ALLOW ||
                   r->kind == OPTION_INBOUND;
    (void)fprintf(to, "      '%s--%s%s[", repeats ? "*" : "", r->name, r->value != NULL ? "=" : "");
    quoted(to, r->help, "[]:");
    (void)fputc(']', to);
    zsh_value(to, r);
    (void)fprintf(to, "' \\\n");
    if (r->letter == 0)
        return;
    (void)fprintf(to, "      '%s-%c%s[", repeats ? "*" : "", r->letter,
                  r->value != NULL ? "+" : "");
    quoted(to, r->help, "[]:");
    (void)fputc(']', to);
    zsh_value(to, r);
    (void)fprintf(to, "' \\\n");
}

static void
zsh_write(FILE *to)
{
    static const char *const operands[] = {
        [OPERAND_NONE] = "",
        [OPERAND_SANDBOX] = "      '*:sandbox:($(stockade ls -q 2>/dev/null))'",
        [OPERAND_PROCESS] = "      '*:process:($(stockade ps -q 2>/dev/null))'",
        [OPERAND_SHELL] = "      '1:shell:(bash zsh fish)'",
        [OPERAND_COMMAND] = "      '(-)1:command:_command_names' '*::argument:_normal'",
        [OPERAND_PROFILES] = "      '1:action:(ls export import reset freeze)' '*:file:_files'",
    };
    (void)fprintf(to, "#compdef stockade\n_stockade() {\n  local -a commands=(\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        (void)fprintf(to, "    '%s:", c->name);
        quoted(to, c->summary, ":");
        (void)fprintf(to, "'\n");
    }
    (void)fprintf(
        to, "  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n"
            "  fi\n  local name=$words[2]\n  shift words\n  ((CURRENT--))\n  case $name in\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        (void)fprintf(to, "  %s)\n    _arguments -s -S \\\n", c->name);
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++)
                zsh_option(to, r);
        (void)fprintf(to, "%s\n    ;;\n", operands[c->operand]);
    }
    (void)fprintf(to, "  esac\n}\nif [ \"$funcstack[1]\" = _stockade ]; then\n  _stockade \"$@\"\n"
                      "else\n  compdef _stockade stockade\nfi\n");
}

static void
fish_option(FILE *to, const struct command *c, const struct option_row *r)
{
    (void)fprintf(to, "complete -c stockade -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                  r->name);
    if (r->letter != 0)
        (void)fprintf(to, " -s %c", r->letter);
    if (r->value != NULL)
        (void)fprintf(to, " -x");
    if (r->choices != NULL) {
        (void)fprintf(to, " -a '");
        for (const char *const *choice = r->choices; *choice != NULL; choice++)
            (void)fprintf(to, "%s%s", choice == r->choices ? "" : " ", *choice);
        (void)fprintf(to, "'");
    }
    (void)fprintf(to, " -d '");
    quoted(to, r->help, "");
    (void)fprintf(to, "'\n");
}

static void
fish_write(FILE *to)
{
    static const char *const operands[] = {
        [OPERAND_NONE] = NULL,
        [OPERAND_SANDBOX] = "(stockade ls -q 2>/dev/null)",
        [OPERAND_PROCESS] = "(stockade ps -q 2>/dev/null)",
        [OPERAND_SHELL] = "bash zsh fish",
        [OPERAND_COMMAND] = "(__fish_complete_subcommand)",
        [OPERAND_PROFILES] = "ls export import reset freeze",
    };
    (void)fprintf(to, "# fish completion for stockade\ncomplete -c stockade -f\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        (void)fprintf(to, "complete -c stockade -n __fish_use_subcommand -a %s -d '", c->name);
        quoted(to, c->summary, "");
        (void)fprintf(to, "'\n");
        for (const struct option_row *const *g = c->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++)
                fish_option(to, c, r);
        if (operands[c->operand] != NULL)
            (void)fprintf(to, "complete -c stockade -n '__fish_seen_subcommand_from %s' -a '%s'\n",
                          c->name, operands[c->operand]);
    }
}

bool
completion_write(FILE *to, const char *shell)
{
    static void (*const writers[])(FILE *) = {bash_write, zsh_write, fish_write};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i], shell) == 0) {
            writers[i](to);
            return true;
        }
    return false;
}

int
cli_completion(const struct command *c, const struct options *o)
{
    if (!completion_write(stdout, o->args[0]))
        return cli_usage(c, "the shell must be one of bash, zsh, fish", "");
    return EXIT_OK;
}
