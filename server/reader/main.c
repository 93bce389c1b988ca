// SPDX-License-Identifier: Apache-2.0
// stockade-reader: reads the configuration as root, for the unprivileged broker, and exits (read.h).
//
//   stockade-reader CONFIG_FILE STATE_DIR     "": the default file, if it exists; descriptors as in read.h
//
//   file -> memfd -> parse, examine folders -> report -> order -> roots, one after the other -> answers
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/config/config.h"
#include "server/sandbox/mounts.h"
#include "host.h"
#include "read.h"
#include "root.h"

_Static_assert((int)READ_TEMPLATES_MAX == (int)TEMPLATES_OF_FILE, "a report holds a file's");
_Static_assert((int)SKELETON_PATHS_MAX == (int)TEMPLATE_PATHS_MAX, "and a root a template's");

static bool
// NOLINTNEXTLINE(readability-non-const-parameter): the member of struct fdpass is none
send_with(int socket_fd, const void *bytes, size_t n, int *fds, unsigned fds_n)
{
    const struct fdpass m = {(void *)(uintptr_t)bytes, n, fds, fds_n};
    return fdpass_send(socket_fd, &m, 0) == 0;
}

// The bytes that the broker gets are the bytes that are parsed here, even if the file changes.
static int
seal(const char *name, const void *bytes, size_t n, struct err *e)
{
    int auto_close fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_sys(e, errno, "hand the configuration over");
    return take_fd(&fd);
}

static void
mix(uint64_t *sum, uint64_t v)
{
    *sum = (*sum ^ v) * UINT64_C(0x100000001b3); // FNV-1a, by words
}

// A sum of the folders that its paths and mounts lead to now.
static uint64_t
folders_of(const struct template *t)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < t->paths_n; i++) {
        struct stat st = {0};
        (void)stat(t->paths[i], &st);
        mix(&sum, st.st_dev);
        mix(&sum, st.st_ino);
    }
    for (uint32_t i = 0; i < t->hosts_n; i++) {
        struct stat st = {0};
        (void)stat(t->host[i].path, &st);
        mix(&sum, st.st_dev);
        mix(&sum, st.st_ino);
        mix(&sum, st.st_uid);
        mix(&sum, st.st_gid);
    }
    return sum;
}

static void
describe(const struct config *c, struct read_report *r)
{
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        const struct template *from = &c->sandbox.template[i];
        struct read_template *to = &r->template[r->templates_n++];
        memcpy(to->name, from->name, sizeof to->name);
        memcpy(to->disabled, from->disabled, sizeof to->disabled);
        to->folders = folders_of(from);
    }
}

static void
read_policies(const struct config *c, struct read_report *r, int *fd)
{
    struct arena *auto_arena a = arena_new(CONFIG_POLICY_ARENA);
    Stockade__V1__PolicyFiles files;
    if (a == NULL) {
        (void)err_sys(&r->err, ENOMEM, "read the policies");
        return;
    }
    if (config_policy_files(c, a, &files, &r->err) < 0)
        return;
    const size_t n = stockade__v1__policy_files__get_packed_size(&files);
    uint8_t *auto_free bytes = malloc(n + 1);
    if (bytes == NULL) {
        (void)err_sys(&r->err, ENOMEM, "read the policies");
        return;
    }
    (void)stockade__v1__policy_files__pack(&files, bytes);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
    *fd = seal("policies", bytes, n, &r->err);
    r->policy_n = *fd >= 0 ? (uint32_t)n + 1 : 0;
}

// Makes the report. fd: the file's bytes (-1: none), and the policies. *c: the parsed configuration, or the defaults without a file;
// NULL: it has errors.
static void
read_file(const char *path, struct read_report *r, int fd[2], struct config **c)
{
    char *auto_free bytes = NULL;
    size_t n = 0;
    struct err wrong;
    if (path[0] == '\0' && (access(CONFIG_FILE_DEFAULT, F_OK) == 0 || errno != ENOENT))
        path = CONFIG_FILE_DEFAULT;
    (void)snprintf(r->file, sizeof r->file, "%s", path);
    if (path[0] != '\0' && config_file(path, &bytes, &n, &r->err) < 0)
        return;
    if (path[0] != '\0' && (fd[0] = seal("stockaded.yaml", bytes, n, &r->err)) < 0)
        return;
    *c = config_default();
    if (*c != NULL && path[0] != '\0' && config_parse(*c, path, bytes, n, &wrong) < 0) {
        config_free(*c); // the broker reports the error, in the same words
        *c = NULL;
    }
    if (*c == NULL)
        return;
    config_look(*c);
    describe(*c, r);
    read_policies(*c, r, &fd[1]);
}

static void
template_of(const struct template *from, struct skeleton_template *to)
{
    memcpy(to->name, from->name, sizeof to->name);
    memcpy(to->hostname, from->hostname, sizeof to->hostname);
    memcpy(to->paths, from->paths, sizeof to->paths);
    to->user_root = from->user_root;
    to->writable = from->root_writable;
    to->on_disk = from->on_disk;
}

static int
add_hosts(const struct template *t, const char *state_dir, struct spawn_root *r, int *fds,
          struct err *e)
{
    for (uint32_t i = 0; i < t->hosts_n; i++) {
        int fd = host_open(t->host[i].path, t->host[i].writable, state_dir, e);
        if (fd < 0)
            return fd;
        fds[r->layers_n + 1 + r->hosts_n] = fd;
        mounts_host_id(t->host[i].path, r->host[r->hosts_n].id);
        r->host[r->hosts_n++].writable = t->host[i].writable;
    }
    return 0;
}

static bool
make(int folder, const char *state_dir, const struct template *t, struct read_answer *a)
{
    struct skeleton_template wanted = {.paths = {{0}}};
    struct spawn_root root;
    struct spawn_reply reply;
    int fds[SPAWN_ROOT_FDS_MAX];
    template_of(t, &wanted);
    if (root_make(folder, &wanted, &root, fds, &a->err) < 0)
        return true;
    const bool good = add_hosts(t, state_dir, &root, fds, &a->err) == 0;
    const uint32_t n = root.layers_n + 1 + root.hosts_n;
    bool sent = good && send_with(READ_SPAWNER_FD, &root, sizeof root, fds, n);
    for (uint32_t i = 0; i < n; i++)
        (void)close(fds[i]);
    if (!good)
        return true;
    if (!sent || recv(READ_SPAWNER_FD, &reply, sizeof reply, 0) != (ssize_t)sizeof reply)
        return false;
    a->ok = reply.ok;
    a->root = reply.slot;
    a->err = reply.err;
    return true;
}

// Carries out the broker's order, within the bounds of what the file names.
static int
serve(const struct config *c, const char *state_dir)
{
    struct read_order order;
    struct err e;
    if (recv(READ_BROKER_FD, &order, sizeof order, 0) != (ssize_t)sizeof order || c == NULL)
        return 0;
    int auto_close folder = root_folder(state_dir, &e);
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        struct read_answer a = {.template = i};
        if ((order.templates >> i & 1) == 0 || c->sandbox.template[i].disabled[0] != '\0')
            continue;
        if (folder < 0)
            a.err = e;
        else if (!make(folder, state_dir, &c->sandbox.template[i], &a))
            return 70;
        if (!a.ok)
            (void)err_wrap(&a.err, "template %s, in %s/templates", c->sandbox.template[i].name,
                           state_dir);
        if (!send_with(READ_BROKER_FD, &a, sizeof a, NULL, 0) || (!a.ok && order.go_on == 0))
            return 0;
    }
    return 0;
}

int
main(int argc, char **argv)
{
    static struct read_report report;
    struct config *c = NULL;
    int fd[2] = {-1, -1};
    if (argc != 3)
        return 64;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)umask(022);
    read_file(argv[1], &report, fd, &c);
    int *first = fd[0] >= 0 ? fd : fd + 1;
    const unsigned n = (unsigned)(fd[0] >= 0) + (unsigned)(fd[1] >= 0);
    bool sent = send_with(READ_BROKER_FD, &report, sizeof report, first, n);
    int status = sent ? serve(c, argv[2]) : 70;
    for (unsigned i = 0; i < n; i++)
        (void)close(first[i]);
    config_free(c);
    return status;
}
