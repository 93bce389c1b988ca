// SPDX-License-Identifier: Apache-2.0
// See metrics_sample.h. Everything here is a handful of system calls, however many sandboxes there are.
#include "metrics_sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/network/net.h"
#include "server/network/relay_link.h"
#include "server/network/sets.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/spawn.h"

// Resident bytes of a process, from proc_pid_statm(5); 0: it has ended, or /proc hides it.
static uint64_t
resident_bytes(uint32_t pid)
{
    char path[32], text[128];
    uint64_t size = 0, resident = 0;
    if (pid == 0)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/statm", pid);
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n <= 0)
        return 0;
    text[n] = '\0';
    // NOLINTNEXTLINE(cert-err34-c): the kernel wrote it
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &size, &resident) != 2)
        return 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t
count_entries(const char *folder)
{
    uint64_t n = 0;
    DIR *d = opendir(folder);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        (void)closedir(d);
    return n > 3 ? n - 3 : 0; // ".", "..", and the folder's own descriptor
}

// The size of the folder is the number of open descriptors since Linux 6.2 (proc_pid_fd(5)); before, it is 0.
static uint64_t
open_descriptors(void)
{
    static const char folder[] = "/proc/self/fd";
    struct stat st;
    if (stat(folder, &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    return count_entries(folder);
}

static void
sample_processes(const struct server *s)
{
    struct rlimit files = {0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    metrics_set(METRIC_DESCRIPTORS, 0, (int64_t)open_descriptors());
    metrics_set(METRIC_DESCRIPTORS_MAX, 0, (int64_t)files.rlim_cur);
    const uint32_t pids[] = {
        [PROCESS_BROKER] = (uint32_t)getpid(),
        [PROCESS_SPAWNER] = s->spawn != NULL ? (uint32_t)spawn_pid(s->spawn) : 0,
        [PROCESS_RELAY] = s->relay != NULL ? relay_pid(s->relay) : 0,
    };
    for (uint32_t i = 0; i < sizeof pids / sizeof pids[0]; i++)
        metrics_set(METRIC_PROCESS_MEMORY, i, (int64_t)resident_bytes(pids[i]));
}

void
metrics_sample(const struct server *s)
{
    metrics_set(METRIC_MAP_CAPACITY, MAP_SANDBOXES, BPF_SLOTS);
    metrics_set(METRIC_MAP_CAPACITY, MAP_RULES, NET_RULE_ENTRIES);
    if (s->sandboxes != NULL)
        metrics_set(METRIC_MAP_ENTRIES, MAP_SANDBOXES, sandboxes_count(s->sandboxes));
    if (s->net != NULL)
        metrics_set(METRIC_MAP_ENTRIES, MAP_RULES, net_sets_entries(net_rules(s->net)));
    if (s->pool != NULL)
        metrics_set(METRIC_POOL_AGE, 0, (int64_t)pool_oldest_wait_ns(s->pool));
    sample_processes(s);
}
