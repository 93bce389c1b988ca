// SPDX-License-Identifier: Apache-2.0
// Checks 249 to 251: memory that no cgroup is charged for, and pages that belong to the host. As with sockets, the harness
// looks at the host's memory while a job holds what it could get.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NAMES = 2000, OPENS = 800 };

static int
stay(int verdict)
{
    if (parameter("ESCAPE_STAY")[0] != '\0')
        (void)pause();
    return verdict;
}

static rlim_t
all_files(void)
{
    struct rlimit files = {0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_max;
}

// ---- Lists of names that overlayfs keeps per descriptor of a folder

static long
fill_folder(const char *folder)
{
    char path[512];
    long made = 0;
    for (; made < NAMES; made++) {
        (void)snprintf(path, sizeof path, "%s/%05ld%0200d", folder, made, 0);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        (void)close(fd);
    }
    return made;
}

// Each descriptor reads a version of its own.
static long
read_versions(const char *folder, long most)
{
    static char names[1 << 20];
    char path[512];
    long opened = 0;
    (void)snprintf(path, sizeof path, "%s/version", folder);
    for (; opened < most; opened++) {
        int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_getdents64, fd, names, sizeof names) <= 0)
            break;
        int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        (void)close(file);
        (void)unlink(path);
    }
    return opened;
}

static int
folders(void)
{
    static const char *const all[] = {"/home/agent", "/tmp", "/var/tmp", "/dev/shm"};
    long files = (long)all_files() - 16, names = 0, opened = 0;
    long each = files / 4 < OPENS / 4 ? files / 4 : OPENS / 4;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        names += fill_folder(all[i]);
        opened += read_versions(all[i], each);
    }
    return names > NAMES && opened == 4 * each
               ? stay(held("%ld descriptors of folders with %ld names", opened, names))
               : escaped("nothing was tried: %ld names, %ld opened", names, opened);
}

// ---- What poll and select keep while they wait: 64 bytes per descriptor, in each thread. 4,000 threads took 6 GB.

static int
waiting(void)
{
    static fd_set none[64]; // for 65536 descriptors
    rlim_t files = all_files() < 65536 ? all_files() : 65536;
    static struct pollfd all[65536];
    struct timespec now = {0};
    int fd = eventfd(0, EFD_CLOEXEC);
    for (rlim_t i = 0; i < files; i++)
        all[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (files < 4096 || poll(all, 1024, 0) != 0 || ppoll(all, 1024, &now, NULL) != 0 ||
        syscall(SYS_pselect6, 1024L, none, NULL, NULL, &now, NULL) != 0)
        return escaped("what is allowed fails: %s", strerror(errno));
    if (poll(all, 1025, 0) >= 0 || poll(all, files, 0) >= 0 || ppoll(all, files, &now, NULL) >= 0)
        return escaped("poll takes more than 1024 descriptors");
    if (errno != EINVAL || syscall(SYS_pselect6, (long)files, none, NULL, NULL, &now, NULL) >= 0)
        return escaped("select takes more than 1024 descriptors");
    return held("poll and select take 1024 of %lu descriptors", (unsigned long)files);
}

// ---- Pages of the host's files

static int
host_pages(void)
{
    static char block[1 << 16];
    struct stat st;
    struct iovec one = {block, sizeof block};
    int fd = open(parameter("ESCAPE_FILE"), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return escaped("open %s: %s", parameter("ESCAPE_FILE"), strerror(errno));
    size_t n = (size_t)st.st_size;
    for (off_t at = 0; at < st.st_size; at += (off_t)sizeof block)
        (void)!syscall(SYS_preadv2, fd, &one, 1L, (long)at, 0L, 0x80L /* RWF_DONTCACHE */);
    int direct = open(parameter("ESCAPE_FILE"), O_RDONLY | O_DIRECT | O_CLOEXEC);
    void *aligned = NULL;
    if (direct >= 0 && posix_memalign(&aligned, 4096, sizeof block) == 0)
        while (read(direct, aligned, sizeof block) > 0)
            ;
    char *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) {
        for (size_t i = 0; i < n; i += 4096)
            block[0] = p[i];
        (void)madvise(p, n, 20 /* MADV_COLD */);
        (void)madvise(p, n, 21 /* MADV_PAGEOUT */);
        (void)munmap(p, n);
    }
    (void)sync_file_range(fd, 0, 0, 7);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE);
    int advice = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); // last: the others read
    return held("advice %s; the harness looks at the pages", advice == 0 ? "taken" : "refused");
}

const struct check uncharged_checks[] = {
    {249, "folders that are read keep no lists of their names", "folders of the tmpfs alone",
     folders},
    {250, "a thread cannot wait for many descriptors", "seccomp: 1024 for poll and select",
     waiting},
    {251, "the host's pages of /usr stay in memory", "seccomp: no POSIX_FADV_DONTNEED", host_pages},
    {0, NULL, NULL, NULL},
};
