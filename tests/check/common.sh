# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions of the checks. Source it; it changes to the project's folder.
cd "${STOCKADE_SOURCE:-$(dirname "${BASH_SOURCE[0]}")/../..}" || exit 1

# Prints why a check cannot run here, and ends it as skipped.
skip() {
    echo "skipped: $*"
    exit 77
}

# Ends the check as skipped unless the program exists.
need() {
    command -v "$1" >/dev/null || skip "$1 is not installed (deploy/setup --dev)"
}

# Paths of the project's own files that match the patterns: tracked, or new and not ignored. Each ends with NUL. In an unpacked
# archive without git: all files outside of build folders.
files() {
    if [ -e .git ]; then
        git -c safe.directory='*' ls-files -z --cached --others --exclude-standard --deduplicate -- "$@"
    else
        local names=() pattern
        for pattern; do
            names+=(-o -name "${pattern##*/}")
        done
        find . -name 'build*' -prune -o -name node_modules -prune -o -type f \( "${names[@]:1}" \) -print0
    fi | while IFS= read -r -d '' path; do
        [ ! -f "$path" ] || printf '%s\0' "$path"
    done
}
