// SPDX-License-Identifier: Apache-2.0
// The relay's process as started by the spawner: without privileges, with three descriptors, one at a time, never
// left over.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

#include <linux/bpf.h>
#include <sys/syscall.h>

#include "server/relay/relay.h"

static struct broker b;

static int
start(void **state)
{
    (void)need_root(state);
    broker_config(&b, "");
    broker_config_bpf(&b);
    broker_start(&b);
    if (!(b.features.bpf & BPF_HAS_RELAY))
        fail_msg("%s", broker_feature(&b, "relay")->detail);
    assert_true(b.bpf_fds[BPF_FD_RELAY] >= 0);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    for (int i = 0; i < BPF_FDS; i++) {
        if (b.bpf_fds[i] >= 0)
            (void)close(b.bpf_fds[i]);
    }
    broker_stop(&b);
    return 0;
}

static void
read_text(pid_t pid, const char *file, char *text, size_t n)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, n - 1);
    text[got < 0 ? 0 : got] = '\0';
    (void)close(fd);
}

// The spawner's child with this name; 0: none.
static pid_t
find_relay(void)
{
    char file[64];
    char text[4096];
    char name[32];
    (void)snprintf(file, sizeof file, "task/%d/children", (int)b.pid);
    read_text(b.pid, file, text, sizeof text);
    char *save = NULL;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        pid_t pid = (pid_t)strtol(word, NULL, 10);
        read_text(pid, "comm", name, sizeof name);
        if (strcmp(name, "stockade-relay\n") == 0)
            return pid;
    }
    return 0;
}

static void
assert_line(const char *status, const char *key, const char *value)
{
    const char *at = strstr(status, key);
    assert_non_null(at);
    at += strlen(key);
    at += strspn(at, "\t ");
    size_t n = strcspn(at, "\n");
    while (n > 0 && at[n - 1] == ' ')
        n--;
    if (n != strlen(value) || strncmp(at, value, n) != 0)
        fail_msg("%s%.*s instead of %s", key, (int)n, at, value);
}

static void
assert_same(pid_t pid, const char *ns)
{
    char path[64];
    char theirs[64] = "";
    char ours[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, ns);
    assert_true(readlink(path, theirs, sizeof theirs - 1) > 0);
    (void)snprintf(path, sizeof path, "/proc/self/%s", ns);
    assert_true(readlink(path, ours, sizeof ours - 1) > 0);
    assert_string_equal(theirs, ours);
}

static void
it_runs_without_privileges_in_the_hosts_namespaces(void **state)
{
    (void)state;
    char status[4096];
    char ids[64];
    pid_t pid = find_relay();
    assert_true(pid > 0);
    read_text(pid, "status", status, sizeof status);
    uint32_t id = b.config.relay_uid;
    (void)snprintf(ids, sizeof ids, "%u\t%u\t%u\t%u", id, id, id, id);
    assert_line(status, "\nUid:", ids);
    assert_line(status, "\nGid:", ids);
    assert_line(status, "\nGroups:", "");
    assert_line(status, "\nNoNewPrivs:", "1");
    static const char *const sets[] = {
        "\nCapInh:", "\nCapPrm:", "\nCapEff:", "\nCapBnd:", "\nCapAmb:"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        assert_line(status, sets[i], "0000000000000000");
    // Its reports use the host's time, and it reads the host's name servers.
    static const char *const places[] = {"ns/time", "ns/mnt", "ns/net", "ns/user", "root"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        assert_same(pid, places[i]);
    char environment[8];
    read_text(pid, "environ", environment, sizeof environment);
    assert_string_equal(environment, "");
}

static bool
is_ready(int fd)
{
    const struct relay_order configure = {
        .kind = RELAY_CONFIGURE, .servers_n = 1, .servers = {{.port = 53}}};
    struct relay_report report = {0};
    if (send(fd, &configure, sizeof configure, MSG_NOSIGNAL) != (ssize_t)sizeof configure ||
        !readable(fd, BROKER_WAIT_MS))
        return false;
    return recv(fd, &report, sizeof report, 0) == (ssize_t)sizeof report &&
           report.kind == RELAY_READY;
}

static bool
is_map(pid_t pid, int fd, const char *flags)
{
    char file[32];
    char text[512];
    (void)snprintf(file, sizeof file, "fdinfo/%d", fd);
    read_text(pid, file, text, sizeof text);
    return strstr(text, "map_type:") && strstr(text, flags);
}

static void
it_has_its_socket_and_two_maps_and_can_write_one(void **state)
{
    (void)state;
    assert_true(is_ready(b.bpf_fds[BPF_FD_RELAY])); // the dynamic linker has closed its files
    pid_t pid = find_relay();
    char path[64];
    char target[64] = "";
    for (int fd = 0; fd < 64; fd++) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        if (fd <= STDOUT_FILENO)
            assert_string_equal(target, "/dev/null");
        else if (fd == RELAY_SOCKET_FD)
            assert_int_equal(strncmp(target, "socket:", 7), 0);
        else if (fd > RELAY_FLOWS_FD && strncmp(target, "anon_inode:[event", 17) != 0 &&
                 strncmp(target, "pipe:", 5) != 0 && n >= 0) // those of its own loop
            fail_msg("descriptor %d is %s", fd, target);
    }
    assert_true(is_map(pid, RELAY_NAMES_FD, "flags:\t02\n"));
    assert_true(is_map(pid, RELAY_FLOWS_FD, "flags:\t00\n"));
}

static bool
is_relay(pid_t pid)
{
    char name[32];
    read_text(pid, "comm", name, sizeof name);
    return strcmp(name, "stockade-relay\n") == 0;
}

static void
a_new_relay_replaces_one_that_runs_hangs_or_has_ended(void **state)
{
    (void)state;
    int held = -1; // a relay ends with its socket
    for (int i = 0; i < 3; i++) {
        pid_t before = find_relay();
        assert_true(before > 0);
        if (i > 0)
            assert_int_equal(kill(before, i == 1 ? SIGSTOP : SIGKILL), 0);
        struct spawn_request q = {.op = SPAWN_RELAY};
        int fds[SPAWN_FDS_MAX] = {-1};
        struct spawn_reply r = broker_ask(&b, &q, fds);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        wait_until("the relay is gone", !is_relay(before));
        assert_true(find_relay() != before);
        assert_true(is_ready(fds[0]));
        (void)close(held);
        held = fds[0];
    }
    (void)close(held);
    // Two requests at once: the second is refused while the first is pending, or comes after it.
    struct spawn_request q = {.op = SPAWN_RELAY};
    (void)broker_send(&b, &q);
    (void)broker_send(&b, &q);
    for (int i = 0; i < 2; i++) {
        struct spawn_reply r;
        int fds[SPAWN_FDS_MAX] = {-1};
        assert_true(broker_read(&b, &r, fds));
        assert_true(r.ok || r.err.code == ERR_FAILED_PRECONDITION);
        if (r.ok)
            (void)close(fds[0]);
    }
}

static void
it_ends_with_its_socket_and_with_the_spawner(void **state)
{
    (void)start(state);
    pid_t first = find_relay();
    (void)close(b.bpf_fds[BPF_FD_RELAY]);
    b.bpf_fds[BPF_FD_RELAY] = -1;
    wait_until("the relay is gone", !is_relay(first));
    struct spawn_request q = {.op = SPAWN_RELAY};
    int fds[SPAWN_FDS_MAX] = {-1};
    assert_true(broker_ask(&b, &q, fds).ok);
    pid_t second = find_relay();
    assert_true(second > 0);
    assert_int_equal(kill(b.pid, SIGKILL), 0);
    assert_int_equal(waitpid(b.pid, NULL, 0), b.pid);
    wait_until("the relay is gone", !is_relay(second));
    (void)close(fds[0]);
    (void)close(b.fd);
    broker_config(&b, "");
    broker_start(&b); // removes what the killed one left
    (void)stop(state);
}

int
main(void)
{
    const struct CMUnitTest one[] = {
        cmocka_unit_test(it_has_its_socket_and_two_maps_and_can_write_one),
        cmocka_unit_test(it_runs_without_privileges_in_the_hosts_namespaces),
        cmocka_unit_test(a_new_relay_replaces_one_that_runs_hangs_or_has_ended),
    };
    const struct CMUnitTest end[] = {
        cmocka_unit_test(it_ends_with_its_socket_and_with_the_spawner),
    };
    int failed = cmocka_run_group_tests(one, start, stop);
    return failed + cmocka_run_group_tests(end, need_root, NULL);
}
