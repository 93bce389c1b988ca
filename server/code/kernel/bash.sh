# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The kernel program of bash: it evaluates cells in one shell. server/code/kernel.h has the protocol.
#
# stdout and stderr of a cell are those of the shell, which are pipes to the broker. Names that begin with __stockade are ours.
# A cell that ends with a status other than 0 is an error with that status. SIGINT ends the commands of the cell that run,
# and the cell; inside a function only the function, so the broker repeats the signal.
__stockade_count=0
__stockade_interrupted=0

__stockade_cell() {
    eval "$1"
}

__stockade_error() {
    local bytes
    LC_ALL=C printf -v bytes 'error %s %d\n%s' "$__stockade_run" $((${#1} + ${#2} + 2)) "$1"
    printf '%s\0%s\0' "$bytes" "$2" >&3
}

trap ':' INT
printf 'ready 0 0 1\n' >&3
while IFS=' ' read -r -u 3 __stockade_kind __stockade_run __stockade_n; do
    __stockade_text=
    LC_ALL=C IFS= read -r -d '' -u 3 -N "$__stockade_n" __stockade_text
    [ "$__stockade_kind" = run ] || continue
    __stockade_count=$((__stockade_count + 1))
    __stockade_interrupted=0
    trap '__stockade_interrupted=1; return 130' INT
    __stockade_cell "$__stockade_text" 3>&- </dev/null
    __stockade_status=$?
    trap ':' INT
    if [ "$__stockade_interrupted" = 1 ]; then
        __stockade_error KeyboardInterrupt "the cell was interrupted"
        __stockade_end=interrupted
    elif [ "$__stockade_status" -ne 0 ]; then
        __stockade_error ExitStatus "$__stockade_status"
        __stockade_end=error
    else
        __stockade_end=ok
    fi
    printf 'done %s 0 %d %s\n' "$__stockade_run" "$__stockade_count" "$__stockade_end" >&3
done
exit 0
