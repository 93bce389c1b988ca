// Which paths are sensitive: what the rule sensitive-path is about. The kernel compares what jobs open (bpf/watch.h).
#pragma once

#include "bpf.h"

// Writes the patterns to the kernel's map. Returns how many found no room; all of them without the map: 0.
uint32_t anomaly_sensitive_write(const struct bpf *bpf);

// Pattern i, NULL beyond the last: told in events as watch_open.rule.
const char *anomaly_sensitive_at(uint32_t i);

// Puts a pattern into a table of WATCH_SENSITIVE_SLOTS. Its slot, or -1: all that it may have are taken.
int anomaly_sensitive_place(struct watch_sensitive table[WATCH_SENSITIVE_SLOTS],
                            const char *pattern, uint32_t rule);
