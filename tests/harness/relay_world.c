// SPDX-License-Identifier: Apache-2.0
// See relay_world.h.
#include "tests/harness/relay_world.h"

struct world_record {
    const char *name;
    const char *a, *b;  // addresses, IPv4 or IPv6; NULL: none
    const char *cname;  // another name, which has the addresses a and b
    const char *second; // the answer from the second query of its type on, instead of a
};

static const struct world_record world_records[] = {
    {"echo.test", "127.0.0.1", NULL, NULL, NULL},
    {"public.test", "93.184.216.34", NULL, NULL, NULL},
    {"loopback.bad.test", "127.0.0.1", NULL, NULL, NULL},
    {"private.bad.test", "10.0.0.1", "192.168.1.1", NULL, NULL},
    {"metadata.bad.test", "169.254.169.254", NULL, NULL, NULL},
    {"six.bad.test", "::1", "fd00:ec2::254", NULL, NULL},
    {"mapped.bad.test", "::ffff:10.0.0.1", "64:ff9b::7f00:1", NULL, NULL},
    {"chain.bad.test", "127.0.0.1", NULL, "loopback.bad.test", NULL},
    {"mixed.test", "10.0.0.1", "93.184.216.34", NULL, NULL},
    {"rebind.test", "93.184.216.34", NULL, NULL, "127.0.0.1"},
    {"half.test", "127.0.0.8", "127.0.0.1", NULL, NULL}, // nothing listens at the first address
    {"slow.test", "127.0.0.9", "127.0.0.1", NULL, NULL}, // the first address does not respond
    {"empty.test", NULL, NULL, NULL, NULL},
};

struct world world;

static void
world_put(uint8_t **at, uint64_t v, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;)
        *(*at)++ = (uint8_t)(v >> (8 * i));
}

static void
world_put_name(uint8_t **at, const char *name)
{
    while (*name != '\0') {
        size_t n = strcspn(name, ".");
        *(*at)++ = (uint8_t)n;
        memcpy(*at, name, n);
        *at += n;
        name += n + (name[n] == '.');
    }
    *(*at)++ = 0;
}

// Converts labels to text; lower case, as c-ares sends them.
static size_t
world_name(const uint8_t *bytes, char out[256])
{
    size_t at = 0;
    size_t n = 0;
    while (bytes[at] != 0 && n + bytes[at] < 250) {
        if (n > 0)
            out[n++] = '.';
        memcpy(out + n, bytes + at + 1, bytes[at]);
        n += bytes[at];
        at += (size_t)bytes[at] + 1;
    }
    out[n] = '\0';
    return at + 1;
}

static void
world_put_address(uint8_t **at, const char *text, unsigned type, size_t owner, unsigned *answers)
{
    uint8_t address[16];
    bool v6 = text != NULL && strchr(text, ':') != NULL;
    if (text == NULL || v6 != (type == WORLD_TYPE_AAAA))
        return;
    (void)inet_pton(v6 ? AF_INET6 : AF_INET, text, address);
    world_put(at, 0xc000 | owner, 2);
    world_put(at, type, 2);
    world_put(at, 1, 2);
    world_put(at, 0, 4); // TTL 0
    world_put(at, v6 ? 16 : 4, 2);
    memcpy(*at, address, v6 ? 16 : 4);
    *at += v6 ? 16 : 4;
    ++*answers;
}

size_t
world_answer(const uint8_t *query, uint8_t *out)
{
    static const struct world_record many = {"many.test", "93.184.216.34", NULL, NULL, NULL};
    static unsigned seen[sizeof world_records / sizeof world_records[0]];
    char name[256];
    size_t question_n = world_name(query + 12, name) + 4;
    unsigned type = (unsigned)query[12 + question_n - 4] << 8 | query[12 + question_n - 3];
    const struct world_record *r = strstr(name, "many.test") != NULL ? &many : NULL;
    const char *a = many.a;
    for (size_t i = 0; i < sizeof world_records / sizeof world_records[0]; i++)
        if (strcmp(world_records[i].name, name) == 0) {
            r = &world_records[i];
            bool again = type == WORLD_TYPE_A && seen[i]++ > 0;
            a = again && r->second != NULL ? r->second : r->a;
        }
    uint8_t *at = out + 12;
    unsigned answers = 0;
    size_t owner = 12;
    memcpy(at, query + 12, question_n);
    at += question_n;
    if (r != NULL && r->cname != NULL) {
        // The addresses belong to the other name.
        world_put(&at, 0xc00c, 2);
        world_put(&at, WORLD_TYPE_CNAME, 2);
        world_put(&at, 1, 2);
        world_put(&at, 0, 4);
        uint8_t *length = at;
        at += 2;
        owner = (size_t)(at - out);
        world_put_name(&at, r->cname);
        world_put(&length, (unsigned)(at - length - 2), 2);
        answers++;
    }
    if (r != NULL) {
        world_put_address(&at, a, type, owner, &answers);
        world_put_address(&at, r->b, type, owner, &answers);
    }
    uint8_t *head = out;
    memcpy(head, query, 2);
    head += 2;
    world_put(&head, r != NULL ? 0x8180 : 0x8183, 2);
    world_put(&head, 1, 2);
    world_put(&head, answers, 2);
    world_put(&head, 0, 4);
    return (size_t)(at - out);
}

void
world_start(void)
{
    int fd = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, BOX_DNS_PORT);
    static const struct timeval forever = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    world.asked = shared;
    world.pid = fork();
    if (world.pid != 0) {
        (void)close(fd);
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        uint8_t query[WORLD_MESSAGE] = {0};
        uint8_t answer[WORLD_MESSAGE * 2];
        struct sockaddr_in from = {0};
        socklen_t n = sizeof from;
        if (recvfrom(fd, query, sizeof query - 1, 0, (struct sockaddr *)&from, &n) < 12)
            continue;
        world.asked[1 + *world.asked % WORLD_PORTS] = from.sin_port;
        ++*world.asked;
        size_t bytes = world_answer(query, answer);
        (void)sendto(fd, answer, bytes, 0, (const struct sockaddr *)&from, n);
    }
}

void
world_stop(void)
{
    (void)kill(world.pid, SIGKILL);
    (void)waitpid(world.pid, NULL, 0);
}

size_t
world_query(const char *name, unsigned type, uint8_t out[WORLD_MESSAGE])
{
    uint8_t *at = out;
    world_put(&at, 0x1234, 2);
    world_put(&at, 0x0100, 2);
    world_put(&at, 1, 2);
    world_put(&at, 0, 6);
    world_put_name(&at, name);
    world_put(&at, type, 2);
    world_put(&at, 1, 2);
    return (size_t)(at - out);
}

struct world_answer
world_read(const uint8_t *bytes, size_t n, const uint8_t *query, size_t query_n)
{
    struct world_answer a = {.rcode = bytes[3] & 0xf, .answers = bytes[7]};
    assert_true(n >= 12 && memcmp(bytes, query, 2) == 0 && (bytes[2] & 0x80) != 0);
    if (a.answers == 1) {
        size_t at = query_n + 10; // after the pointer, type, class and TTL
        size_t length = bytes[at + 1];
        assert_memory_equal(bytes + 12, query + 12, query_n - 12);
        assert_true(n >= at + 2 + length && length <= 16);
        memcpy(a.address, bytes + at + 2, length);
    }
    return a;
}

struct world_answer
world_ask(int fd, const char *name, unsigned type)
{
    uint8_t query[WORLD_MESSAGE];
    uint8_t answer[WORLD_MESSAGE];
    size_t n = world_query(name, type, query);
    assert_int_equal(send(fd, query, n, MSG_NOSIGNAL), (ssize_t)n);
    ssize_t got = recv(fd, answer, sizeof answer, 0);
    if (got < 12)
        return (struct world_answer){.rcode = -1};
    return world_read(answer, (size_t)got, query, n);
}
