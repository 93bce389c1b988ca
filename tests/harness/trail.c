// SPDX-License-Identifier: Apache-2.0
// See trail.h.
#include "trail.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/auto.h"
#include "tests/harness/wait.h"

char trail_folder[64];
uv_loop_t trail_loop;
static uv_prepare_t alive; // a loop without a handle that counts does not look at the others

static void
on_prepare(uv_prepare_t *unused)
{
    (void)unused;
}

int
trail_set_up(void **unused)
{
    (void)unused;
    (void)snprintf(trail_folder, sizeof trail_folder, "/tmp/stockade-audit-XXXXXX");
    if (mkdtemp(trail_folder) == NULL || uv_loop_init(&trail_loop) != 0)
        return -1;
    return uv_prepare_init(&trail_loop, &alive) == 0 ? uv_prepare_start(&alive, on_prepare) : -1;
}

int
trail_tear_down(void **unused)
{
    char command[128];
    (void)unused;
    uv_close((uv_handle_t *)&alive, NULL);
    (void)uv_run(&trail_loop, UV_RUN_DEFAULT);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", trail_folder);
    // NOLINTNEXTLINE(cert-env33-c): a folder of this test
    return uv_loop_close(&trail_loop) == 0 && system(command) == 0 ? 0 : -1;
}

struct audit_settings
trail_settings(void)
{
    struct audit_settings s;
    audit_settings_default(&s);
    s.records = 16;
    s.sync = AUDIT_SYNC_INTERVAL;
    return s;
}

struct audit *
trail_open(const struct audit_settings *s)
{
    struct audit *a = NULL;
    struct err e = {0};
    if (audit_open(s, trail_folder, "", &a, &e) < 0 || audit_start(a, &trail_loop, &e) < 0)
        fail_msg("%s", e.text);
    return a;
}

void
trail_call(struct audit *a, const char *method)
{
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditCall c = STOCKADE__V1__AUDIT_CALL__INIT;
    c.call = audit_number(a);
    c.phase = STOCKADE__V1__AUDIT_PHASE__AUDIT_PHASE_BEGAN;
    c.method = method;
    c.tenant = "uid:7";
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CALL;
    m.call = &c;
    audit_write(a, &m, false);
}

struct waiter {
    struct audit_wait wait;
    bool done;
    struct err e;
};

static void
on_done(struct audit_wait *wait, const struct err *e)
{
    struct waiter *w = (struct waiter *)wait;
    w->done = true;
    w->e = e != NULL ? *e : (struct err){0};
}

// Whether what was written is stored.
struct err
trail_wait(struct audit *a)
{
    struct waiter w = {.wait = {.done = on_done}};
    assert_true(audit_wait(a, &w.wait));
    wait_within("the record is stored", WAIT_MS, w.done)(void) uv_run(&trail_loop, UV_RUN_NOWAIT);
    return w.e;
}

// ---- checking what is in the folder

static void
on_problem(void *cookie, const struct audit_problem *p)
{
    struct trail_seen *s = cookie;
    s->problems[p->kind]++;
    (void)snprintf(s->text, sizeof s->text, "%s", p->text);
}

void
trail_key(uint8_t key[AUDIT_KEY])
{
    char path[128], text[AUDIT_KEYS_TEXT] = "";
    uint8_t keys[AUDIT_KEYS_MAX][AUDIT_KEY];
    (void)snprintf(path, sizeof path, "%s/audit.pub", trail_folder);
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    assert_true(audit_keys_read(text, keys) > 0);
    memcpy(key, keys[0], AUDIT_KEY);
}

struct audit_verified
trail_verify(struct trail_seen *seen)
{
    uint8_t key[AUDIT_KEY];
    struct err e;
    struct audit_verify *v = NULL;
    trail_key(key);
    *seen = (struct trail_seen){.text = ""};
    assert_int_equal(audit_verify_new(&key, 1, on_problem, seen, &v, &e), 0);
    for (unsigned i = 1; i < 20000; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/audit-%08u.log", trail_folder, i);
        int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            assert_int_equal(audit_verify_file(v, fd, strrchr(path, '/') + 1, &e), 0);
    }
    const struct audit_verified out = audit_verify_end(v);
    audit_verify_free(v);
    return out;
}

unsigned
trail_problems(const struct trail_seen *s)
{
    unsigned n = 0;
    for (size_t i = 0; i < AUDIT_PROBLEMS; i++)
        n += s->problems[i];
    return n;
}

const char *
trail_path(unsigned number)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/audit-%08u.log", trail_folder, number);
    return path;
}

// Offset and length of frame number `index` of the first file.
struct audit_frame
trail_frame(const uint8_t *bytes, size_t n, unsigned index, size_t *offset)
{
    struct audit_frame f = {.bytes = 0};
    *offset = 0;
    for (;; *offset += f.bytes) {
        if (audit_frame_read(bytes + *offset, n - *offset, &f) != 1)
            fail();
        if (index-- == 0)
            return f;
    }
}

uint8_t *
trail_read(const char *path, size_t *n)
{
    struct stat st;
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        st.st_size = 0;
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    *n = (size_t)st.st_size;
    return bytes;
}

void
trail_write(const char *path, const uint8_t *bytes, size_t n)
{
    int auto_close fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
}

void
trail_make(unsigned calls)
{
    const struct audit_settings s = trail_settings();
    struct audit *a = trail_open(&s);
    for (unsigned i = 0; i < calls; i++)
        trail_call(a, "/stockade.v1.SandboxService/Create");
    audit_close(a, 0);
}
