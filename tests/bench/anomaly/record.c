// SPDX-License-Identifier: Apache-2.0
// bench-anomaly_record CGROUP FILE: writes every system call of the jobs below CGROUP (a folder that holds sandboxes)
// to FILE, as struct recorded, until SIGTERM. Prints "ready" at the start, and "N lost" at the end.
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record.h"
#include "record.skel.h"

static volatile sig_atomic_t over;

static void
on_signal(int number)
{
    (void)number;
    over = 1;
}

static int
on_record(void *to, void *record, size_t n)
{
    return n == sizeof(struct recorded) && fwrite(record, n, 1, to) == 1 ? 0 : -1;
}

// The level of the cgroup below the root of the v2 hierarchy.
static unsigned
level_of(const char *path)
{
    static const char *const roots[] = {"/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(path, roots[i], n) != 0)
            continue;
        unsigned level = 1;
        for (const char *p = path + n; *p != '\0'; p++)
            level += *p == '/' && p[1] != '\0' ? 1 : 0;
        return level;
    }
    return 0;
}

static struct record_bpf *
open_program(void)
{
#ifdef __clang_analyzer__ // the analyzer does not know that bpf_object__destroy_skeleton() frees it
    return NULL;
#else
    return record_bpf__open();
#endif
}

static int
record(struct record_bpf *b, FILE *to)
{
    struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(b->maps.records), on_record, to, NULL);
    if (ring == NULL)
        return 1;
    (void)puts("ready");
    (void)fflush(stdout);
    while (over == 0) {
        if (ring_buffer__consume(ring) < 0 && over == 0)
            break;
        (void)usleep(5000);
    }
    record_bpf__detach(b);
    (void)ring_buffer__consume(ring);
    ring_buffer__free(ring);
    (void)printf("%llu lost\n", (unsigned long long)b->bss->lost);
    return 0;
}

int
main(int argc, char **argv)
{
    struct stat st;
    if (argc != 3 || stat(argv[1], &st) < 0) {
        (void)fprintf(stderr, "usage: bench-anomaly_record CGROUP FILE\n");
        return 2;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    struct record_bpf *b = open_program();
    if (b == NULL)
        return 1;
    b->rodata->container_level = level_of(argv[1]);
    b->rodata->container_id = st.st_ino;
    FILE *to = fopen(argv[2], "we");
    if (to == NULL || record_bpf__load(b) < 0 || record_bpf__attach(b) < 0) {
        perror("bench-anomaly_record");
        return 1;
    }
    int r = record(b, to);
    record_bpf__destroy(b);
    return fclose(to) == 0 ? r : 1;
}
