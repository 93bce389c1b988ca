// SPDX-License-Identifier: Apache-2.0
// bench-anomaly_score: how well benign runs and attacks can be distinguished by the data that the broker has.
//
//   bench-anomaly_score RECORDING MANIFEST     recorded by `run`
//   bench-anomaly_score --adfa FOLDER          ADFA-LD: Training_Data_Master, Validation_Data_Master, Attack_Data_Master
//
// A line of the manifest: b or a (benign, attack), type, number of the run, id of the sandbox's cgroup, severity of
// the most severe finding of the tripwires (0: none).
//
// A run's score is the highest number of sequences of three calls, in WATCH_WINDOW calls of one thread, that are not
// in the profile. watch.bpf.c compares it with the threshold of the executable's profile, which includes the
// `surprise` of training. Training, setting thresholds (calibration) and testing use different runs, by the number of
// the run: half for training, a quarter for calibration, a quarter for testing.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/watch.h"
#include "record.h"
#include "score.h"

static uint64_t exe_ids[SCORE_EXES];
static size_t exes_n;

static uint16_t
exe_number(uint64_t id)
{
    if (id >> 63 != 0)
        id = UINT64_C(1) << 63; // files of the sandbox count as one executable
    for (size_t i = 0; i < exes_n; i++)
        if (exe_ids[i] == id)
            return (uint16_t)i;
    if (exes_n == SCORE_EXES)
        die("more executables than expected");
    exe_ids[exes_n] = id;
    return (uint16_t)exes_n++;
}

bool
exe_is_own(uint16_t exe)
{
    return exe_ids[exe] >> 63 != 0;
}

static int
by_thread(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    if (x->r.thread != y->r.thread)
        return x->r.thread < y->r.thread ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at ? 1 : 0;
}

static void
add_refusal(struct run *run, uint16_t exe, uint16_t number)
{
    for (size_t i = 0; i < run->refusals; i++)
        if (run->refusal[i].exe == exe && run->refusal[i].number == number)
            return;
    run->refusal = need(realloc(run->refusal, (run->refusals + 1) * sizeof *run->refusal));
    run->refusal[run->refusals++] = (struct refusal){exe, number};
}

static void
end_window(struct run *run)
{
    if (run->n > 0)
        run->token[run->n - 1].ends = true;
}

// The calls of a run, thread by thread, as trigrams.
static void
make_tokens(struct run *run, struct placed *p, size_t n)
{
    uint16_t last[2] = {0};
    size_t depth = 0; // number of calls of this thread since its last exec
    size_t in_window = 0;
    qsort(p, n, sizeof *p, by_thread);
    run->token = need(calloc(n + 1, sizeof *run->token));
    for (size_t i = 0; i < n; i++) {
        const struct recorded *r = &p[i].r;
        uint16_t exe = exe_number(r->exe);
        if (i == 0 || r->thread != p[i - 1].r.thread || r->exe != p[i - 1].r.exe) {
            depth = in_window = 0;
            end_window(run);
        }
        if (r->error == WATCH_DENIED)
            add_refusal(run, exe, r->number);
        if (++depth > 2) {
            run->token[run->n++] =
                (struct token){.bit = watch_trigram(last[0], last[1], r->number), .exe = exe};
            if (++in_window == WATCH_WINDOW) {
                in_window = 0;
                end_window(run);
            }
        }
        last[0] = last[1];
        last[1] = r->number;
    }
    end_window(run);
}

static void
read_manifest(struct set *set, const char *path)
{
    FILE *f = need(fopen(path, "re"));
    char line[512];
    while (fgets(line, sizeof line, f) != NULL) {
        struct run *r = set_add(set);
        char kind = 0;
        unsigned long long id = 0;
        if (sscanf(line, "%c %63s %u %llu %u", &kind, r->type, &r->number, &id, &r->severity) != 5)
            die("a line of the manifest that cannot be read");
        r->attack = kind == 'a';
        r->sandbox = id;
    }
    (void)fclose(f);
}

static struct run *
find_run(struct set *set, uint64_t sandbox)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->run[i].sandbox == sandbox)
            return &set->run[i];
    return NULL;
}

static void
read_recording(struct set *set, const char *path)
{
    FILE *f = need(fopen(path, "re"));
    struct recorded r;
    struct run *run = NULL;
    size_t at = 0;
    while (fread(&r, sizeof r, 1, f) == 1) {
        at++;
        if (run == NULL || run->sandbox != r.sandbox)
            run = find_run(set, r.sandbox);
        if (run == NULL)
            continue;
        if (run->calls_n == run->calls_room) {
            run->calls_room = run->calls_room > 0 ? run->calls_room * 2 : 4096;
            run->calls = need(realloc(run->calls, run->calls_room * sizeof *run->calls));
        }
        run->calls[run->calls_n++] = (struct placed){r, at};
    }
    (void)fclose(f);
    for (size_t i = 0; i < set->n; i++) {
        make_tokens(&set->run[i], set->run[i].calls, set->run[i].calls_n);
        free(set->run[i].calls);
        set->run[i].calls = NULL;
    }
    (void)printf("%zu system calls, %zu runs, %zu executables\n", at, set->n, exes_n);
}

int
main(int argc, char **argv)
{
    static struct set set;
    if (argc == 3 && strcmp(argv[1], "--adfa") == 0)
        return adfa_score(argv[2]);
    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench-anomaly_score RECORDING MANIFEST | --adfa FOLDER\n");
        return 2;
    }
    read_manifest(&set, argv[2]);
    read_recording(&set, argv[1]);
    return evaluate(&set);
}
