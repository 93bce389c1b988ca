// SPDX-License-Identifier: Apache-2.0
// ADFA-LD (Creech and Hu, 2013): folders of text files, each the numbers of the system calls of one trace.
//
// The numbers are those of 32-bit x86, and programs are mixed: there is one profile for all. Trained on the training
// traces, tested on validation traces against attacks; the scores are that of the kernel (see score.c), and the
// fraction of a trace's trigrams that are unseen.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bpf/watch.h"
#include "score.h"

enum { PATH_BYTES = 4096, NUMBERS_MAX = 1000000 };

struct trace {
    uint16_t *call;
    size_t n;
};

struct traces {
    struct trace *trace;
    size_t n, room;
};

_Noreturn static void
die_at(const char *path, const char *why)
{
    (void)fprintf(stderr, "bench-anomaly_score: %s: %s\n", path, why);
    exit(1);
}

static void
read_numbers(const char *path, FILE *f, struct trace *t)
{
    long number = 0;
    int got = 0;
    while ((got = fscanf(f, "%ld", &number)) == 1) { // NOLINT(cert-err34-c): too large is LONG_MAX
        if (number < 0 || number > UINT16_MAX)
            die_at(path, "a number that is no system call");
        if (t->n == NUMBERS_MAX)
            die_at(path, "more than a million calls");
        t->call[t->n++] = (uint16_t)(number < WATCH_SYSCALLS ? number : WATCH_SYSCALLS - 1);
    }
    if (got == 0)
        die_at(path, "a trace that has more than numbers");
    if (ferror(f) != 0)
        die_at(path, strerror(errno));
    if (t->n == 0)
        die_at(path, "a trace without a call");
}

static void
read_trace(struct traces *all, const char *path)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        die_at(path, strerror(errno));
    struct trace t = {.call = need(malloc(NUMBERS_MAX * sizeof *t.call))};
    read_numbers(path, f, &t);
    (void)fclose(f);
    t.call = need(realloc(t.call, (t.n + 1) * sizeof *t.call));
    if (all->n == all->room) {
        all->room = all->room > 0 ? all->room * 2 : 1024;
        all->trace = need(realloc(all->trace, all->room * sizeof *all->trace));
    }
    all->trace[all->n++] = t;
}

// Reads every file below, in any folders: attacks have one per family. Skips links, which may form cycles.
static void
read_folder(struct traces *all, const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL)
        die_at(path, strerror(errno));
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char below[PATH_BYTES];
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, e->d_name) >= (int)sizeof below)
            die_at(path, "a path that is too long");
        if (lstat(below, &st) < 0)
            die_at(below, strerror(errno));
        if (S_ISDIR(st.st_mode))
            read_folder(all, below);
        else if (S_ISREG(st.st_mode))
            read_trace(all, below);
    }
    (void)closedir(d);
}

static struct traces
read_part(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct traces all = {0};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    read_folder(&all, path);
    if (all.n == 0)
        die_at(path, "no trace");
    return all;
}

static bool
unseen_at(const struct watch_profile *p, const struct trace *t, size_t i)
{
    uint32_t bit = watch_trigram(t->call[i - 2], t->call[i - 1], t->call[i]);
    return (p->bits[bit / 64] >> (bit % 64) & 1) == 0;
}

static double
score(const struct watch_profile *p, const struct trace *t, bool whole)
{
    unsigned window = 0;
    unsigned unseen = 0;
    unsigned most = 0;
    size_t all = 0;
    for (size_t i = 2; i < t->n; i++) {
        bool new = unseen_at(p, t, i);
        unseen += new ? 1 : 0;
        all += new ? 1 : 0;
        most = unseen > most ? unseen : most;
        if (++window == WATCH_WINDOW)
            window = unseen = 0;
    }
    return whole ? (double)all / (double)(t->n > 2 ? t->n - 2 : 1) : most;
}

static void
report(const struct watch_profile *p, const struct traces *benign, const struct traces *attack,
       bool whole)
{
    double *b = need(calloc(benign->n + 1, sizeof *b));
    double *a = need(calloc(attack->n + 1, sizeof *a));
    for (size_t i = 0; i < benign->n; i++)
        b[i] = score(p, &benign->trace[i], whole);
    for (size_t i = 0; i < attack->n; i++)
        a[i] = score(p, &attack->trace[i], whole);
    (void)printf("| %s | %.3f | %.2f | %.2f | %.2f | %.2f |\n",
                 whole ? "unseen of all" : "most of a window", auc(b, benign->n, a, attack->n),
                 tpr_at(b, benign->n, a, attack->n, 0), tpr_at(b, benign->n, a, attack->n, 0.01),
                 tpr_at(b, benign->n, a, attack->n, 0.05),
                 tpr_at(b, benign->n, a, attack->n, 0.10));
    free(a);
    free(b);
}

static void
traces_free(struct traces *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->trace[i].call);
    free(t->trace);
}

int
adfa_score(const char *folder)
{
    struct watch_profile *p = need(calloc(1, sizeof *p));
    struct traces train = read_part(folder, "Training_Data_Master");
    struct traces benign = read_part(folder, "Validation_Data_Master");
    struct traces attack = read_part(folder, "Attack_Data_Master");
    for (size_t i = 0; i < train.n; i++)
        for (size_t k = 2; k < train.trace[i].n; k++) {
            const uint16_t *c = &train.trace[i].call[k];
            uint32_t bit = watch_trigram(c[-2], c[-1], c[0]);
            p->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
        }
    (void)printf("%zu traces to train, %zu normal, %zu attacks\n\n", train.n, benign.n, attack.n);
    (void)printf(
        "| score | AUC | TPR at 0 FP | at 1 %% | at 5 %% | at 10 %% |\n|---|---|---|---|---|---|\n");
    report(p, &benign, &attack, false);
    report(p, &benign, &attack, true);
    traces_free(&train);
    traces_free(&benign);
    traces_free(&attack);
    free(p);
    return 0;
}
