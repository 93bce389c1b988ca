// SPDX-License-Identifier: Apache-2.0
// template push and load: templates as archives. A file gets its name when the whole archive is in it (draft.h).
#include "template_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "draft.h"
#include "interrupt.h"
#include "json.h"
#include "remote.h"

enum { ARENA_MAX = 2 * 1024 * 1024 };

static int
fail_here(const struct acting *a, const char *what, int sys)
{
    struct stockade_error e = {.code = STOCKADE_UNKNOWN, .sys = sys};
    (void)snprintf(e.text, sizeof e.text, "%.300s: %s", what, strerror(sys));
    return cli_fail(a->c, "", &e);
}

// ---- push

struct target {
    int fd;
    int failed; // errno
};

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    struct target *t = cookie;
    for (size_t done = 0; done < n;) {
        ssize_t w = write(t->fd, (const char *)bytes + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            t->failed = w < 0 ? errno : EIO;
            return 1;
        }
        done += (size_t)w;
    }
    return 0;
}

static int
push_to(const struct acting *a, int fd, const char *what)
{
    Stockade__V1__TemplateServicePushRequest m = STOCKADE__V1__TEMPLATE_SERVICE_PUSH_REQUEST__INIT;
    struct target t = {.fd = fd};
    const struct remote_sink sink = {.data = on_data, .cookie = &t};
    struct stockade_error e = {0};
    m.name = a->name;
    int rc = remote_push(a->s, &m, &sink, &e);
    if (t.failed == EPIPE && fd == STDOUT_FILENO)
        return EXIT_PIPE;
    if (t.failed != 0)
        return fail_here(a, what, t.failed);
    if (rc < 0 && interrupted != 0)
        return EXIT_SIGNAL + interrupted;
    return rc < 0 ? cli_fail(a->c, a->name, &e) : EXIT_OK;
}

int
template_archive_push(const struct acting *a)
{
    const char *file = a->o->args_n > 2 ? a->o->args[2] : "-";
    if (strcmp(file, "-") == 0)
        return isatty(STDOUT_FILENO) == 1
                   ? cli_usage(a->c, "an archive is not for a terminal", "name a file")
                   : push_to(a, STDOUT_FILENO, "stdout");
    struct draft d;
    int r = draft_begin(&d, file);
    if (r < 0)
        return fail_here(a, file, -r);
    pthread_t thread;
    const bool watched = interrupt_watch(a->s, &thread);
    int code = push_to(a, d.fd, file);
    if (watched)
        interrupt_stop(thread);
    if (code == EXIT_OK && (r = draft_keep(&d, true)) < 0)
        code = fail_here(a, file, -r);
    draft_end(&d);
    return code;
}

// ---- load

static int
load_from(const struct acting *a, int fd, const char *what)
{
    Stockade__V1__TemplateServiceLoadRequest m = STOCKADE__V1__TEMPLATE_SERVICE_LOAD_REQUEST__INIT;
    struct remote_source source = {.read = remote_read_fd, .cookie = &fd, .fd = fd};
    const struct remote_transfer transfer = {
        "/stockade.v1.TemplateService/Load", &m.base,
        &stockade__v1__template_service_load_response__descriptor};
    struct arena *auto_arena arena = arena_new(ARENA_MAX);
    ProtobufCMessage *answer = NULL;
    struct stockade_error e = {0};
    if (arena == NULL)
        return actions_no_memory(a);
    if (a->o->name != NULL)
        m.name = a->o->name;
    m.replace = a->o->replace;
    int rc = remote_send(a->s, &transfer, &source, arena, &answer, &e);
    if (source.failed != 0)
        return fail_here(a, what, source.failed);
    if (rc < 0)
        return cli_fail(a->c, "", &e);
    const Stockade__V1__SandboxTemplate *t =
        ((const Stockade__V1__TemplateServiceLoadResponse *)answer)->template_;
    if (t == NULL)
        return EXIT_OK;
    if (a->o->json)
        return json_put(json_pack("{ss ss}", "name", t->name, "digest", t->digest));
    (void)puts(t->name);
    return EXIT_OK;
}

int
template_archive_load(const struct acting *a)
{
    const char *file = a->o->args[1];
    if (strcmp(file, "-") == 0)
        return load_from(a, STDIN_FILENO, "stdin");
    int auto_close fd = open(file, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fail_here(a, file, errno) : load_from(a, fd, file);
}
