// SPDX-License-Identifier: Apache-2.0
// Attempts that bypass the network itself: another namespace, descriptors of other processes, other system calls.
#include "network.h"

#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FDS = 64 };

static int
result(long r)
{
    return r < 0 ? errno : 0;
}

// AF_INET with SOCK_PACKET is a packet socket, as it was before AF_PACKET.
static int
packet_socket_of_old(const struct goal *g)
{
    (void)g;
    return result(socket(AF_INET, SOCK_PACKET | SOCK_CLOEXEC, htons(ETH_P_ALL)));
}

static int
network_of_its_own(const struct goal *g)
{
    (void)g;
    return result(unshare(CLONE_NEWUSER | CLONE_NEWNET));
}

static int
network_of_its_own_for_a_child(const struct goal *g)
{
    (void)g;
    long child = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNET | SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0)
        _exit(0);
    int sys = result(child);
    if (child > 0)
        (void)waitpid((pid_t)child, NULL, 0);
    return sys;
}

static int
network_of_another(const struct goal *g)
{
    (void)g;
    int fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return result(setns(fd, CLONE_NEWNET));
}

// The guest has sockets; other visible processes may have some, too.
static int
descriptor_of_another(const struct goal *g)
{
    (void)g;
    int worst = EPERM;
    for (pid_t pid = 1; pid < FDS; pid++) {
        long of = pid == getpid() || pid == getppid() ? -1 : syscall(SYS_pidfd_open, pid, 0);
        if (of < 0)
            continue;
        for (int fd = 0; fd < FDS; fd++) {
            long got = syscall(SYS_pidfd_getfd, of, fd, 0);
            if (got >= 0)
                return 0;
            worst = errno;
        }
        (void)close((int)of);
    }
    return worst;
}

// socket(AF_PACKET) with the number of a 32-bit program, in a child, because the filter may kill it.
static int
socket_by_another_table(const struct goal *g)
{
    (void)g;
#ifdef __x86_64__
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        long r = 359; // socket
        __asm__ volatile("int $0x80" : "+a"(r) : "b"(AF_PACKET), "c"(SOCK_RAW), "d"(0) : "memory");
        _exit(r < 0 ? (int)-r : 0);
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
#else
    return EPERM;
#endif
}

// The same with the numbers of x32.
static int
socket_by_a_number_of_x32(const struct goal *g)
{
    (void)g;
#ifdef __x86_64__
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        long r = syscall(0x40000000L + SYS_socket, AF_PACKET, SOCK_RAW, 0);
        _exit(r < 0 ? errno : 0);
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
#else
    return EPERM;
#endif
}

const struct technique network_inside[] = {
    {"packet_socket_of_old", packet_socket_of_old, false},
    {"network_of_its_own", network_of_its_own, false},
    {"network_of_its_own_for_a_child", network_of_its_own_for_a_child, false},
    {"network_of_another", network_of_another, false},
    {"descriptor_of_another", descriptor_of_another, false},
    {"socket_by_another_table", socket_by_another_table, false},
    {"socket_by_a_number_of_x32", socket_by_a_number_of_x32, false},
    {0},
};
