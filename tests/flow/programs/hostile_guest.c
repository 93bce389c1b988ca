// SPDX-License-Identifier: Apache-2.0
// The guest of tests/flow/hostile_guest.py: it reports that it is ready, and then attacks the broker as the first argument of
// a job says, such as "attack=garbage". It writes the protocol (proto/guest.proto) without the library.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BROKER = 3, CGROUP = 4, PACKET_MAX = 256 * 1024, FDS_MAX = 200 };
enum { READY = 1, STARTED, FAILED, EXITED };

// The first letter after the colon says what it does before it is ready. The test overwrites it in the executable.
static volatile char at_birth[] = "AT-BIRTH:honest-----";

static uint8_t packet[PACKET_MAX];
static size_t packet_n;

static void
put(uint8_t byte)
{
    packet[packet_n++] = byte;
}

static void
put_varint(uint64_t v)
{
    for (; v > 0x7f; v >>= 7)
        put((uint8_t)(v | 0x80));
    put((uint8_t)v);
}

static void
send_packet(const void *bytes, size_t n, const int *fds, size_t fds_n)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds_n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fds_n * sizeof(int));
    }
    while (sendmsg(BROKER, &m, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

// An event with the fields 1, 2, ... as numbers.
static void
send_event(int kind, const uint64_t *fields, int n, const int *fds, size_t fds_n)
{
    uint8_t body[256];
    packet_n = 0;
    for (int i = 0; i < n; i++) {
        put((uint8_t)((i + 1) << 3));
        put_varint(fields[i]);
    }
    size_t body_n = packet_n;
    memcpy(body, packet, body_n);
    packet_n = 0;
    put((uint8_t)(kind << 3 | 2));
    put_varint(body_n);
    memcpy(packet + packet_n, body, body_n);
    send_packet(packet, packet_n + body_n, fds, fds_n);
}

static void
started(uint32_t job)
{
    send_event(STARTED, (uint64_t[]){job, 2}, 2, NULL, 0);
}

static void
exited(uint32_t job, uint64_t status)
{
    send_event(EXITED, (uint64_t[]){job, status}, 2, NULL, 0);
}

static void
rest(void)
{
    for (;;)
        (void)pause();
}

// ---- attacks, by name

static void
honest(uint32_t job)
{
    started(job);
    exited(job, 0);
}

static void
silent(uint32_t job)
{
    (void)job;
}

static void
never_ends(uint32_t job)
{
    started(job);
}

static void
deaf(uint32_t job)
{
    started(job);
    rest();
}

static void
gone(uint32_t job)
{
    (void)job;
    _exit(0);
}

static void
garbage(uint32_t job)
{
    (void)job;
    for (unsigned i = 0; i < 10000; i++) {
        uint8_t bytes[512];
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)rand();
        send_packet(bytes, 1 + (size_t)rand() % sizeof bytes, NULL, 0);
    }
}

static void
oversized(uint32_t job)
{
    (void)job;
    static uint8_t bytes[190 * 1024];
    int room = 4 << 20;
    (void)setsockopt(BROKER, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    send_packet(bytes, sizeof bytes, NULL, 0);
}

static void
nothing(uint32_t job)
{
    (void)job;
    send_packet("", 0, NULL, 0);
}

static void
no_kind(uint32_t job)
{
    (void)job;
    send_packet("\x7a\x01x", 3, NULL, 0);
}

static void
ready_again(uint32_t job)
{
    (void)job;
    for (unsigned i = 0; i < 100000; i++)
        send_event(READY, (uint64_t[]){1}, 1, NULL, 0);
}

static void
other_job(uint32_t job)
{
    started(job + 77);
}

static void
ends_first(uint32_t job)
{
    exited(job, 0);
}

static void
ends_twice(uint32_t job)
{
    started(job);
    exited(job, 0);
    exited(job, 0);
}

static void
no_status(uint32_t job)
{
    started(job);
    exited(job, UINT32_MAX);
}

static void
lies_about_sizes(uint32_t job)
{
    const uint64_t m = UINT64_MAX;
    started(job);
    send_event(EXITED, (uint64_t[]){job, 0, m, m, m, m, m, m, m, m, m}, 11, NULL, 0);
}

static void
a_descriptor(uint32_t job)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    send_event(STARTED, (uint64_t[]){job, 2}, 2, &fd, 1);
}

static void
many_descriptors(uint32_t job)
{
    int fds[FDS_MAX];
    for (int i = 0; i < FDS_MAX; i++)
        fds[i] = BROKER;
    for (int i = 0; i < 1000; i++)
        send_event(STARTED, (uint64_t[]){job, 2}, 2, fds, FDS_MAX);
}

// Its own socket waits in its own socket: the kernel must find that nobody holds it any more.
static void
itself(uint32_t job)
{
    int fd = BROKER;
    send_event(STARTED, (uint64_t[]){job, 2}, 2, &fd, 1);
}

// A TCP connection for whose end the last process that closes it waits for an hour.
static void
lingering(uint32_t job)
{
    static char data[65536];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const struct linger hour = {1, 3600};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &n) < 0 ||
        connect(fd, (struct sockaddr *)&at, n) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) < 0)
        _exit(1);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    send_event(STARTED, (uint64_t[]){job, 2}, 2, &fd, 1);
    (void)close(fd);
}

static int
open_terminal(void)
{
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 ? fd : open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int terminal = -1;

static void *
toggle(void *cookie)
{
    (void)cookie;
    for (;;)
        (void)fcntl(terminal, F_SETFL, O_RDWR);
    return NULL;
}

static void *
take_away(void *cookie)
{
    (void)cookie;
    char c[4096];
    for (;;) {
        struct pollfd p = {.fd = terminal, .events = POLLIN};
        if (poll(&p, 1, 100) > 0)
            (void)!read(terminal, c, sizeof c);
    }
    return NULL;
}

static void *
write_on(void *cookie)
{
    (void)cookie;
    int unlock = 0;
    (void)ioctl(terminal, 0x40045431 /* TIOCSPTLCK */, &unlock);
    int slave = ioctl(terminal, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (;;) {
        (void)!write(slave, "x", 1);
        (void)usleep(20);
    }
    return NULL;
}

// Shares the terminal's master with the broker, makes it blocking all the time, and takes away what the broker is about to
// read.
static void
blocking_terminal(uint32_t job)
{
    pthread_t t;
    terminal = open_terminal();
    send_event(STARTED, (uint64_t[]){job, 2}, 2, &terminal, 1);
    (void)pthread_create(&t, NULL, toggle, NULL);
    (void)pthread_create(&t, NULL, toggle, NULL);
    (void)pthread_create(&t, NULL, take_away, NULL);
    (void)pthread_create(&t, NULL, write_on, NULL);
}

// Writes a letter now and then; the test takes it away before the broker has read it, and makes the terminal blocking.
static void
slow_terminal(uint32_t job)
{
    int unlock = 0;
    terminal = open_terminal();
    (void)ioctl(terminal, 0x40045431 /* TIOCSPTLCK */, &unlock);
    int slave = ioctl(terminal, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY | O_CLOEXEC);
    send_event(STARTED, (uint64_t[]){job, 2}, 2, &terminal, 1);
    while (write(slave, "x", 1) == 1)
        (void)usleep(100000);
}

static void
cgroups(uint32_t job)
{
    int at = CGROUP;
    for (int i = 0; i < 64 && mkdirat(at, "deep", 0755) == 0; i++)
        at = openat(at, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 5000; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "wide%d", i);
        if (mkdirat(CGROUP, name, 0755) < 0)
            break;
    }
    honest(job);
}

static void
forks(uint32_t job)
{
    started(job);
    for (int i = 0; i < 2000; i++)
        if (fork() == 0)
            rest();
}

static void
long_failure(uint32_t job)
{
    static uint8_t bytes[8000];
    packet_n = 0;
    put(FAILED << 3 | 2);
    put_varint(4 + 3 + 5000);
    put(1 << 3), put((uint8_t)job), put(2 << 3), put(127);
    put(4 << 3 | 2), put_varint(5000);
    memcpy(bytes, packet, packet_n);
    memset(bytes + packet_n, '\x1b', 5000);
    send_packet(bytes, packet_n + 5000, NULL, 0);
}

static const struct {
    const char *name;
    void (*run)(uint32_t job);
} attacks[] = {
    {"honest", honest},
    {"silent", silent},
    {"never-ends", never_ends},
    {"deaf", deaf},
    {"gone", gone},
    {"garbage", garbage},
    {"oversized", oversized},
    {"nothing", nothing},
    {"no-kind", no_kind},
    {"ready-again", ready_again},
    {"other-job", other_job},
    {"ends-first", ends_first},
    {"ends-twice", ends_twice},
    {"no-status", no_status},
    {"lies-about-sizes", lies_about_sizes},
    {"a-descriptor", a_descriptor},
    {"many-descriptors", many_descriptors},
    {"itself", itself},
    {"lingering", lingering},
    {"blocking-terminal", blocking_terminal},
    {"slow-terminal", slow_terminal},
    {"cgroups", cgroups},
    {"forks", forks},
    {"long-failure", long_failure},
};

// Start is field 1 of the request, and the job's number field 1 of it.
static uint32_t
job_of(const uint8_t *bytes, size_t n)
{
    size_t at = 1;
    while (at < n && (bytes[at] & 0x80) != 0)
        at++;
    at += 2;
    uint32_t job = 0;
    for (unsigned shift = 0; at < n; shift += 7) {
        job |= (uint32_t)(bytes[at] & 0x7f) << shift;
        if ((bytes[at++] & 0x80) == 0)
            break;
    }
    return job;
}

static void
obey(const uint8_t *bytes, size_t n)
{
    static const char mark[] = "attack=";
    const char *at = memmem(bytes, n, mark, sizeof mark - 1);
    if (n < 4 || bytes[0] != 0x0a || at == NULL)
        return;
    at += sizeof mark - 1;
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
        size_t length = strlen(attacks[i].name);
        if (memcmp(at, attacks[i].name, length) == 0 && (at[length] & 0x60) == 0)
            attacks[i].run(job_of(bytes, n));
    }
}

int
main(void)
{
    static uint8_t bytes[PACKET_MAX];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGCHLD, SIG_IGN);
    if (at_birth[9] == 'e') // ends
        return 1;
    if (at_birth[9] == 's') // silent
        rest();
    if (at_birth[9] == 'f') // floods
        for (;;)
            send_packet("\xff\xff\xff", 3, NULL, 0);
    send_event(READY, (uint64_t[]){1}, 1, NULL, 0);
    for (;;) {
        ssize_t n =
            recv(BROKER, bytes, sizeof bytes, 0); // descriptors that come with it are dropped
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        if (n > 0)
            obey(bytes, (size_t)n);
    }
}
