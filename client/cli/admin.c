// SPDX-License-Identifier: Apache-2.0
// admin: work of operators on the broker itself. backup; cert (cert.c); audit-key (audit_key.c); encryption (encryption.c).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "actions.h"
#include "audit_key.h"
#include "cert.h"
#include "commands.h"
#include "draft.h"
#include "encryption.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"

enum { MESSAGE_MAX = 256 * 1024 };

struct saving {
    int fd;
    int failed; // an errno
    uint64_t bytes;
};

static int
take(void *cookie, const void *bytes, size_t n)
{
    struct saving *w = cookie;
    struct err e;
    ProtobufCMessage *m = NULL;
    struct arena *auto_arena a = arena_new(MESSAGE_MAX);
    if (a == NULL ||
        wire_unpack(&stockade__v1__backup_response__descriptor, bytes, n, a, &m, &e) < 0) {
        w->failed = EPROTO;
        return 1;
    }
    const ProtobufCBinaryData *data = &((const Stockade__V1__BackupResponse *)m)->data;
    for (size_t at = 0; at < data->len;) {
        const ssize_t written = write(w->fd, data->data + at, data->len - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            w->failed = written < 0 ? errno : EIO;
            return 1;
        }
        at += (size_t)written;
    }
    w->bytes += data->len;
    return 0;
}

static int
failed(const struct acting *a, const char *what, int sys)
{
    (void)fprintf(stderr, "stockade %s: %s %s: %s\n", a->c->name, what, a->name, strerror(sys));
    return EXIT_PROBLEM;
}

static int
save(const struct acting *a, struct saving *w)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_error e;
    r.method = "/stockade.v1.AdminService/Backup";
    r.on_message = take;
    r.cookie = w;
    const int rc = stockade_call(a->s, &r, NULL, &e);
    if (w->failed != 0)
        return failed(a, "write", w->failed);
    return rc < 0 ? cli_fail(a->c, a->name, &e) : EXIT_OK;
}

static int
backup(const struct acting *a)
{
    struct draft d;
    int r = draft_begin(&d, a->name);
    if (r < 0)
        return failed(a, "create", -r);
    struct saving w = {.fd = d.fd};
    int code = save(a, &w);
    if (code == EXIT_OK && (r = draft_keep(&d, true)) < 0)
        code = failed(a, "create", -r);
    draft_end(&d);
    if (code == EXIT_OK)
        (void)fprintf(stderr,
                      "%s: %llu bytes. It holds secrets of the broker: keep it like a key.\n",
                      a->name, (unsigned long long)w.bytes);
    return code;
}

static const struct action all[] = {
    {"backup", 2, 2, "FILE", backup},
    {"cert", 2, 2, "FOLDER", cert_make},
    {"audit-key", 1, 3, "", audit_key_act},
    {"encryption", 2, 3, "status, rotate or forget TENANT", encryption_run},
    {0},
};

int
cli_admin(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint =
            "the actions are backup FILE, cert FOLDER, audit-key [show | rotate | export FILE], "
            "and encryption status, rotate or forget TENANT"};
    return actions_run(&actions, c, o);
}
