// SPDX-License-Identifier: Apache-2.0
// The C client's part of python_run.py: for each line on stdin one run of /usr/bin/true through libstockade, and a
// line with its microseconds on stdout. So clients in several languages can alternate, run by run.
//
//   run_true ADDRESS
#include "bench.h"

#include <stdio.h>

#include "client/stockade.h"

static double
run_once(struct stockade *s)
{
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    o.command.args = bench_true;
    double from = bench_now();
    if (stockade_run(s, &o, NULL, &r, &e) < 0)
        bench_die("run: %s", e.text);
    double us = bench_now() - from;
    if (r->outcome != STOCKADE_OUTCOME_EXITED || r->exit_code != 0)
        bench_die("run: outcome %u, %s", r->outcome, r->reason);
    stockade_free(r);
    return us;
}

int
main(int argc, char **argv)
{
    char line[16];
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    if (argc != 2)
        bench_die("usage: run_true ADDRESS < LINES");
    options.address = argv[1];
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    while (fgets(line, sizeof line, stdin) != NULL) {
        (void)printf("%.1f\n", run_once(s));
        (void)fflush(stdout);
    }
    stockade_close(s);
    return 0;
}
