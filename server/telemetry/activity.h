// SPDX-License-Identifier: Apache-2.0
// The counters of a sandbox or a job up to one moment; they only increase.
#pragma once

#include <stdint.h>

#include "bpf/watch.h"

// Of a sandbox: sums over all its jobs, including ended ones. Unknown values stay 0.
struct activity {
    uint64_t forks, execs, exits, signals;
    uint64_t rewrites, links;
    uint64_t opens_write, opens_sensitive, looks_sensitive, unlinks, renames;
    uint64_t opens_exclusive; // files opened for writing that the open itself created
    uint64_t syscalls, errors[WATCH_ERRORS];
    uint64_t connects_allowed, connects_denied;
    uint64_t out_bytes, out_packets, in_bytes, in_packets; // net_counters
    uint64_t queries;                                      // of DNS
    uint64_t cpu_ns, output_bytes;
    uint64_t memfd_execs, io_urings, ooms, dangerous, socket_execs, new_execs, preloads;
    uint64_t listens; // net_counters
};
