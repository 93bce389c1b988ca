// SPDX-License-Identifier: Apache-2.0
// See format.h. mkfs.ext4 reads and writes an image that has only zeros, so it parses nothing from strangers; it is confined
// nevertheless, because it is a large program:
//
//   image owned by mkfs_id -> fork -> /dev/null, image, a pipe for its messages; nothing else is open
//   -> network and IPC of its own -> limits -> bounding set empty, ids, no new privileges -> exec -> image owned by root again
#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/loop_disk.h"

enum {
    IMAGE_FD = 3,
    WORDS_MAX = 200,
    CPU_SECONDS = 60,
    INODE_BYTES = 256,
    INODES_RESERVED = 16,
    MIB = 1024 * 1024,
    GROUP_BYTES = 128 * MIB, // of a block group, with blocks of 4 KiB
    KEPT_BYTES_MAX = 4096 * FORMAT_BLOCK,
    JOURNAL_FROM_MIB = 3,
};

int
format_probe(struct err *e)
{
    if (loop_disk_mkfs() != NULL)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "mkfs.ext4 is not installed");
    err_detail(e, "MKFS_MISSING", "mkfs.ext4", "install e2fsprogs");
    return r;
}

// 0: it has none. mkfs.ext4 makes none smaller than 4 MiB, and none that takes half of the image.
static uint64_t
journal_mib(const struct disk_order *o)
{
    const uint64_t mib = o->bytes / MIB;
    if (o->op == DISK_SCRATCH || mib < JOURNAL_FROM_MIB)
        return 0;
    return mib >= 16384 ? 64 : mib >= 1024 ? 16 : 4;
}

// Tables of inodes, the journal, and for each group its bitmaps, its descriptor and copies of the descriptors; rounded up.
uint64_t
format_size(const struct disk_order *o)
{
    const uint64_t tables = ((uint64_t)o->inodes + INODES_RESERVED) * INODE_BYTES;
    const uint64_t most = o->bytes + tables + journal_mib(o) * MIB;
    const uint64_t groups = most / GROUP_BYTES + 2;
    const uint64_t rest = most + groups * 16 * FORMAT_BLOCK + MIB;
    // ext4 keeps a fiftieth for its extents
    const uint64_t kept = rest / 49 + 1;
    const uint64_t all = rest + (kept < KEPT_BYTES_MAX ? kept : KEPT_BYTES_MAX);
    return (all + MIB - 1) / MIB * MIB;
}

static bool
set_limit(__rlimit_resource_t what, rlim_t n)
{
    const struct rlimit l = {n, n};
    return setrlimit(what, &l) == 0;
}

static bool
confine(uint32_t id, uint64_t bytes)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWIPC) < 0 || setgroups(0, NULL) < 0 || setsid() < 0)
        return false;
    for (unsigned long cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return false;
    return set_limit(RLIMIT_CORE, 0) && set_limit(RLIMIT_CPU, CPU_SECONDS) &&
           set_limit(RLIMIT_FSIZE, bytes) && set_limit(RLIMIT_NOFILE, 16) &&
           setresgid(id, id, id) == 0 && setresuid(id, id, id) == 0 && set_limit(RLIMIT_NPROC, 0) &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
}

static __attribute__((noreturn)) void
child(const char *program, int file, int words, const struct disk_order *o)
{
    char journal[24], inodes[24], extra[128];
    const bool plain = journal_mib(o) == 0;
    const unsigned owner = o->kind == SPAWN_DISK_VOLUME ? SANDBOX_UID_JOB : 0;
    (void)snprintf(journal, sizeof journal, "size=%u", (unsigned)journal_mib(o));
    (void)snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)o->inodes + INODES_RESERVED);
    // nodiscard: the image's blocks stay allocated
    (void)snprintf(extra, sizeof extra,
                   "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=%u:%u", owner,
                   owner);
    const char *const argv[] = {
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        "0",
        "-N",
        inodes,
        "-O",
        plain ? "^resize_inode,^has_journal" : "^resize_inode",
        "-E",
        extra,
        plain ? "-L" : "-J", // -J would bring the journal back
        plain ? "stockade" : journal,
        "/proc/self/fd/3",
        NULL,
    };
    // its built-in settings: those of the host would change what it makes
    const char *const envp[] = {"MKE2FS_CONFIG=/nonexistent", NULL};
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int copy = fcntl(words, F_DUPFD, IMAGE_FD + 2);
    if (null_fd >= 0 && copy >= 0 && dup2(file, IMAGE_FD) >= 0 && dup2(null_fd, 0) >= 0 &&
        dup2(copy, 1) >= 0 && dup2(copy, 2) >= 0 &&
        syscall(SYS_close_range, IMAGE_FD + 1, ~0U, 0) == 0 && confine(o->mkfs_id, format_size(o)))
        (void)execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
    (void)dprintf(2, "%s", strerror(errno));
    _exit(126);
}

// What it prints, in one line; "" if nothing.
static void
read_words(int fd, char out[WORDS_MAX])
{
    size_t n = 0;
    char scrap[256];
    for (ssize_t got = 1; got > 0;) {
        char *to = n < WORDS_MAX - 1 ? out + n : scrap;
        size_t room = n < WORDS_MAX - 1 ? WORDS_MAX - 1 - n : sizeof scrap;
        got = read(fd, to, room);
        if (got > 0 && to != scrap)
            n += (size_t)got;
        if (got < 0 && errno == EINTR)
            got = 1;
    }
    out[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)out[i] < ' ')
            out[i] = ' ';
}

static int
run(const char *program, int file, const struct disk_order *o, struct err *e)
{
    char words[WORDS_MAX];
    int ends[2];
    int status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    pid_t pid = fork();
    if (pid == 0)
        child(program, file, ends[1], o);
    (void)close(ends[1]);
    int auto_close from = ends[0];
    if (pid < 0)
        return err_sys(e, errno, "fork");
    read_words(from, words);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : err_set(e, ERR_INTERNAL, "mkfs.ext4 failed: %s", words);
}

int
format_run(int file, const struct disk_order *o, struct err *e)
{
    const char *program = loop_disk_mkfs();
    if (program == NULL)
        return format_probe(e);
    if (fchown(file, o->mkfs_id, o->mkfs_id) < 0)
        return err_sys(e, errno, "give the image to mkfs");
    int r = run(program, file, o, e);
    if (fchown(file, 0, 0) < 0 && r == 0)
        r = err_sys(e, errno, "take the image back");
    return r;
}
