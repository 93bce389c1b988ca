// SPDX-License-Identifier: Apache-2.0
// admin audit-key: the public keys of the audit log: show, rotate, export FILE.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/audit.h"
#include "proto/auto.h"
#include "audit_key.h"
#include "cli.h"
#include "json.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"

#define METHOD(name) "/stockade.v1.AdminService/" name

enum { ANSWER_MAX = 64 * 1024 };

struct keys {
    Stockade__V1__AuditKey **all; // borrowed from the arena; oldest first
    size_t n;
};

static int
fail(const struct acting *a, const char *what, int sys)
{
    struct stockade_error e = {.code = STOCKADE_UNKNOWN};
    (void)snprintf(e.text, sizeof e.text, "%s: %s", what, strerror(sys));
    return cli_fail(a->c, "audit-key", &e);
}

static int
print(const struct acting *a, const struct keys *k)
{
    json_t *list = json_array();
    for (size_t i = 0; i < k->n; i++) {
        const bool signs = i + 1 == k->n;
        (void)json_array_append_new(list, json_pack("{ss ss sb}", "id", k->all[i]->id, "key",
                                                    k->all[i]->key, "signs", (int)signs));
        if (!a->o->json)
            (void)printf("%s%s%s\n", AUDIT_KEY_PREFIX, k->all[i]->key,
                         signs ? "  (signs now)" : "");
    }
    if (a->o->json)
        return json_put_list(list);
    json_decref(list);
    return EXIT_OK;
}

static int
show(const struct acting *a, struct arena *arena, struct keys *k)
{
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    const Stockade__V1__GetAuditKeyRequest request = STOCKADE__V1__GET_AUDIT_KEY_REQUEST__INIT;
    if (remote_call(a->s, METHOD("GetAuditKey"), &request.base,
                    &stockade__v1__get_audit_key_response__descriptor, arena, &m, &e) < 0)
        return cli_fail(a->c, "audit-key", &e);
    const Stockade__V1__GetAuditKeyResponse *got = (const Stockade__V1__GetAuditKeyResponse *)m;
    *k = (struct keys){got->keys, got->n_keys};
    return EXIT_OK;
}

static int
rotate(const struct acting *a, struct arena *arena, struct keys *k)
{
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    const Stockade__V1__RotateAuditKeyRequest request =
        STOCKADE__V1__ROTATE_AUDIT_KEY_REQUEST__INIT;
    if (remote_call(a->s, METHOD("RotateAuditKey"), &request.base,
                    &stockade__v1__rotate_audit_key_response__descriptor, arena, &m, &e) < 0)
        return cli_fail(a->c, "audit-key", &e);
    const Stockade__V1__RotateAuditKeyResponse *got =
        (const Stockade__V1__RotateAuditKeyResponse *)m;
    *k = (struct keys){got->keys, got->n_keys};
    return EXIT_OK;
}

// A file for --public-key. One that is there stays as it is.
static int export(const struct acting *a, const struct keys *k, const char *path)
{
    char text[AUDIT_KEYS_TEXT] = "";
    size_t n = 0;
    for (size_t i = 0; i < k->n && n < sizeof text; i++)
        n +=
            (size_t)snprintf(text + n, sizeof text - n, "%s%s\n", AUDIT_KEY_PREFIX, k->all[i]->key);
    int auto_close fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail(a, path, errno);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fsync(fd) < 0)
        return fail(a, path, errno != 0 ? errno : EIO);
    return EXIT_OK;
}

int
audit_key_act(const struct acting *a)
{
    const char *what = a->o->args_n > 1 ? a->o->args[1] : "show";
    const char *path = a->o->args_n > 2 ? a->o->args[2] : NULL;
    struct keys k = {0};
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return fail(a, "show the keys", ENOMEM);
    const bool rotates = strcmp(what, "rotate") == 0;
    const bool exports = strcmp(what, "export") == 0;
    if ((!rotates && !exports && strcmp(what, "show") != 0) || exports != (path != NULL))
        return cli_usage(a->c, "audit-key needs show, rotate, or export FILE", "");
    const int code = rotates ? rotate(a, arena, &k) : show(a, arena, &k);
    if (code != EXIT_OK)
        return code;
    return exports ? export(a, &k, path) : print(a, &k);
}
