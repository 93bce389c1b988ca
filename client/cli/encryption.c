// SPDX-License-Identifier: Apache-2.0
// admin encryption: what is encrypted at rest, another master key, and the end of a tenant's data key.
#include "encryption.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "actions.h"
#include "json.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"
#include "text.h"
#include "units.h"

#define METHOD(name) "/stockade.v1.AdminService/" name

enum { ANSWER_MAX = 1024 * 1024, KEY_BYTES = 32 };

static int64_t
ms_of(const Google__Protobuf__Timestamp *t)
{
    return t == NULL ? 0 : t->seconds * 1000 + t->nanos / 1000000;
}

static int
no_memory(const struct acting *a)
{
    (void)fprintf(stderr, "stockade %s: out of memory\n", a->c->name);
    return EXIT_PROBLEM;
}

// ---- status

struct status {
    struct table *table;
    json_t *keys, *object; // object: of the first page
    char page[33];
};

static void
add_key(struct status *st, const Stockade__V1__DataKey *k)
{
    char age[16], state[48] = "in use";
    if (k->forget_time != NULL)
        (void)snprintf(state, sizeof state, "forgotten %s ago",
                       units_show_age(now_wall_ms() - ms_of(k->forget_time), age, sizeof age));
    json_t *object = json_pack("{s:s, s:s, s:I}", "id", k->id, "tenant", k->tenant, "created_ms",
                               (json_int_t)ms_of(k->create_time));
    if (k->forget_time != NULL)
        (void)json_object_set_new(object, "forgotten_ms",
                                  json_integer((json_int_t)ms_of(k->forget_time)));
    (void)json_array_append_new(st->keys, object);
    (void)table_row(
        st->table,
        (const char *[]){k->tenant, k->id, state,
                         units_show_age(now_wall_ms() - ms_of(k->create_time), age, sizeof age)});
}

static json_t *
json_of(const Stockade__V1__GetEncryptionResponse *m)
{
    return json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I}", "enabled", (int)m->enabled, "source",
                     m->source, "encrypted_layers", (json_int_t)m->encrypted_layers, "plain_layers",
                     (json_int_t)m->plain_layers, "encrypted_records",
                     (json_int_t)m->encrypted_records, "plain_records",
                     (json_int_t)m->plain_records, "unreadable_records",
                     (json_int_t)m->unreadable_records);
}

static void
print_head(const Stockade__V1__GetEncryptionResponse *m)
{
    (void)printf("encryption    %s%s%s\n", m->enabled ? "on" : "off", m->enabled ? ": " : "",
                 m->source);
    (void)printf("layers        %" PRIu32 " encrypted, %" PRIu32 " plain\n", m->encrypted_layers,
                 m->plain_layers);
    (void)printf("records       %" PRIu32 " encrypted, %" PRIu32 " plain, %" PRIu32
                 " unreadable (their data key was forgotten)\n",
                 m->encrypted_records, m->plain_records, m->unreadable_records);
}

static int
status_page(const struct acting *a, struct status *st)
{
    struct stockade_error e;
    ProtobufCMessage *answer = NULL;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__GetEncryptionRequest m = STOCKADE__V1__GET_ENCRYPTION_REQUEST__INIT;
    if (arena == NULL)
        return no_memory(a);
    m.page_token = st->page;
    if (remote_call(a->s, METHOD("GetEncryption"), &m.base,
                    &stockade__v1__get_encryption_response__descriptor, arena, &answer, &e) < 0)
        return cli_fail(a->c, "encryption", &e);
    const Stockade__V1__GetEncryptionResponse *all =
        (const Stockade__V1__GetEncryptionResponse *)answer;
    if (st->object == NULL) {
        st->object = json_of(all);
        if (!a->o->json)
            print_head(all);
    }
    for (size_t i = 0; i < all->n_keys; i++)
        add_key(st, all->keys[i]);
    (void)snprintf(st->page, sizeof st->page, "%s", all->next_page_token);
    return EXIT_OK;
}

static int
status(const struct acting *a)
{
    static const char *const head[] = {"TENANT", "DATA KEY", "STATE", "AGE"};
    struct status st = {.table = table_new(head, 4), .keys = json_array()};
    int code = st.table == NULL || st.keys == NULL ? no_memory(a) : EXIT_OK;
    do
        code = code == EXIT_OK ? status_page(a, &st) : code;
    while (code == EXIT_OK && st.page[0] != '\0');
    if (code == EXIT_OK && a->o->json) {
        (void)json_object_set(st.object, "keys", st.keys);
        code = json_put(json_incref(st.object));
    } else if (code == EXIT_OK && json_array_size(st.keys) > 0) {
        table_print(st.table, stdout);
    }
    json_decref(st.object);
    json_decref(st.keys);
    table_free(st.table);
    return code;
}

// ---- rotate, forget

static int
read_key(const struct acting *a, uint8_t key[KEY_BYTES])
{
    struct stat st;
    const char *path = a->o->new_key, *why = NULL;
    int auto_close fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        why = strerror(errno);
    else if (!S_ISREG(st.st_mode) || st.st_size != KEY_BYTES)
        why = "it is not a file of 32 bytes; make one with: (umask 077; head -c 32 /dev/urandom > "
              "FILE)";
    else if ((st.st_mode & 077) != 0)
        why = "others can read it: chmod 0400";
    else if (pread(fd, key, KEY_BYTES, 0) != KEY_BYTES)
        why = "it cannot be read";
    if (why == NULL)
        return EXIT_OK;
    (void)fprintf(stderr, "stockade %s: %s: %s\n", a->c->name, path, why);
    return EXIT_PROBLEM;
}

static int
rotate(const struct acting *a)
{
    struct stockade_error e;
    uint8_t key[KEY_BYTES];
    Stockade__V1__RotateMasterKeyRequest m = STOCKADE__V1__ROTATE_MASTER_KEY_REQUEST__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    int code = arena == NULL ? no_memory(a) : read_key(a, key);
    if (code != EXIT_OK)
        return code;
    m.key = (ProtobufCBinaryData){.data = key, .len = sizeof key};
    int r = remote_call(a->s, METHOD("RotateMasterKey"), &m.base,
                        &stockade__v1__rotate_master_key_response__descriptor, arena, NULL, &e);
    sodium_memzero(key, sizeof key);
    if (r < 0)
        return cli_fail(a->c, "encryption", &e);
    (void)fprintf(
        stderr, "The broker uses this key from now on. Put it in the place that the configuration "
                "names (encryption) before the next start, and destroy the old one.\n");
    return EXIT_OK;
}

static int
forget(const struct acting *a)
{
    struct stockade_error e;
    Stockade__V1__ForgetDataKeyRequest m = STOCKADE__V1__FORGET_DATA_KEY_REQUEST__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return no_memory(a);
    m.tenant = a->o->args[2];
    return remote_call(a->s, METHOD("ForgetDataKey"), &m.base,
                       &stockade__v1__forget_data_key_response__descriptor, arena, NULL, &e) < 0
               ? cli_fail(a->c, m.tenant, &e)
               : EXIT_OK;
}

int
encryption_run(const struct acting *a)
{
    const char *what = a->o->args[1];
    const bool named = a->o->args_n == 3;
    if (strcmp(what, "status") == 0 && !named)
        return status(a);
    if (strcmp(what, "rotate") == 0 && !named)
        return a->o->new_key != NULL ? rotate(a)
                                     : cli_usage(a->c, "rotate needs --new-key FILE", "");
    if (strcmp(what, "forget") == 0 && named)
        return a->o->yes ? forget(a)
                         : cli_usage(a->c,
                                     "forget destroys the data key of the tenant: nobody can read "
                                     "what it has kept any more; confirm with --yes",
                                     "");
    return cli_usage(a->c, "the actions of encryption are status, rotate and forget TENANT", "");
}
