// SPDX-License-Identifier: Apache-2.0
// See requests.h.
#include "requests.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "proto/quantity.h"
#include "proto/wire.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"

static int
too_large(struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "the request is larger than %d bytes",
                   REQUEST_ARENA_BYTES);
}

int
request_options(void *to, size_t to_n, const void *from, struct err *e)
{
    size_t n = 0;
    if (from == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "there are no options");
    memcpy(&n, from, sizeof n); // `size` comes first in each
    if (n < sizeof n)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the options' size is not set: begin with the *_INIT macro");
    memset(to, 0, to_n);
    memcpy(to, from, n < to_n ? n : to_n);
    return 0;
}

int
request_list(const void *list, size_t n, const char *field, struct err *e)
{
    if (list == NULL && n > 0)
        return err_field(e, field, "%zu elements were given, but the array is NULL", n);
    return n > REQUEST_ARENA_BYTES ? too_large(e) : 0;
}

static int
fill_env(Stockade__V1__Command *m, struct arena *a, const struct stockade_command *from,
         struct err *e)
{
    if (from->env_n == 0)
        return 0;
    int rc = request_list(from->env, from->env_n, "command.env", e);
    if (rc < 0)
        return rc;
    m->env = arena_alloc(a, from->env_n * sizeof(Stockade__V1__EnvironmentVariable *));
    for (size_t i = 0; m->env != NULL && i < from->env_n; i++) {
        Stockade__V1__EnvironmentVariable *v = arena_alloc(a, sizeof *v);
        if (v == NULL)
            return too_large(e);
        stockade__v1__environment_variable__init(v);
        v->name = from->env[i].name;
        v->value = from->env[i].value;
        m->env[i] = v;
    }
    m->n_env = from->env_n;
    return m->env == NULL ? too_large(e) : 0;
}

static int
fill_terminal(Stockade__V1__Command *m, struct arena *a, const struct stockade_command *from,
              struct err *e)
{
    if (from->rows == 0 || from->columns == 0)
        return 0;
    Stockade__V1__TerminalSize *size = wire_make(a, &stockade__v1__terminal_size__descriptor);
    if (size == NULL)
        return too_large(e);
    size->rows = from->rows;
    size->columns = from->columns;
    m->terminal = size;
    return 0;
}

int
request_command(Stockade__V1__Command **out, struct arena *a, const struct stockade_command *from,
                struct err *e)
{
    Stockade__V1__Command *m = wire_make(a, &stockade__v1__command__descriptor);
    if (m == NULL)
        return too_large(e);
    if (from->args == NULL || from->args[0] == NULL)
        return err_field(e, "command.args", "no program was given");
    while (from->args[m->n_args] != NULL)
        m->n_args++;
    m->args = arena_alloc(a, m->n_args * sizeof(const char *));
    if (m->args == NULL)
        return too_large(e);
    for (size_t i = 0; i < m->n_args; i++)
        m->args[i] = from->args[i];
    if (from->workdir != NULL)
        m->workdir = from->workdir;
    m->stdin = wire_bytes(from->stdin_bytes, from->stdin_n);
    m->stdin_open = from->stdin_open;
    int rc = request_list(from->stdin_bytes, from->stdin_n, "command.stdin", e);
    if (rc == 0)
        rc = fill_env(m, a, from, e);
    if (rc == 0)
        rc = fill_terminal(m, a, from, e);
    if (rc == 0)
        *out = m;
    return rc;
}

int
request_u32(uint32_t *out, uint64_t value, const struct quantity_unit *units, const char *field,
            struct err *e)
{
    char asked[QUANTITY_TEXT], most[QUANTITY_TEXT];
    if (value <= UINT32_MAX) {
        *out = (uint32_t)value;
        return 0;
    }
    int rc =
        err_field(e, field, "%s requested, at most %s can be requested",
                  quantity_write(value, units, asked), quantity_write(UINT32_MAX, units, most));
    err_detail(e, "LIMIT_ABOVE_MAXIMUM", NULL, NULL);
    return rc;
}

// The limits that are 32 bits wide on the wire.
static int
fill_narrow_limits(Stockade__V1__Limits *m, const struct stockade_limits *from, struct err *e)
{
    int rc =
        request_u32(&m->cpu_millis, from->cpu_millis, quantity_cpu_millis, "limits.cpu_millis", e);
    if (rc == 0)
        rc = request_u32(&m->cpu_weight, from->cpu_weight, quantity_count, "limits.cpu_weight", e);
    if (rc == 0)
        rc = request_u32(&m->pids, from->pids, quantity_count, "limits.pids", e);
    if (rc == 0)
        rc = request_u32(&m->files, from->files, quantity_count, "limits.files", e);
    if (rc == 0)
        rc = request_u32(&m->inodes, from->inodes, quantity_count, "limits.inodes", e);
    return rc;
}

int
request_limits(Stockade__V1__Limits **out, struct arena *a, const struct stockade_limits *from,
               struct err *e)
{
    static const struct stockade_limits none;
    *out = NULL;
    if (memcmp(from, &none, sizeof none) == 0)
        return 0;
    Stockade__V1__Limits *m = wire_make(a, &stockade__v1__limits__descriptor);
    if (m == NULL)
        return too_large(e);
    m->memory_bytes = from->memory_bytes;
    m->cpu_time_ms = from->cpu_time_ms;
    m->wall_ms = from->wall_ms;
    m->file_size_bytes = from->file_size_bytes;
    m->disk_bytes = from->disk_bytes;
    m->output_bytes = from->output_bytes;
    int rc = fill_narrow_limits(m, from, e);
    if (rc == 0)
        *out = m;
    return rc;
}

// Every map<string, string> has entries of this shape.
struct entry {
    ProtobufCMessage base;
    const char *key;
    const char *value;
};
#define IS_ENTRY(type)                                                                             \
    _Static_assert(sizeof(type) == sizeof(struct entry) &&                                         \
                       offsetof(type, key) == offsetof(struct entry, key) &&                       \
                       offsetof(type, value) == offsetof(struct entry, value),                     \
                   "protobuf-c makes every map entry alike")
IS_ENTRY(Stockade__V1__RunRequest__MetadataEntry);
IS_ENTRY(Stockade__V1__SandboxServiceCreateRequest__MetadataEntry);
IS_ENTRY(Stockade__V1__SandboxServiceListRequest__MetadataEntry);
IS_ENTRY(Stockade__V1__SandboxServiceUpdateRequest__MetadataEntry);

int
request_labels(void *out, size_t *out_n, const ProtobufCMessageDescriptor *type, struct arena *a,
               const struct stockade_pair *from, size_t n, struct err *e)
{
    struct entry **all = NULL;
    int rc = request_list(from, n, "metadata", e);
    if (rc < 0)
        return rc;
    if (n > 0)
        all = arena_alloc(a, n * sizeof(struct entry *));
    for (size_t i = 0; i < n && all != NULL; i++) {
        all[i] = arena_alloc(a, sizeof **all);
        if (all[i] == NULL)
            return too_large(e);
        protobuf_c_message_init(type, all[i]);
        all[i]->key = from[i].name;
        all[i]->value = from[i].value;
    }
    if (n > 0 && all == NULL)
        return too_large(e);
    memcpy(out, &all, sizeof all);
    *out_n = n;
    return 0;
}

int
request_mounts(struct Stockade__V1__VolumeMount ***out, size_t *out_n, struct arena *a,
               const struct stockade_mount *from, size_t n, struct err *e)
{
    int rc = request_list(from, n, "volumes", e);
    if (rc < 0 || n == 0)
        return rc;
    struct Stockade__V1__VolumeMount **all = arena_alloc(a, n * sizeof(void *));
    for (size_t i = 0; i < n && all != NULL; i++) {
        all[i] = arena_alloc(a, sizeof **all);
        if (all[i] == NULL)
            return too_large(e);
        stockade__v1__volume_mount__init(all[i]);
        if (from[i].volume != NULL)
            all[i]->volume = from[i].volume;
        if (from[i].path != NULL)
            all[i]->path = from[i].path;
        all[i]->read_only = from[i].read_only;
    }
    if (all == NULL)
        return too_large(e);
    *out = all;
    *out_n = n;
    return 0;
}
