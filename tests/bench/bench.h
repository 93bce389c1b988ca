// SPDX-License-Identifier: Apache-2.0
// Shared by the benchmarks in this folder: samples, medians, and other programs for comparison.
//
// Each benchmark prints one JSON object per row on stdout (a line each): {"bench","row","n","p50_us","p99_us",...};
// the script `run` turns them into ratios and tables. Rows of one benchmark alternate within one run, so that a
// disturbance affects all of them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct samples {
    const char *row;
    double *us; // owned
    size_t n, room;
};

// Microseconds of CLOCK_MONOTONIC.
double bench_now(void);

// Sleeps until this time.
void bench_sleep_us(double us);

// Adds a sample; aborts if memory is short.
void samples_add(struct samples *s, double us);

void samples_sort(struct samples *s);

// Sorts, prints the row, and frees. `more`: further JSON members with a leading comma, or "".
void samples_print(struct samples *s, const char *bench, const char *more);

// Value at a share of the sorted samples (0.5: median).
double samples_at(const struct samples *s, double share);

// Starts argv with stdin and stdout on /dev/null (posix_spawn) and waits. Returns its exit status as from wait(2),
// -1: failed.
int bench_spawn(const char *const argv[]);
// The same; the time that it took, in microseconds. Ends this program if it fails.
double bench_time(const char *const argv[]);

// The same in new namespaces of every kind except user and time, and without mounts, cgroup, filter or first process.
// No sandbox with namespaces can be faster. Needs root.
int bench_spawn_in_namespaces(const char *const argv[]);

// bubblewrap as an agent tool would call it: all namespaces, /usr read-only, tmpfs, no capabilities. Ends with the
// command to run.
extern const char *const bench_bwrap_true[];
extern const char *const bench_true[];

// Exits with a message.
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
