// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: adds the seconds in the file that STOCKADE_TEST_CLOCK names to CLOCK_REALTIME, as if the clock of the host was
// set. Other clocks are the kernel's.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_s;

__attribute__((constructor)) static void
begin(void)
{
    const char *path = getenv("STOCKADE_TEST_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p != MAP_FAILED)
        offset_s = p;
    if (fd >= 0)
        (void)close(fd);
}

int
clock_gettime(clockid_t clock, struct timespec *out)
{
    int r = (int)syscall(SYS_clock_gettime, clock, out);
    if (r == 0 && offset_s != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += *offset_s;
    return r;
}

time_t
time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
