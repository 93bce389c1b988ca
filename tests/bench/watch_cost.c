// SPDX-License-Identifier: Apache-2.0
// The cost of telemetry. The variants alternate within one run: nothing attached, an empty program at the same
// tracepoint, ours (inside a sandbox, with a profile, and outside), and the usual hash by cgroup and number.
//
//   bench-watch_cost [calls|files|work|events]...     as root; default: all
//
//   calls    a loop of getppid: the lowest time of the thread in all rounds, because other processes run, too
//   files    the same with calls that name a file: existing, missing, by a relative path
//   work     python, gcc, tar, find inside a sandbox: processor time, the lowest of the rounds; and strace -f -c
//   events   as many as one job can cause, drained every 10 ms by another process: received, lost, and their cost
//
// Rows are {"bench":"watch calls","row",...,"p50_us"}: p50_us and p99_us describe the rounds, `least_us` is the
// figure.
#include "bench.h"

#include <time.h>

#include "tests/harness/watch_rig.h"
#include "server/anomaly/sensitive.h"
#include "watch_peers.skel.h"

enum {
    ROUNDS = 20,
    CALLS = 100000,
    WORK_ROUNDS = 7,
    STRACE_ROUNDS = 3,
    DRAINS = 100,
    ROWS = 8,
    TRACED_CALLS = 10000
};

static struct rig rig;
static struct watch_peers_bpf *peers;
static const struct rig_cgroup *plain, *judged;

enum attached { NOTHING, EMPTY, OURS, HASH };

static struct bpf_link *
attach(enum attached what)
{
    if (what == NOTHING)
        return NULL;
    struct bpf_program *program = what == EMPTY  ? peers->progs.peer_empty
                                  : what == HASH ? peers->progs.peer_hash
                                                 : rig.bpf->progs.watch_sys_exit;
    struct bpf_link *link = bpf_program__attach(program);
    if (!link)
        bench_die("attach");
    return link;
}

// The call in a loop: getppid, or one about a file.
enum call { NO_FILE, OPEN_THERE, OPEN_MISSING, STAT_THERE, STAT_BELOW, FILE_CALLS };

static void
call_once(enum call what)
{
    struct stat s;
    if (what == NO_FILE)
        (void)syscall(SYS_getppid);
    else if (what == OPEN_THERE)
        (void)syscall(SYS_close,
                      syscall(SYS_openat, AT_FDCWD, "/usr/include/linux/stat.h", O_RDONLY));
    else if (what == OPEN_MISSING)
        (void)syscall(SYS_openat, AT_FDCWD, "/usr/lib/python3/dist-packages/x.py", O_RDONLY);
    else if (what == STAT_THERE)
        (void)syscall(SYS_newfstatat, AT_FDCWD, "/usr/include/linux/stat.h", &s, 0);
    else
        (void)syscall(SYS_newfstatat, AT_FDCWD, "stat.h", &s, 0);
}

struct loop {
    enum call what;
    int calls;
    double *us; // shared with the child
};

// Microseconds of this thread per call.
static int
loop_run(void *arg)
{
    const struct loop *l = arg;
    struct timespec from, to;
    if (l->what == STAT_BELOW && chdir("/usr/include/linux") < 0)
        return 1;
    for (int i = 0; i < l->calls / 10; i++)
        call_once(l->what);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < l->calls; i++)
        call_once(l->what);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    *l->us = ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) /
             l->calls;
    return 0;
}

static double *
shared_double(void)
{
    double *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        bench_die("mmap");
    return at;
}

static double
loop_in(const struct rig_cgroup *c, enum call what, int calls)
{
    static double *us;
    if (!us)
        us = shared_double();
    struct loop l = {what, calls, us};
    if (rig_run(c, loop_run, &l) != 0)
        bench_die("a loop failed");
    return *us;
}

static double
least(const struct samples *s)
{
    double min = s->us[0];
    for (size_t i = 1; i < s->n; i++)
        min = s->us[i] < min ? s->us[i] : min;
    return min;
}

// Prints the lowest; `base` is the row that it is compared with.
static void
print_least(struct samples *s, const char *bench, double base, const char *more)
{
    char text[200];
    double min = least(s);
    (void)snprintf(text, sizeof text, ",\"least_us\":%.4f,\"ratio\":%.3f,\"over_ns\":%.1f%s", min,
                   min / base, (min - base) * 1e3, more);
    samples_print(s, bench, text);
}

static void
measure_calls(void)
{
    const struct rig_cgroup *outside = &rig.cgroups[0];
    const struct rig_cgroup *deep = rig_cgroup(
        &rig, rig_cgroup(&rig, rig_cgroup(&rig, outside->path, "a")->path, "b")->path, "c");
    const struct {
        const char *row;
        enum attached what;
        const struct rig_cgroup *where;
    } rows[ROWS] = {
        {"nothing", NOTHING, plain},
        {"empty program", EMPTY, plain},
        {"ours", OURS, plain},
        {"ours, with a profile", OURS, judged},
        {"ours, outside", OURS, outside},
        {"ours, outside, as deep", OURS, deep},
        {"hash {cgroup,nr}", HASH, plain},
        {"hash {cgroup,nr}, outside", HASH, outside},
    };
    struct samples s[ROWS] = {{0}};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ROWS; i++) {
            struct bpf_link *link = attach(rows[i].what);
            s[i].row = rows[i].row;
            samples_add(&s[i], loop_in(rows[i].where, NO_FILE, CALLS));
            (void)bpf_link__destroy(link);
        }
    }
    if (rig.profile_states[1].trigrams < CALLS || rig.profile_states[1].unseen)
        bench_die("the profile was not in force");
    double none = least(&s[0]), empty = least(&s[1]);
    for (int i = 0; i < ROWS; i++) {
        char more[80];
        (void)snprintf(more, sizeof more, ",\"over_empty_ns\":%.1f", (least(&s[i]) - empty) * 1e3);
        print_least(&s[i], "watch calls", none, more);
    }
}

static void
measure_files(void)
{
    static const char *const names[FILE_CALLS] = {
        [OPEN_THERE] = "open and close",
        [OPEN_MISSING] = "open, missing",
        [STAT_THERE] = "stat",
        [STAT_BELOW] = "stat, relative",
    };
    static const enum attached kinds[] = {NOTHING, EMPTY, OURS};
    static const char *const suffix[] = {"", ", empty program", ", ours"};
    struct samples s[FILE_CALLS][3] = {{{0}}};
    char rows[FILE_CALLS][3][80];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = OPEN_THERE; i < FILE_CALLS; i++) {
            for (int k = 0; k < 3; k++) {
                struct bpf_link *link = attach(kinds[k]);
                (void)snprintf(rows[i][k], sizeof rows[i][k], "%s%s", names[i], suffix[k]);
                s[i][k].row = rows[i][k];
                samples_add(&s[i][k], loop_in(plain, (enum call)i, CALLS / 10));
                (void)bpf_link__destroy(link);
            }
        }
    }
    for (int i = OPEN_THERE; i < FILE_CALLS; i++) {
        double none = least(&s[i][0]);
        for (int k = 0; k < 3; k++)
            print_least(&s[i][k], "watch files", none, "");
    }
}

enum { ARGS = 12 };

struct work {
    const char *row;
    const char *argv[ARGS];
};

static int
work_run(void *arg)
{
    const struct work *w = arg;
    int null = open("/dev/null", O_RDWR);
    (void)dup2(null, 1);
    (void)dup2(null, 2);
    (void)execv(w->argv[0], (char *const *)(uintptr_t)w->argv);
    return 127;
}

// Processor time of the process and its children, in microseconds.
static double
work_us(const struct work *w)
{
    struct rusage u;
    int status = 0;
    pid_t pid = rig_spawn(plain, work_run, (void *)(uintptr_t)w);
    if (wait4(pid, &status, 0, &u) != pid || status != 0)
        bench_die("%s failed", w->row);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static const struct work works[] = {
    {"python3 -c pass", {"/usr/bin/python3", "-S", "-c", "pass"}},
    {"gcc -c", {"/usr/bin/gcc", "-O1", "-xc", "-c", "/usr/include/stdlib.h", "-o", "/dev/null"}},
    {"tar", {"/bin/tar", "cf", "/dev/zero", "/usr/include"}},
    {"find", {"/usr/bin/find", "/usr/share", "-size", "+1G"}},
};

static void
measure_work(void)
{
    enum { N = sizeof works / sizeof works[0] };
    static const enum attached kinds[] = {NOTHING, OURS, HASH};
    static const char *const suffix[] = {"", ", ours", ", hash {cgroup,nr}"};
    struct samples s[N][3] = {{{0}}};
    char names[N][3][80];
    for (int round = 0; round < WORK_ROUNDS; round++) {
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < 3; k++) {
                struct bpf_link *link = attach(kinds[k]);
                (void)snprintf(names[i][k], sizeof names[i][k], "%s%s", works[i].row, suffix[k]);
                s[i][k].row = names[i][k];
                samples_add(&s[i][k], work_us(&works[i]));
                (void)bpf_link__destroy(link);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        double base = least(&s[i][0]);
        for (int k = 0; k < 3; k++)
            print_least(&s[i][k], "watch work", base, "");
    }
}

// The same under strace -f -c, and a loop of calls: wall-clock time, because the tracer's work is part of it.
static void
measure_strace(void)
{
    enum { N = sizeof works / sizeof works[0] + 1 };
    struct samples s[N][2] = {{{0}}};
    char names[N][2][80];
    char self[300] = {0};
    struct work all[N][2] = {{{0}}};
    if (access("/usr/bin/strace", X_OK) != 0) {
        (void)fprintf(stderr, "strace is not installed: left out\n");
        return;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        bench_die("readlink");
    for (int i = 0; i < N; i++) {
        all[i][0] = i < N - 1 ? works[i] : (struct work){"a loop", {self, "--loop"}};
        all[i][1] = (struct work){all[i][0].row, {"/usr/bin/strace", "-f", "-c"}};
        for (int k = 0; k + 3 < ARGS && all[i][0].argv[k]; k++)
            all[i][1].argv[k + 3] = all[i][0].argv[k];
    }
    for (int round = 0; round < STRACE_ROUNDS; round++) {
        for (int i = 0; i < 2 * N; i++) {
            struct samples *to = &s[i / 2][i % 2];
            char *name = names[i / 2][i % 2];
            (void)snprintf(name, sizeof names[0][0], "%s, %s", all[i / 2][0].row,
                           i % 2 ? "strace -f -c" : "wall");
            to->row = name;
            double from = bench_now();
            (void)work_us(&all[i / 2][i % 2]);
            samples_add(to, bench_now() - from);
        }
    }
    for (int i = 0; i < N; i++) {
        double base = least(&s[i][0]);
        print_least(&s[i][0], "watch work", base, "");
        print_least(&s[i][1], "watch work", base, "");
    }
}

// ---- events

struct flood {
    bool signals;
    volatile bool *stop; // shared with the child
    uint64_t *made;
};

static int
flood_run(void *arg)
{
    const struct flood *f = arg;
    pid_t parent = (pid_t)syscall(SYS_getppid);
    uint64_t n = 0;
    for (; !*f->stop; n++) {
        if (f->signals)
            (void)syscall(SYS_kill, parent, SIGURG); // ignored there
        else
            (void)syscall(SYS_ptrace, 99999, 0, 0, 0);
    }
    *f->made = n;
    return 0;
}

struct taken {
    uint32_t class; // other classes are not measured: the end of the flood is reported as well
    uint64_t n;
};

static int
take_event(void *context, void *data, size_t size)
{
    struct taken *t = context;
    t->n += size >= sizeof(struct event) && ((const struct event *)data)->class == t->class;
    return 0;
}

static double
own_cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void
measure_events_of(const char *row, struct bpf_map *map, uint32_t class, bool signals)
{
    struct taken taken = {.class = class};
    double drain_us = 0;
    uint64_t lost = rig_lost(&rig, 1, class);
    struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(map), take_event, &taken, NULL);
    uint64_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!ring || shared == MAP_FAILED)
        bench_die("ring");
    struct flood f = {signals, (volatile bool *)shared, shared + 1};
    (void)ring_buffer__consume(ring);
    taken.n = 0;
    double from = bench_now();
    pid_t pid = rig_spawn(plain, flood_run, &f);
    struct samples s = {.row = row};
    for (int i = 0; i < DRAINS; i++) {
        bench_sleep_us(from + (i + 1) * 1e4 - bench_now());
        double cpu = own_cpu_us();
        (void)ring_buffer__consume(ring);
        samples_add(&s, own_cpu_us() - cpu);
        drain_us += own_cpu_us() - cpu;
    }
    *f.stop = true;
    (void)rig_wait(pid);
    (void)ring_buffer__consume(ring);
    double seconds = (bench_now() - from) / 1e6;
    lost = rig_lost(&rig, 1, class) - lost;
    char more[200];
    (void)snprintf(more, sizeof more,
                   ",\"per_second\":%.0f,\"made\":%llu,\"lost\":%llu,\"missing\":%lld,"
                   "\"drain_ns_each\":%.1f",
                   (double)taken.n / seconds, (unsigned long long)*f.made, (unsigned long long)lost,
                   (long long)(*f.made - taken.n - lost), drain_us * 1e3 / (double)(taken.n + 1));
    samples_print(&s, "watch events", more);
    ring_buffer__free(ring);
    (void)munmap(shared, 4096);
}

static void
measure_events(void)
{
    (void)signal(SIGURG, SIG_IGN);
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        rig_budget(&rig, class, 1000000000, 1000000000);
    rig_attach(&rig);
    rig_calls(&rig, true);
    measure_events_of("signals, 4 MiB ring", rig.bpf->maps.events, CLASS_SIGNAL, true);
    measure_events_of("dangerous calls, 1 MiB ring", rig.bpf->maps.alerts, CLASS_SYSCALL, false);
    rig_calls(&rig, false);
}

// Adds the loop's own calls to the profile: the worst case, because every call is looked up and none is new.
static void
profile_all(void)
{
    struct stat s;
    struct statfs f;
    uint32_t profile = 1;
    if (stat("/proc/self/exe", &s) != 0 || statfs("/proc/self/exe", &f) != 0)
        bench_die("stat");
    struct watch_exe_key key = {.inode = s.st_ino,
                                .size = (uint64_t)s.st_size,
                                .magic = (uint64_t)f.f_type,
                                .template = 1,
                                .owner = s.st_uid};
    struct watch_exe exe = {.profile = profile};
    rig_put(rig.bpf->maps.exes, &key, &exe);
    memset(&rig.profiles[profile], 0xff, sizeof rig.profiles[profile]);
    rig.profile_states[profile].mode = WATCH_PROFILE_JUDGE;
    rig.profile_states[profile].threshold = 10;
}

int
main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        {"calls", measure_calls}, {"files", measure_files},   {"work", measure_work},
        {"work", measure_strace}, {"events", measure_events},
    };
    if (argc == 2 && strcmp(argv[1], "--loop") == 0) { // for strace
        for (int i = 0; i < TRACED_CALLS; i++)
            (void)syscall(SYS_getppid);
        return 0;
    }
    rig_start(&rig);
    peers = watch_peers_bpf__open_and_load();
    if (!peers)
        bench_die("load watch_peers.bpf.o");
    struct bpf_sandbox entry = {.slot = 1, .generation = 1, .template = 1, .watch = WATCH_EVENTS};
    plain = rig_cgroup(&rig, rig_box(&rig, "plain", entry)->path, "job-1");
    entry = (struct bpf_sandbox){
        .slot = 2, .generation = 1, .template = 1, .watch = WATCH_EVENTS | WATCH_PROFILE};
    judged = rig_cgroup(&rig, rig_box(&rig, "judged", entry)->path, "job-1");
    profile_all();
    static struct sensitive_table table;
    static const struct sensitive_config none;
    if (anomaly_sensitive_fill(&table, &none) != 0 ||
        anomaly_sensitive_write(&table, bpf_map__fd(rig.bpf->maps.sensitive),
                                bpf_map__fd(rig.bpf->maps.sensitive_hints)) != 0)
        bench_die("write the sensitive paths");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++)
            wanted = wanted || strcmp(argv[k], parts[i].name) == 0;
        if (wanted)
            parts[i].run();
    }
    watch_peers_bpf__destroy(peers);
    rig_stop(&rig);
    return 0;
}
