// SPDX-License-Identifier: Apache-2.0
// See watch_job.h.
#include "tests/harness/watch_job.h"

struct rig rig;

struct ring_buffer *rings;

struct seen seen[EVENTS];

size_t seen_n;

static int
take(void *context, void *data, size_t size)
{
    (void)context;
    if (seen_n < EVENTS) {
        const struct event *e = data;
        assert_int_equal(size, sizeof *e + e->size);
        assert_true(e->size <= sizeof seen[0].body);
        memcpy(&seen[seen_n].head, e, sizeof *e);
        memcpy(seen[seen_n++].body, e + 1, e->size);
    }
    return 0;
}

void
drain(void)
{
    seen_n = 0;
    assert_true(ring_buffer__consume(rings) >= 0);
}

uint64_t
now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const struct seen *
event(unsigned kind, const struct rig_cgroup *c, size_t n)
{
    for (size_t i = 0; i < seen_n; i++) {
        if (seen[i].head.kind == kind && seen[i].head.cgroup == c->id && n-- == 0)
            return &seen[i];
    }
    return NULL;
}

size_t
count_events(unsigned kind, const struct rig_cgroup *c)
{
    size_t n = 0;
    while (event(kind, c, n))
        n++;
    return n;
}

struct job
new_job(const char *name, uint32_t watch)
{
    static uint32_t slot = 100;
    struct job j = {.entry = {.slot = slot++, .generation = 7, .template = 3, .watch = watch}};
    j.sandbox = rig_box(&rig, name, j.entry);
    j.job = rig_cgroup(&rig, j.sandbox->path, "job-1");
    return j;
}

int
set_up(void **state)
{
    (void)state;
    (void)signal(SIGURG, SIG_IGN);
    rig_start(&rig);
    rig_attach(&rig);
    rig_calls(&rig, true);
    rings = ring_buffer__new(bpf_map__fd(rig.bpf->maps.alerts), take, NULL, NULL);
    assert_non_null(rings);
    assert_int_equal(ring_buffer__add(rings, bpf_map__fd(rig.bpf->maps.events), take, NULL), 0);
    return 0;
}

int
tear_down(void **state)
{
    (void)state;
    ring_buffer__free(rings);
    rig_stop(&rig);
    return 0;
}

int
nothing(void *arg)
{
    (void)arg;
    (void)syscall(SYS_getppid);
    return 0;
}

int
execute(void *arg)
{
    const struct exec *x = arg;
    static const char *const none[] = {NULL};
    (void)syscall(SYS_execveat, x->fd >= 0 ? x->fd : AT_FDCWD, x->fd >= 0 ? "" : x->path, x->argv,
                  none, x->fd >= 0 ? AT_EMPTY_PATH : 0);
    return 99;
}

struct watch_exe_key
key_of(const char *path, uint32_t template)
{
    struct stat s;
    struct statfs f;
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(statfs(path, &f), 0);
    return (struct watch_exe_key){.inode = s.st_ino,
                                  .size = (uint64_t)s.st_size,
                                  .magic = (uint64_t)f.f_type,
                                  .template = template,
                                  .owner = s.st_uid};
}

int
copy_of_true(bool memfd)
{
    char name[] = "/tmp/stockade-watch-XXXXXX";
    int in = open("/usr/bin/true", O_RDONLY | O_CLOEXEC);
    int out = memfd ? memfd_create("x", MFD_CLOEXEC) : mkostemp(name, O_CLOEXEC);
    assert_true(in >= 0 && out >= 0);
    char bytes[4096];
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(out, bytes, (size_t)n), n);
    (void)close(in);
    if (memfd)
        return out;
    assert_int_equal(fchmod(out, 0755), 0);
    int again = open(name, O_RDONLY | O_CLOEXEC);
    (void)unlink(name);
    (void)close(out); // an executed file must not be open for writing
    return again;
}
