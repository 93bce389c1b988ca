// SPDX-License-Identifier: Apache-2.0
// Roots while the spawner runs: they are added with layers that the reader opened, count their sandboxes, and are
// removed.
//
//   free --add--> THERE --give up, and no sandbox left--> free
//                   ^ take, leave: one sandbox more or less
//
// A layer that two roots share is mounted once, because each new sandbox copies every mount of this namespace.
// Children that are starting have copies of their own, so a layer can be unmounted at any time.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "io.h"
#include "tree_internal.h"
#include "tree_mount.h"

// Absolute, in its shortest form, and not a folder that the sandbox makes itself.
static bool
path_is_plain(const char *path, size_t size)
{
    static const char *const own[] = {"/etc", "/proc", "/sys", "/dev", "/tmp", "/run"};
    size_t n = strnlen(path, size);
    if (n < 2 || n == size || path[0] != '/' || path[n - 1] == '/' || strstr(path, "//") != NULL)
        return false;
    if (strstr(path, "/./") != NULL || strstr(path, "/../") != NULL ||
        strcmp(path + n - 2, "/.") == 0 || (n >= 3 && strcmp(path + n - 3, "/..") == 0))
        return false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        size_t len = strlen(own[i]);
        if (strncmp(path, own[i], len) == 0 && (path[len] == '\0' || path[len] == '/'))
            return false;
    }
    return true;
}

static bool
hostname_is_plain(const char *name, size_t size)
{
    size_t n = strnlen(name, size);
    if (n == 0 || n == size || name[0] == '.' || name[0] == '-')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static int
check_form(const struct spawn_root *r, unsigned fds_n, struct err *e)
{
    if (r->layers_n < 2 || r->layers_n > SPAWN_ROOT_LAYERS_MAX)
        return err_field(e, "layers", "%u: must be 2 to %d", r->layers_n, SPAWN_ROOT_LAYERS_MAX);
    if (r->tier >= SPAWN_TIERS_N)
        return err_field(e, "tier", "%u: there are %d", r->tier, SPAWN_TIERS_N);
    if (r->user_root > 1 || r->writable > r->user_root)
        return err_field(e, "writable", "only where jobs are root inside");
    if (r->on_disk > 1)
        return err_field(e, "on_disk", "is 0 or 1");
    if (r->hosts_n > SPAWN_HOSTS_OF_ROOT)
        return err_field(e, "hosts", "%u: at most %d", r->hosts_n, SPAWN_HOSTS_OF_ROOT);
    if (fds_n != r->layers_n + 1 + r->hosts_n)
        return err_field(e, "layers", "%u descriptors for %u layers and %u folders of the host",
                         fds_n, r->layers_n, r->hosts_n);
    if (!hostname_is_plain(r->hostname, sizeof r->hostname))
        return err_field(e, "hostname", "must be letters, digits, '.', '_' or '-'");
    if (r->at[0][0] != '\0' || strncmp(r->at[1], "/usr", SPAWN_PATH_MAX) != 0)
        return err_field(e, "layers", "the first two must be the skeleton and /usr");
    for (uint32_t i = 2; i < r->layers_n; i++)
        if (!path_is_plain(r->at[i], sizeof r->at[i]))
            return err_field(e, "paths",
                             "%.*s: must be absolute, without '.' and '..', and none of the "
                             "sandbox's own folders",
                             SPAWN_PATH_MAX - 1, r->at[i]);
    return 0;
}

// Whether overlay accepts an id-mapped clone of that folder as its lower layer; tested in the same way as in a child.
static bool
can_idmap(struct tree *t, uint32_t layer, struct err *why)
{
    char mount_point[TREE_NAME_MAX];
    t->layers[layer].idmapped = true;
    int auto_close fd = tree_layer_open(t, layer, 0, false, t->userns_fd, why);
    tree_layer_mapped(0, mount_point);
    (void)umount2(mount_point, MNT_DETACH);
    return fd >= 0;
}

// A detached mount is kept only by its descriptor, and no path leads to it; move_mount(2) accepts no other.
static int
check_layer(int fd, struct stat *st, struct err *e)
{
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) < 0 || fstat(fd, st) < 0)
        return err_sys(e, errno, "look at a layer");
    if (!S_ISDIR(st->st_mode) || (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
        return err_field(e, "layers", "a descriptor is none of a mounted folder");
    return mount_change(fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, 0, e);
}

int
tree_layer_add(struct tree *t, int fd, struct err *why, struct err *e)
{
    uint32_t at = TREE_LAYERS_MAX;
    char mount_point[TREE_NAME_MAX];
    struct stat st;
    int rc = check_layer(fd, &st, e);
    if (rc < 0)
        return rc;
    for (uint32_t i = TREE_LAYERS_MAX; i-- > 0;) {
        struct tree_layer *l = &t->layers[i];
        if (l->roots == 0) {
            at = i;
        } else if (l->device == st.st_dev && l->inode == st.st_ino) {
            l->roots++;
            return (int)i;
        }
    }
    if (at == TREE_LAYERS_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "roots have %d folders already", TREE_LAYERS_MAX);
    tree_layer_source(at, mount_point);
    rc = mount_attach(fd, AT_FDCWD, mount_point, e);
    if (rc < 0)
        return rc;
    t->layers[at] = (struct tree_layer){.roots = 1, .device = st.st_dev, .inode = st.st_ino};
    t->layers[at].idmapped = can_idmap(t, at, why);
    return (int)at;
}

void
tree_layer_drop(struct tree *t, uint32_t layer)
{
    char mount_point[TREE_NAME_MAX];
    assert(t->layers[layer].roots > 0);
    if (--t->layers[layer].roots > 0)
        return;
    tree_layer_source(layer, mount_point);
    (void)umount2(mount_point, MNT_DETACH);
}

static void
root_free(struct tree *t, struct tree_root *r)
{
    for (uint32_t i = 0; i < r->layers_n; i++)
        tree_layer_drop(t, r->layer[i]);
    io_close(&r->lock_fd);
    r->layers_n = 0;
    r->there = false;
}

static struct tree_root *
find_free(struct tree *t)
{
    for (uint32_t i = 0; i < SPAWN_ROOTS_MAX; i++)
        if (t->roots[i].layers_n == 0)
            return &t->roots[i];
    return NULL;
}

// Adds a warning: in a folder that cannot be id-mapped, files seem to belong to nobody.
static void
add_remark(struct err *remark, const char *at, const struct err *why)
{
    if (why->code != ERR_OK && remark->code == ERR_OK)
        (void)err_set(remark, ERR_FAILED_PRECONDITION, "files of %.100s look like nobody's: %.200s",
                      at[0] != '\0' ? at : "/etc", why->text);
}

static int
fill(struct tree *t, struct tree_root *r, const struct spawn_root *from, const int *fds,
     struct err *remark, struct err *e)
{
    for (uint32_t i = 0; i < from->layers_n; i++) {
        struct err why = {.code = ERR_OK};
        int layer = tree_layer_add(t, fds[i], &why, e);
        if (layer < 0)
            return err_wrap(e, "layer %u", i);
        r->layer[r->layers_n++] = (uint8_t)layer;
        memcpy(r->at[i], from->at[i], sizeof r->at[i]);
        add_remark(remark, from->at[i], &why);
    }
    memcpy(r->hostname, from->hostname, sizeof r->hostname);
    r->tier = from->tier;
    r->user_root = from->user_root != 0;
    r->writable = from->writable != 0;
    r->on_disk = from->on_disk != 0;
    r->there = true;
    return 0;
}

int
tree_root_add(struct tree *t, const struct spawn_root *from, const int *fds, unsigned fds_n,
              uint32_t *number, struct err *remark, struct err *e)
{
    struct tree_root *r = find_free(t);
    int rc = check_form(from, fds_n, e);
    remark->code = ERR_OK;
    remark->text[0] = '\0';
    if (rc == 0 && r == NULL)
        rc =
            err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "there are %d roots, those that sandboxes still use included", SPAWN_ROOTS_MAX);
    if (rc == 0) {
        r->lock_fd = -1;
        rc = fill(t, r, from, fds, remark, e);
        if (rc < 0)
            root_free(t, r);
    }
    bool locked = rc == 0;
    const unsigned own_n = locked ? from->layers_n + 1 : fds_n;
    for (unsigned i = 0; i < own_n; i++)
        if (!locked || i != from->layers_n)
            (void)close(fds[i]);
    if (rc < 0)
        return rc;
    r->lock_fd = io_keep_fd(fds[from->layers_n]);
    *number = (uint32_t)(r - t->roots);
    return 0;
}

static struct tree_root *
find(struct tree *t, uint32_t number, struct err *e)
{
    if (number < SPAWN_ROOTS_MAX && t->roots[number].there)
        return &t->roots[number];
    (void)err_set(e, ERR_NOT_FOUND, "there is no root %u", number);
    return NULL;
}

int
tree_root_take(struct tree *t, uint32_t number, struct err *e)
{
    struct tree_root *r = find(t, number, e);
    if (r == NULL)
        return err_errno(e);
    r->sandboxes++;
    return 0;
}

static void
settle(struct tree *t, struct tree_root *r)
{
    if (!r->there && r->sandboxes == 0)
        root_free(t, r);
}

void
tree_root_leave(struct tree *t, uint32_t number)
{
    assert(number < SPAWN_ROOTS_MAX && t->roots[number].sandboxes > 0);
    t->roots[number].sandboxes--;
    settle(t, &t->roots[number]);
}

int
tree_root_give_up(struct tree *t, uint32_t number, struct err *e)
{
    struct tree_root *r = find(t, number, e);
    if (r == NULL)
        return err_errno(e);
    r->there = false;
    settle(t, r);
    return 0;
}

bool
tree_root_exists(const struct tree *t, uint32_t number)
{
    return t->roots[number].layers_n > 0;
}

bool
tree_paths_meet(const char *a, const char *b)
{
    size_t n = strlen(a);
    size_t m = strlen(b);
    const char *longer = n < m ? b : a;
    size_t least = n < m ? n : m;
    return strncmp(a, b, least) == 0 && (longer[least] == '\0' || longer[least] == '/');
}

bool
tree_root_has_mount_point(const struct tree *t, uint32_t number, const char *at)
{
    // A volume may take the place of one of these, or lie in it, but not hide it: jobs begin in the first.
    static const char *const expected[] = {"/home/agent", "/var/tmp"};
    const struct tree_root *r = &t->roots[number];
    bool has = path_is_plain(at, SPAWN_AT_MAX);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0] && has; i++)
        has = strlen(at) >= strlen(expected[i]) || !tree_paths_meet(expected[i], at);
    for (uint32_t i = 1; i < r->layers_n && has; i++)
        has = !tree_paths_meet(r->at[i], at);
    return has;
}

uint32_t
tree_root_tier(const struct tree *t, uint32_t number)
{
    return t->roots[number].tier;
}

bool
tree_root_is_user_root(const struct tree *t, uint32_t number)
{
    return t->roots[number].user_root;
}

bool
tree_root_is_on_disk(const struct tree *t, uint32_t number)
{
    return t->roots[number].on_disk;
}

const char *
tree_root_hostname(const struct tree *t, uint32_t number)
{
    return t->roots[number].hostname;
}
