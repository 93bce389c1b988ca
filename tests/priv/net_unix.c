// SPDX-License-Identifier: Apache-2.0
// Verdicts of net_unix.bpf.c on unix sockets (Linux 6.7): without an entry a job reaches no socket; with one it
// reaches its own sockets, with any kind of name, and a name below /usr fails immediately with EPERM, and is counted
// and reported.
//
// The test attaches the programs to a cgroup of its own, as the loader does, and its children are the jobs.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "net_unix.skel.h"

#include "bpf/emit.h"
#include "bpf/net.h"
#include "tests/harness/skip.h"

enum { SLOT = 5, GENERATION = 11, UNIX_CONNECT = 49, UNIX_SENDMSG = 50 };

static struct {
    struct net_unix_bpf *bpf;
    char parent[128], box[160], folder[40];
    uint64_t id;
    struct ring_buffer *ring;
    struct net_event last;
    unsigned reported;
} w;

static int
take(void *context, void *data, size_t size)
{
    const struct event *e = data;
    (void)context;
    assert_int_equal(size, sizeof *e + sizeof w.last);
    assert_int_equal(e->kind, EVENT_DENIED);
    assert_int_equal(e->slot, SLOT);
    memcpy(&w.last, e + 1, sizeof w.last);
    w.reported++;
    return 0;
}

// 0, or the errno of a feature that this kernel lacks.
static int
load_programs(void)
{
    const struct budget_rate rate = {.per_second = 1000000, .burst = 1000000};
    const uint32_t class = CLASS_DENIAL;
    w.bpf = net_unix_bpf__open();
    if (w.bpf == NULL)
        return errno;
    struct bpf_program *const programs[] = {w.bpf->progs.net_unix_connect,
                                            w.bpf->progs.net_unix_sendmsg};
    for (int i = 0; i < 2; i++)
        (void)bpf_program__set_expected_attach_type(programs[i],
                                                    (enum bpf_attach_type)(UNIX_CONNECT + i));
    w.bpf->rodata->sandbox_level = 2;
    int r = net_unix_bpf__load(w.bpf);
    if (r < 0)
        return -r;
    int fd = open(w.parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 2; i++)
        assert_int_equal(bpf_prog_attach(bpf_program__fd(programs[i]), fd,
                                         (enum bpf_attach_type)(UNIX_CONNECT + i),
                                         BPF_F_ALLOW_MULTI),
                         0);
    (void)close(fd);
    w.ring = ring_buffer__new(bpf_map__fd(w.bpf->maps.alerts), take, NULL, NULL);
    assert_non_null(w.ring);
    return bpf_map_update_elem(bpf_map__fd(w.bpf->maps.budget_rates), &class, &rate, BPF_ANY);
}

static bool
kernel_has_unix_hooks(void)
{
    struct utsname u;
    char *end = NULL;
    assert_int_equal(uname(&u), 0);
    unsigned long major = strtoul(u.release, &end, 10);
    return major > 6 || (major == 6 && strtoul(end + 1, NULL, 10) >= 7);
}

static void
remove_cgroups(void)
{
    (void)rmdir(w.box);
    (void)rmdir(w.parent);
}

static int
set_up(void **state)
{
    struct stat st;
    (void)state;
    (void)libbpf_set_print(NULL);
    const char *root = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0
                           ? "/sys/fs/cgroup/unified"
                           : "/sys/fs/cgroup";
    (void)snprintf(w.parent, sizeof w.parent, "%s/net-unix-%d", root, getpid());
    (void)snprintf(w.box, sizeof w.box, "%s/box", w.parent);
    if (geteuid() != 0 || mkdir(w.parent, 0755) < 0 || mkdir(w.box, 0755) < 0)
        skip_program("needs root and cgroup v2");
    int sys = load_programs();
    if (sys != 0) {
        remove_cgroups();
        (void)printf("%s: no hooks for unix sockets before Linux 6.7 (%s)\n",
                     kernel_has_unix_hooks() ? "failed" : "skipped", strerror(sys));
        exit(kernel_has_unix_hooks() ? 1 : 77);
    }
    (void)snprintf(w.folder, sizeof w.folder, "/tmp/stockade-unix-XXXXXX");
    if (stat(w.box, &st) < 0 || mkdtemp(w.folder) == NULL)
        return -1;
    w.id = st.st_ino;
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    ring_buffer__free(w.ring);
    net_unix_bpf__destroy(w.bpf);
    (void)rmdir(w.folder);
    return rmdir(w.box) | rmdir(w.parent);
}

static void
put_entry(bool there)
{
    const struct bpf_sandbox b = {.slot = SLOT, .generation = GENERATION, .mode = NET_NONE};
    int fd = bpf_map__fd(w.bpf->maps.sandboxes);
    if (there)
        assert_int_equal(bpf_map_update_elem(fd, &w.id, &b, BPF_ANY), 0);
    else
        (void)bpf_map_delete_elem(fd, &w.id);
}

static uint64_t
denied(void)
{
    struct net_counters n;
    const uint32_t slot = SLOT;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(w.bpf->maps.net_counters), &slot, &n), 0);
    return n.denied[NET_UNIX];
}

// A name; one that begins with '@' is abstract.
static socklen_t
name_of(const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(out->sun_path, sizeof out->sun_path, "%s", name);
    if (name[0] != '@')
        return sizeof *out;
    out->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

// An attempt of a process in the sandbox. 0, or an errno.
static int
attempt(int type, const char *name)
{
    struct sockaddr_un to;
    socklen_t n = name_of(name, &to);
    char procs[200];
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", w.box);
    pid_t child = fork();
    if (child == 0) {
        int at = open(procs, O_WRONLY | O_CLOEXEC);
        if (write(at, "0", 1) != 1)
            _exit(255);
        // a socket belongs to the cgroup in which it was made
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        long r = type == SOCK_DGRAM ? sendto(fd, "x", 1, 0, (const struct sockaddr *)&to, n)
                                    : connect(fd, (const struct sockaddr *)&to, n);
        _exit(r < 0 ? errno : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int
listener(int type, const char *name)
{
    struct sockaddr_un at;
    socklen_t n = name_of(name, &at);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, n), 0);
    assert_true(type == SOCK_DGRAM || listen(fd, 8) == 0);
    return fd;
}

static bool
was_reached(int fd, int type)
{
    char byte;
    int got = type == SOCK_DGRAM ? (int)recv(fd, &byte, 1, 0) : accept(fd, NULL, NULL);
    if (type != SOCK_DGRAM && got >= 0)
        (void)close(got);
    return got >= 0;
}

// Four sockets: of streams and of datagrams, abstract and in a folder.
struct four {
    int fd[4];
    char name[4][60];
};
static const int types[4] = {SOCK_STREAM, SOCK_DGRAM, SOCK_STREAM, SOCK_DGRAM};

static void
four_open(struct four *f)
{
    for (int i = 0; i < 4; i++) {
        const char *where = i < 2 ? "@stockade" : w.folder;
        (void)snprintf(f->name[i], sizeof f->name[i], "%.40s/%d", where, i);
        f->fd[i] = listener(types[i], f->name[i]);
    }
}

static void
four_close(const struct four *f)
{
    for (int i = 0; i < 4; i++) {
        (void)close(f->fd[i]);
        if (i >= 2)
            (void)unlink(f->name[i]);
    }
}

static void
without_an_entry_no_socket_is_reached(void **state)
{
    (void)state;
    struct four f;
    put_entry(false);
    four_open(&f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(attempt(types[i], f.name[i]), EPERM);
        assert_false(was_reached(f.fd[i], types[i]));
    }
    four_close(&f);
}

static void
a_name_below_usr_is_refused_counted_and_reported(void **state)
{
    (void)state;
    static const char *const names[] = {"/usr/lib/host.sock", "/usr", "/usr/x"};
    put_entry(true);
    (void)ring_buffer__consume(w.ring);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t before = denied();
            w.reported = 0;
            assert_int_equal(attempt(types[k], names[i]), EPERM);
            assert_int_equal(denied(), before + 1);
            assert_true(ring_buffer__consume(w.ring) >= 0);
            assert_int_equal(w.reported, 1);
            assert_int_equal(w.last.reason, NET_UNIX);
            assert_int_equal(w.last.hook, NET_HOOK_UNIX);
            assert_int_equal(w.last.family, AF_UNIX);
            assert_memory_equal(w.last.address, names[i], strnlen(names[i], 16));
        }
    }
}

static void
paths_that_only_look_like_usr_are_left_to_the_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"/usrx/a", "/us", "@/usr/x", "usr/x"};
    put_entry(true);
    uint64_t before = denied();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int sys = attempt(SOCK_STREAM, names[i]);
        assert_true(sys == ENOENT || sys == ECONNREFUSED);
    }
    assert_int_equal(denied(), before);
}

static void
with_an_entry_a_job_reaches_its_own_sockets(void **state)
{
    (void)state;
    struct four f;
    put_entry(true);
    four_open(&f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(attempt(types[i], f.name[i]), 0);
        assert_true(was_reached(f.fd[i], types[i]));
    }
    four_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_entry_no_socket_is_reached),
        cmocka_unit_test(a_name_below_usr_is_refused_counted_and_reported),
        cmocka_unit_test(paths_that_only_look_like_usr_are_left_to_the_kernel),
        cmocka_unit_test(with_an_entry_a_job_reaches_its_own_sockets),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
