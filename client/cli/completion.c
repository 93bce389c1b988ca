// SPDX-License-Identifier: Apache-2.0
// `stockade completion`: the scripts that shells load. The scripts contain no words: they call this command
// (words.c), so they are always up to date. The shell itself completes files and other commands.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"

enum { ASK_S_MAX = 3 };

// bash splits words at '=' and ':' in COMP_WORDS and in its replacements: adjacent words are joined again, and for
// "--name=value" only the value is returned.
static const char bash[] =
    "# bash completion for stockade\n"
    "_stockade()\n"
    "{\n"
    "    local line=$COMP_LINE words=() at=() answers=() word i\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((i > 0)) && [[ $line != [[:space:]]* ]]; then\n"
    "            words[${#words[@]}-1]+=$word\n"
    "        else\n"
    "            words+=(\"$word\") at+=(\"$i\")\n"
    "            line=${line#\"${line%%[![:space:]]*}\"}\n"
    "        fi\n"
    "        line=${line#\"$word\"}\n"
    "    done\n"
    "    mapfile -t answers < <(command \"${words[0]/#\\~/$HOME}\" completion words -- \\\n"
    "        \"${words[@]:1}\" 2>/dev/null)\n"
    "    COMPREPLY=()\n"
    "    for word in \"${answers[@]}\"; do\n"
    "        case $word in\n"
    "        :files) compopt -o default ;;\n"
    "        :command\\ *)\n"
    "            i=${at[${word#* }]}\n"
    "            if declare -F _command_offset >/dev/null; then\n"
    "                _command_offset \"$i\"\n"
    "            elif ((i == COMP_CWORD)); then\n"
    "                mapfile -t COMPREPLY < <(compgen -c -- \"${COMP_WORDS[i]}\")\n"
    "            else\n"
    "                compopt -o default\n"
    "            fi ;;\n"
    "        *)\n"
    "            word=${word%%$'\\t'*}\n"
    "            if [[ $word == --*=* && $COMP_WORDBREAKS == *=* ]]; then\n"
    "                word=${word#*=}\n"
    "            fi\n"
    "            COMPREPLY+=(\"$word\") ;;\n"
    "        esac\n"
    "    done\n"
    "}\n"
    "complete -F _stockade stockade\n";

static const char zsh[] =
    "#compdef stockade\n"
    "_stockade() {\n"
    "    local -a answers offers\n"
    "    local answer\n"
    "    answers=(\"${(@f)$(command ${~${(Q)words[1]}} completion words -- \\\n"
    "        \"${(@Q)words[2,CURRENT-1]}\" \"${(Q)PREFIX}\" 2>/dev/null)}\")\n"
    "    case $answers[1] in\n"
    "    '') return 1 ;;\n"
    "    :files) compset -P '--[^=]#='; _files; return ;;\n"
    "    :command\\ *)\n"
    "        shift ${answers[1]#* } words\n"
    "        ((CURRENT -= ${answers[1]#* }))\n"
    "        _normal\n"
    "        return ;;\n"
    "    esac\n"
    "    for answer in $answers; do\n"
    "        offers+=(\"${${answer%%$'\\t'*}//:/\\\\:}:${answer#*$'\\t'}\")\n"
    "    done\n"
    "    _describe stockade offers\n"
    "}\n"
    "if [[ ${funcstack[1]} == _stockade ]]; then\n"
    "    _stockade \"$@\"\n"
    "else\n"
    "    compdef _stockade stockade\n"
    "fi\n";

static const char fish[] =
    "# fish completion for stockade\n"
    "function __stockade_words\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    set -l answers (command $words[1] completion words -- $words[2..-1] 2>/dev/null)\n"
    "    switch \"$answers[1]\"\n"
    "        case :files\n"
    "            set -l option (string match -r '^--[^=]*=' -- $words[-1])\n"
    "            for path in (__fish_complete_path (string replace -r '^--[^=]*=' '' -- $words[-1]))\n"
    "                printf '%s\\n' \"$option$path\"\n"
    "            end\n"
    "        case ':command *'\n"
    "            set -l from (math (string split ' ' -- $answers[1])[2] + 1)\n"
    "            complete -C \"$words[$from..-1]\"\n"
    "        case '*'\n"
    "            test -n \"$answers[1]\"\n"
    "            and printf '%s\\n' $answers\n"
    "    end\n"
    "end\n"
    "complete -c stockade -f -a '(__stockade_words)'\n";

bool
completion_write(FILE *to, const char *shell)
{
    static const char *const scripts[][2] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (strcmp(scripts[i][0], shell) == 0) {
            (void)fputs(scripts[i][1], to);
            return true;
        }
    return false;
}

int
cli_completion(const struct command *c, const struct options *o)
{
    if (strcmp(o->args[0], "words") == 0) {
        (void)alarm(ASK_S_MAX); // a broker that does not respond must not block the shell
        words_offer(stdout, o->args + 1, o->args_n - 1);
        return EXIT_OK;
    }
    if (o->args_n > 1)
        return cli_usage(c, "name only one shell", "");
    if (!completion_write(stdout, o->args[0]))
        return cli_usage(c, "the shell must be one of bash, zsh, fish", "");
    return EXIT_OK;
}
