// Rates as the programs pace them, with nobody else who would: what stands for the relay takes bytes as fast as they come.
//
// A job's socket to the relay gets its share of the sandbox's rate when it connects, another as others come and go or the
// policy changes, and no call of the job's changes it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "net_rig.h"

enum { SLOT = 4, GENERATION = 8, RULES = 6, PORT = 7777, WAIT_S = 20, RATE = 4 << 20 };
static const char address[] = "::ffff:10.98.0.1";

static struct net_rig rig;
static int relay, local;

static int
set_up(void **state)
{
    (void)state;
    const char *why = net_rig_open(&rig);
    if (why != NULL) {
        (void)printf("skipped: %s\n", why);
        exit(77);
    }
    if (net_rig_namespace() < 0 || net_rig_allow(&rig, RULES, address, PORT, PORT) < 0)
        return -1;
    relay = net_rig_listener(SOCK_STREAM, 0, NET_RELAY_PORT);
    local = net_rig_listener(SOCK_STREAM, 0, PORT);
    return relay < 0 || local < 0 ? -1 : 0;
}

static int
tear_down(void **state)
{
    (void)state;
    net_rig_close(&rig);
    return access(rig.parent, F_OK) == 0;
}

static void
put_rate(uint64_t rate)
{
    const struct bpf_sandbox b = {.slot = SLOT,
                                  .generation = GENERATION,
                                  .mode = NET_ALLOWLIST,
                                  .rule_set = RULES,
                                  .egress_rate = rate};
    if (net_rig_put(&rig, &b) < 0)
        abort();
}

// ---- The job: a process of the sandbox; it ends with the number of its first line that failed

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static int
dial(const char *to)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET6, to, &at.sin6_addr);
    return connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 ? fd : -1;
}

static unsigned long
rate_of(int fd)
{
    unsigned long rate = 0;
    socklen_t n = sizeof rate;
    return getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &n) == 0 ? rate : 0;
}

// The rate is looked at when something is acknowledged: says a byte until it is another.
static bool
becomes(int fd, unsigned long rate)
{
    time_t until = time(NULL) + WAIT_S;
    while (rate_of(fd) != rate && time(NULL) < until) {
        if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
            return false;
        (void)usleep(1000);
    }
    return rate_of(fd) == rate;
}

static int
job(int (*fn)(void))
{
    int *line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(line != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        alarm(3 * WAIT_S);
        *line = net_rig_enter(&rig) ? fn() : __LINE__;
        _exit(*line != 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    int failed = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : *line != 0 ? *line : -1;
    (void)munmap(line, sizeof *line);
    return failed;
}

static int
tries_to_go_faster(void)
{
    const unsigned long much = ~0UL;
    const unsigned more = 1U << 30;
    int fd = dial(address);
    MUST(fd >= 0);
    MUST(rate_of(fd) == RATE);
    MUST(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &much, sizeof much) < 0 && errno == EPERM);
    MUST(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &more, sizeof more) < 0 && errno == EPERM);
    MUST(rate_of(fd) == RATE);
    return 0;
}

static int
shares_with_others(void)
{
    static const struct linger now = {.l_onoff = 1, .l_linger = 0};
    int first = dial(address);
    int second = dial(address);
    MUST(first >= 0 && second >= 0);
    // A socket of the test before may still count: its FIN is acknowledged when the other end likes.
    MUST(becomes(second, RATE / 2));
    MUST(becomes(first, RATE / 2));
    MUST(setsockopt(second, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    (void)close(second);
    MUST(becomes(first, RATE));
    put_rate(RATE / 4);
    MUST(becomes(first, RATE / 4));
    put_rate(0);
    MUST(becomes(first, ~0UL));
    return 0;
}

static int
talks_to_itself(void)
{
    int fd = dial("::ffff:127.0.0.1");
    MUST(fd >= 0);
    MUST(rate_of(fd) == ~0UL);
    return 0;
}

// ---- Tests

static void
a_job_cannot_raise_the_rate_of_its_sockets(void **state)
{
    (void)state;
    put_rate(RATE);
    assert_int_equal(job(tries_to_go_faster), 0);
}

static void
the_rate_is_divided_by_sockets_and_follows_the_policy(void **state)
{
    (void)state;
    put_rate(RATE);
    assert_int_equal(job(shares_with_others), 0);
}

static void
what_stays_in_the_sandbox_is_not_paced(void **state)
{
    (void)state;
    put_rate(RATE);
    assert_int_equal(job(talks_to_itself), 0);
}

static double
now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
bytes_come_at_the_rate(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    static char block[1 << 16];
    put_rate(RATE);
    for (int fd = 0; fd >= 0;) { // those of the tests before
        fd = accept(relay, NULL, NULL);
        (void)close(fd);
    }
    pid_t child = fork();
    if (child == 0) {
        int to = net_rig_enter(&rig) ? dial(address) : -1;
        while (send(to, block, sizeof block, MSG_NOSIGNAL) > 0)
            ;
        _exit(0);
    }
    assert_int_equal(fcntl(relay, F_SETFL, 0), 0);
    int fd = accept(relay, NULL, NULL);
    double begun = now_s();
    size_t got = 0;
    while (got < BYTES) {
        ssize_t n = recv(fd, block, sizeof block, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    double took = now_s() - begun;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)close(fd);
    (void)printf("%.2f of the rate\n", BYTES / took / RATE);
    assert_true(took > 0.75 * BYTES / RATE); // never faster, however slow the machine
    assert_true(took < WAIT_S);              // a bucket that drops reaches a hundredth
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_cannot_raise_the_rate_of_its_sockets),
        cmocka_unit_test(the_rate_is_divided_by_sockets_and_follows_the_policy),
        cmocka_unit_test(what_stays_in_the_sandbox_is_not_paced),
        cmocka_unit_test(bytes_come_at_the_rate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
