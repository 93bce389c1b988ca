// SPDX-License-Identifier: Apache-2.0
// See private.h: what sandboxes of a template have or may have mounted.
//
//   mounts:
//     - {path: /srv/models, at: /models}          # every sandbox has it
//     - {path: /home/alice/work, mode: writable}  # a request may name it
//   volumes:
//     - {name: cache, at: /cache, mode: read-only}
#include "proto/config_read.h"
#include "private.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "server/sandbox/template.h"

enum { MODE_UNSAID = 2 };

// A row of either list.
struct row {
    char path[SPAWN_PATH_MAX];
    char name[65];
    char at[SPAWN_AT_MAX];
    uint32_t mode; // index of `modes`, or MODE_UNSAID
};

static int
read_mode(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char *const modes[] = {"read-only", "writable", NULL};
    (void)k;
    return config_word(r, n, modes, &((struct row *)to)->mode);
}

// As VolumeMount.path.
static int
read_at(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+@-/";
    int err = config_read_path(r, k, n, to);
    const char *at = ((struct row *)to)->at;
    if (err == 0 && (at[1] == '\0' || at[strspn(at, allowed)] != '\0'))
        return config_fail(r, n, "must be a path of letters, digits, and . _ + @ -, not \"/\"");
    return err;
}

// As VolumeServiceCreateRequest.name.
static int
read_volume_name(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (n->kind != YAML_TEXT || n->text[0] == '\0' || strchr("._-", n->text[0]) != NULL ||
        n->text[strspn(n->text, allowed)] != '\0')
        return config_fail(r, n, "must be the name of a volume: letters, digits, '.', '_' and '-'");
    return config_read_text(r, k, n, to);
}

#define FIELD(member) offsetof(struct row, member), sizeof(((struct row *)0)->member)

static const struct config_key host_keys[] = {
    {"path", config_read_path, FIELD(path), 0, 0, NULL},
    {"at", read_at, FIELD(at), 0, 0, NULL},
    {"mode", read_mode, FIELD(mode), 0, 0, NULL},
    {0},
};

static const struct config_key volume_keys[] = {
    {"name", read_volume_name, FIELD(name), 0, 0, NULL},
    {"at", read_at, FIELD(at), 0, 0, NULL},
    {"mode", read_mode, FIELD(mode), 0, 0, NULL},
    {0},
};

static int
read_row(const struct config_reader *r, const struct config_key *keys, struct yaml_node *n,
         struct row *to)
{
    *to = (struct row){.mode = MODE_UNSAID};
    return config_read_map(r, keys, n, to);
}

// What must not be shown, because the kernel or root's programs give it a meaning of its own.
static bool
is_of_system(const char *path)
{
    static const char *const no[] = {"/proc", "/sys", "/dev", "/etc", "/boot"};
    bool found = path[1] == '\0';
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        const size_t n = strlen(no[i]);
        found = found || (strncmp(path, no[i], n) == 0 && (path[n] == '\0' || path[n] == '/'));
    }
    return found;
}

int
config_read_hosts(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                  void *to)
{
    struct template *t = to;
    struct row row;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n,
                           "must be a list of folders of the host, such as - path: /srv/data");
    t->hosts_n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (t->hosts_n == TEMPLATE_HOSTS_MAX)
            return config_fail(r, it, "more than %d folders", TEMPLATE_HOSTS_MAX);
        int err = read_row(r, host_keys, it, &row);
        if (err < 0)
            return err;
        if (row.path[0] == '\0')
            return config_fail(r, it, "a mount must have a path: the folder of the host");
        if (is_of_system(row.path))
            return config_fail(r, it, "%.100s: folders of the system cannot be mounted", row.path);
        for (uint32_t i = 0; i < t->hosts_n; i++)
            if (strcmp(t->host[i].path, row.path) == 0)
                return config_fail(r, it, "%.100s is in the list already", row.path);
        struct template_host *h = &t->host[t->hosts_n++];
        h->writable = row.mode == 1;
        memcpy(h->path, row.path, sizeof h->path);
        memcpy(h->at, row.at, sizeof h->at);
    }
    return 0;
}

int
config_read_volumes(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                    void *to)
{
    struct template *t = to;
    struct row row;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of volumes, such as - {name: cache, at: /cache}");
    t->volumes_n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (t->volumes_n == TEMPLATE_VOLUMES_MAX)
            return config_fail(r, it, "more than %d volumes", TEMPLATE_VOLUMES_MAX);
        int err = read_row(r, volume_keys, it, &row);
        if (err < 0)
            return err;
        if (row.name[0] == '\0' || row.at[0] == '\0')
            return config_fail(r, it, "a volume must have a name, and a path in the sandbox (at)");
        struct template_volume *v = &t->volume[t->volumes_n++];
        v->writable = row.mode != 0;
        memcpy(v->name, row.name, sizeof v->name);
        memcpy(v->at, row.at, sizeof v->at);
    }
    return 0;
}
