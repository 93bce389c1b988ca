# SPDX-License-Identifier: Apache-2.0
# Pipes both ways, files, fields, big sums, system(), and an exit code.
seq 100000 | awk '{s += $1} END {print s}' && printf 'a:1\nb:2\n' | awk -F: -v OFS=- '{t[$1] = $2} END {print t["a"], t["b"]}'
awk 'BEGIN {while (("seq 5" | getline x) > 0) s = s x; print s; print "z\na" | "sort"; close("sort"); r = system("exit 3"); print r; printf "%.3f\n", atan2(0, -1)}'
awk 'BEGIN {print "one" >"f"; close("f"); while ((getline l <"f") > 0) print l; exit 4}' || echo "exit $?"
