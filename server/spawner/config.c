// SPDX-License-Identifier: Apache-2.0
// See config.h. The configuration comes from the parent while it is still privileged, so these checks only find
// mistakes; they are nevertheless as strict as checks of hostile input.
#include "config.h"

#include <string.h>

// Whether the text has a NUL within its field.
static bool
text_ends(const char *text, size_t n)
{
    return memchr(text, '\0', n) != NULL;
}

// One path component of letters, digits, '.', '_' and '-', not "." or "..".
static bool
name_ok(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    return name[strspn(name, allowed)] == '\0';
}

// Absolute, not "/" itself, without empty, "." or ".." components.
static bool
path_ok(const char *path)
{
    if (path[0] != '/' || !path[1])
        return false;
    while (*path) {
        path++;
        size_t n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += n;
    }
    return true;
}

static int
check_path(const char *path, const char *field, struct err *e)
{
    if (!text_ends(path, SPAWN_PATH_MAX))
        return err_field(e, field, "longer than %d bytes", SPAWN_PATH_MAX - 1);
    if (!path_ok(path))
        return err_field(e, field, "not an absolute path without . and ..: \"%s\"", path);
    return 0;
}

static int
check_ids(const struct spawn_config *c, struct err *e)
{
    if (c->slots == 0 || c->slots > SPAWN_SLOTS_MAX)
        return err_field(e, "slots", "%u: must be 1 to %d", c->slots, SPAWN_SLOTS_MAX);
    // Ids from 2^31 on are negative in many programs, and those below 65536 belong to the host.
    uint64_t end = c->id_base + (c->slots + UINT64_C(1)) * SPAWN_IDS_PER_SANDBOX;
    if (c->id_base < SPAWN_IDS_PER_SANDBOX || end > UINT64_C(0x80000000))
        return err_field(e, "id_base", "%u: %u ranges of %d ids must fit between 65536 and 2^31",
                         c->id_base, c->slots + 1, SPAWN_IDS_PER_SANDBOX);
    return 0;
}

// Checks the loader and the relay, if there are any.
static int
check_bpf(const struct spawn_config *c, struct err *e)
{
    int r = c->loader_path[0] ? check_path(c->loader_path, "loader_path", e) : 0;
    if (r == 0 && c->relay_path[0])
        r = check_path(c->relay_path, "relay_path", e);
    if (r < 0 || !c->relay_path[0])
        return r;
    uint64_t first = c->id_base + UINT64_C(1) * SPAWN_IDS_PER_SANDBOX;
    uint64_t end = first + c->slots * UINT64_C(1) * SPAWN_IDS_PER_SANDBOX;
    if (c->relay_uid == 0 || c->relay_gid == 0 || c->relay_uid == c->broker_uid ||
        (c->relay_uid >= first && c->relay_uid < end))
        return err_field(e, "relay_uid", "%u: must be an account of its own", c->relay_uid);
    return 0;
}

int
config_check(const struct spawn_config *c, struct err *e)
{
    if (c->version != SPAWN_VERSION)
        return err_field(e, "version", "%u: this spawner is of version %u", c->version,
                         SPAWN_VERSION);
    int r = check_ids(c, e);
    if (r == 0)
        r = check_path(c->state_dir, "state_dir", e);
    if (r == 0)
        r = check_path(c->guest_path, "guest_path", e);
    if (r == 0)
        r = check_path(c->reader_path, "reader_path", e);
    if (r == 0 && c->disk_path[0])
        r = check_path(c->disk_path, "disk_path", e);
    if (r == 0 && c->keeper_path[0])
        r = check_path(c->keeper_path, "keeper_path", e);
    if (r == 0 && c->fetcher_path[0])
        r = check_path(c->fetcher_path, "fetcher_path", e);
    if (r == 0 && c->config_file[0])
        r = check_path(c->config_file, "config_file", e);
    if (r == 0)
        r = check_bpf(c, e);
    if (r < 0)
        return r;
    if (!text_ends(c->cgroup, sizeof c->cgroup) ||
        (c->cgroup[0] && (c->cgroup[0] != '/' || !name_ok(c->cgroup + 1))))
        return err_field(e, "cgroup", "must be empty or \"/name\"");
    if (c->netns_pool > CONFIG_NETNS_POOL_MAX)
        return err_field(e, "netns_pool", "%u: at most %d", c->netns_pool, CONFIG_NETNS_POOL_MAX);
    struct spawn_limits largest;
    memset(&largest, 0xff, sizeof largest);
    if (!config_limits_ok(&c->limits_max, &largest))
        return err_field(e, "limits_max", "none may be 0, cpu_weight is at most 10000");
    return 0;
}

bool
config_limits_ok(const struct spawn_limits *l, const struct spawn_limits *max)
{
    return l->memory_bytes && l->memory_bytes <= max->memory_bytes && l->disk_bytes &&
           l->disk_bytes <= max->disk_bytes && l->inodes && l->inodes <= max->inodes &&
           l->cpu_millis && l->cpu_millis <= max->cpu_millis && l->cpu_weight &&
           l->cpu_weight <= max->cpu_weight && l->cpu_weight <= 10000 && l->pids &&
           l->pids <= max->pids;
}

bool
config_disk_ok(const struct spawn_limits *l)
{
    return l->disk_bytes != 0 && l->disk_bytes <= SPAWN_DISK_BYTES_MAX && l->inodes != 0 &&
           l->inodes <= SPAWN_DISK_INODES_MAX;
}

uint32_t
config_slot_uid(const struct spawn_config *c, uint32_t slot)
{
    return c->id_base + (slot + 1) * SPAWN_IDS_PER_SANDBOX;
}
