// SPDX-License-Identifier: Apache-2.0
// The current resource use of a sandbox, from its cgroup's files. Files stay open between samples (reading an open file
// costs a sixth of open, read and close), for as many sandboxes as there are spare descriptors, and are closed
// USAGE_IDLE_MS after the last sample. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cgroup_dirs;
struct usage_files;

enum { USAGE_OPEN_MAX = 2048, USAGE_IDLE_MS = 15000 };

enum usage_figure {
    USAGE_CPU_NS,
    USAGE_THROTTLED_NS,
    USAGE_MEMORY_BYTES,
    USAGE_PIDS,
    USAGE_IO_READ_BYTES,
    USAGE_IO_WRITE_BYTES,
    USAGE_FIGURES,
};

enum usage_resource { USAGE_CPU, USAGE_MEMORY, USAGE_IO, USAGE_RESOURCES };

struct usage_pressure {
    bool known;
    uint32_t some_centipercent, full_centipercent;
    uint64_t some_us, full_us;
};

struct usage {
    uint32_t known; // bit n: v[n] was read
    uint64_t v[USAGE_FIGURES];
    struct usage_pressure pressure[USAGE_RESOURCES];
};

// Takes a sample. *files holds the files that stay open (NULL at first; owned: usage_close()). Never fails: what cannot
// be read is unknown.
void usage_read(const struct cgroup_dirs *dirs, struct usage_files **files, uint64_t now_ms,
                struct usage *out);

// Closes the files if the last sample was that long ago.
void usage_close_idle(struct usage_files **files, uint64_t now_ms);
void usage_close(struct usage_files **files);

// Maximum number of open files, at most USAGE_OPEN_MAX, and the current number, over all sandboxes.
void usage_allow(uint64_t files);
uint32_t usage_open(void);

// Name of a field in stockade.v1.Usage.
const char *usage_name(enum usage_figure i);

// Parses one line of a pressure file: "some avg10=1.23 avg60=0.00 avg300=0.00 total=456". False: not such a line.
bool usage_parse_pressure(const char *line, uint32_t *centipercent, uint64_t *total_us);
