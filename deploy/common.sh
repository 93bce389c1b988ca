# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions of the scripts of this folder. Source it; it changes to the project's folder.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
export LC_ALL=C.UTF-8

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        die "needs root, and there is no sudo: $*"
    fi
}

# Runs a command and shows its output only if it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || tail -n 60 "$log" >&2
    rm -f "$log"
    return "$status"
}

# Runs ctest with a JUnit file. Up to three tests that failed beside others run once more, alone: `tests/summary` names each
# that passes then. More than three are no accident, nor is what a sanitizer or the fuzzer reports.
ctest_to() { # FILE CTEST-ARGUMENT...
    local file=$1 again=${1%.xml}-again.xml status=0 failures
    shift
    mkdir -p "${file%/*}"
    rm -f "$file" "$again"
    ctest --output-junit "$file" --test-output-size-passed 4000000 --test-output-size-failed 4000000 "$@" || status=$?
    failures=$(grep -c '<testcase [^>]*status="fail"' "$file") || true
    if [ "$status" = 0 ] || [ "${failures:-0}" -lt 1 ] || [ "$failures" -gt 3 ] ||
        grep -qE '(ERROR|WARNING): [A-Za-z]*Sanitizer|ERROR: libFuzzer|runtime error: ' "$file"; then
        return "$status"
    fi
    say "once more, alone: $failures failed"
    ctest --rerun-failed --parallel 1 --output-junit "$again" --test-output-size-passed 4000000 \
        --test-output-size-failed 4000000 "$@"
}

# Runs a stage under a name, prints its duration, and stores it for times_table. The caller handles its failure.
stage() {
    local name=$1 from=$SECONDS status=0
    shift
    say "$name"
    "$@" || status=$?
    stage_times+=("$(printf '%5d s  %s%s' $((SECONDS - from)) "$name" "$([ "$status" = 0 ] || echo "  (failed)")")")
    return "$status"
}
stage_times=()

times_table() {
    say "times"
    printf '%s\n' "${stage_times[@]}" "$(printf '%5d s  in all' "$SECONDS")"
}
