// SPDX-License-Identifier: Apache-2.0
// DNS queries made by hand, over UDP and TCP. See network.c.
#include "network.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

struct query {
    size_t n;
    unsigned char bytes[512]; // with TCP, the first two bytes are the length
};

// An A query; a % in the name stands for 24 random characters.
static void
make_query(const char *name, struct query *q)
{
    static const unsigned char head[] = {0, 0, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    static const unsigned char tail[] = {0, 0, 1, 0, 1};
    unsigned char *p = q->bytes + sizeof head;
    unsigned char noise[24];
    memcpy(q->bytes, head, sizeof head);
    (void)!getrandom(noise, sizeof noise, 0);
    for (const char *label = name; *label != '\0';) {
        size_t n = strcspn(label, ".");
        unsigned char *length = p++;
        for (size_t i = 0; i < n; i++)
            if (label[i] != '%')
                *p++ = (unsigned char)label[i];
            else
                for (size_t k = 0; k < sizeof noise; k++)
                    *p++ = (unsigned char)("abcdefghijklmnopqrstuvwxyz012345"[noise[k] & 31]);
        *length = (unsigned char)(p - length - 1);
        label += n + (label[n] == '.');
    }
    memcpy(p, tail, sizeof tail);
    q->n = (size_t)(p - q->bytes) + sizeof tail;
    q->bytes[0] = (unsigned char)((q->n - 2) >> 8);
    q->bytes[1] = (unsigned char)(q->n - 2);
}

// A server's answer: its code, and the address in its last bytes. False: no answer, with the error.
static bool
ask(bool tcp, const struct sockaddr_in *server, const char *name, int *code, struct in_addr *found)
{
    struct query q;
    unsigned char answer[1024];
    make_query(name, &q);
    int fd = network_connect(tcp ? SOCK_STREAM : SOCK_DGRAM, server, sizeof *server);
    if (fd < 0)
        return false;
    size_t skip = tcp ? 0 : 2;
    struct pollfd soon = {.fd = fd, .events = POLLIN};
    long n = -1;
    if (send(fd, q.bytes + skip, q.n - skip, MSG_NOSIGNAL) > 0 &&
        poll(&soon, 1, NETWORK_PEER_MS) == 1)
        n = recv(fd, answer + skip, sizeof answer - skip, 0);
    int sys = n < 0 ? errno : 0;
    (void)close(fd);
    errno = sys;
    if (n < 12)
        return false;
    *code = answer[5] & 15;
    memcpy(found, answer + skip + n - sizeof *found, sizeof *found);
    return true;
}

int
network_ask(char **argv)
{
    struct sockaddr_in server = {0}, to;
    long count = strtol(argv[2], NULL, 10);
    int code = -1;
    to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(NETWORK_PORT)};
    if (!network_address(argv[1], 53, &server))
        return 2;
    for (long i = 0; i < count; i++)
        if (ask(strcmp(argv[0], "tcp") == 0, &server, argv[3], &code, &to.sin_addr))
            printf("code-%d\n", code);
        else
            printf("%s\n", network_error(errno));
    if (code == 0)
        printf("%s\n", network_reach(SOCK_STREAM, &to, sizeof to));
    return 0;
}
