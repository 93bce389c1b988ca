// SPDX-License-Identifier: Apache-2.0
// Checks 105 to 110: secrets that a job might find.
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int
environment(void)
{
    static const char *const known[] = {"PATH=",
                                        "HOME=",
                                        "USER=",
                                        "LOGNAME=",
                                        "SHELL=",
                                        "LANG=",
                                        "LC_ALL=",
                                        "TERM=",
                                        "TMPDIR=",
                                        "PWD=",
                                        "OLDPWD=",
                                        "SHLVL=",
                                        "_=",
                                        "ESCAPE_",
                                        "OMP_NUM_THREADS=",
                                        "GOMAXPROCS=",
                                        "JAVA_TOOL_OPTIONS="};
    for (char **e = environ; *e != NULL; e++) {
        bool ok = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            ok = ok || strncmp(*e, known[i], strlen(known[i])) == 0;
        if (!ok)
            return escaped("%s", *e);
    }
    const char *files[] = {"/proc/1/environ", "/proc/1/cmdline"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char text[4096];
        int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : 0;
        if (n > 0 && memmem(text, (size_t)n, parameter("ESCAPE_NONCE"),
                            strlen(parameter("ESCAPE_NONCE"))) != NULL)
            return escaped("%s holds the broker's secret", files[i]);
    }
    return held("nothing but the template's environment");
}

static int
descriptors(void)
{
    DIR *fds = opendir("/proc/self/fd");
    if (fds == NULL)
        return escaped("no /proc/self/fd: the check sees nothing");
    for (struct dirent *d; (d = readdir(fds)) != NULL;) {
        long fd = strtol(d->d_name, NULL, 10);
        if (d->d_name[0] != '.' && fd > 2 && fd != dirfd(fds))
            return escaped("descriptor %ld", fd);
    }
    return held("0, 1 and 2 only");
}

static int
keyring(void)
{
    char text[256];
    long serial = syscall(SYS_keyctl, 0, -3, 0);
    if (serial >= 0)
        return escaped("session keyring %ld", serial);
    int fd = open("/proc/keys", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : 0;
    return n > 0 ? escaped("/proc/keys lists keys") : held("keyctl: %s", strerror(errno));
}

static int
groups(void)
{
    gid_t list[64];
    int n = getgroups(64, list);
    for (int i = 0; i < n; i++)
        if (list[i] != (gid_t)parameter_number("ESCAPE_USER"))
            return escaped("group %u", list[i]);
    return n >= 0 && getgid() == (gid_t)parameter_number("ESCAPE_USER")
               ? held("%d supplementary groups", n)
               : escaped("gid %u", getgid());
}

static int
reopen_stdio(void)
{
    struct stat st;
    for (int fd = 0; fd < 3; fd++) {
        if (fstat(fd, &st) != 0)
            return escaped("descriptor %d is closed", fd);
        if (!S_ISFIFO(st.st_mode))
            return escaped("descriptor %d is no pipe: mode %o", fd, st.st_mode);
    }
    return held("three pipes");
}

static int
ipc_objects(void)
{
    struct shmid_ds info;
    long id = parameter_number("ESCAPE_SHMID");
    if (shmctl((int)id, IPC_STAT, &info) == 0 ||
        shmget((key_t)parameter_number("ESCAPE_SHMKEY"), 1, 0) >= 0)
        return escaped("System V segment %ld", id);
    char path[256];
    (void)snprintf(path, sizeof path, "/dev/shm/%s", parameter("ESCAPE_NONCE"));
    if (access(path, F_OK) == 0)
        return escaped("%s is there", path);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int n = snprintf(to.sun_path + 1, sizeof to.sun_path - 1, "%s", parameter("ESCAPE_NONCE"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
        return escaped("the host's abstract socket");
    return held("no object of the host");
}

const struct check credential_checks[] = {
    {105, "the environment holds no secret", "a fresh environment; guest non-dumpable",
     environment},
    {106, "no descriptor beyond stdio is open", "close_range before exec, O_CLOEXEC", descriptors},
    {107, "no key can be seen", "own session keyring, seccomp on keyctl", keyring},
    {108, "there are no supplementary groups", "dropped before the ids were mapped", groups},
    {109, "stdio are pipes, nothing to reopen", "pipes made by the broker", reopen_stdio},
    {110, "no IPC object of the host is in reach", "ipc, mount and network namespaces",
     ipc_objects},
    {0, NULL, NULL, NULL},
};
