# SPDX-License-Identifier: Apache-2.0
# Filters, a stream, an error's exit code, arguments, files in place of stdin.
seq 1000 | jq -s 'add, length, (map(. * 2) | max)' && echo '{"a":[{"b":1},{"b":null}]}' | jq -c '.a | map(.b // "none")'
jq -n --arg x 1 --argjson y '{"z":2}' '[$x, $y.z, env.HOME != null]' -c; echo '{' | jq . 2>/dev/null || echo "refused with $?"
printf '{"k":%d}\n' 3 1 2 >f && jq -sc 'sort_by(.k)' f && jq -r '@sh "echo \(.k)"' f | sh && jq -e '.k > 9' f >/dev/null || echo "false is $?"
