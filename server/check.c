// SPDX-License-Identifier: Apache-2.0
// See check.h. Creates and changes nothing, and needs no privilege.
#include "check.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sysexits.h>
#include <unistd.h>

#include "privilege.h"

enum { KERNEL_MAJOR = 6, KERNEL_MINOR = 1 };

static bool
problem(const char *what, const char *text)
{
    (void)printf("problem  %s: %s\n", what, text);
    return false;
}

static bool
kernel_is_new_enough(const struct config *c)
{
    struct utsname name;
    char *end = NULL;
    if (uname(&name) < 0)
        return problem("kernel", strerror(errno));
    unsigned long major = strtoul(name.release, &end, 10);
    unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    bool fine = major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR);
    if (!fine)
        return problem("kernel", "older than 6.1");
    (void)printf("ok       kernel: Linux %s\n", name.release);
    if (c->bpf_enabled && access("/sys/kernel/btf/vmlinux", R_OK) < 0)
        (void)printf("note     kernel: it has no BTF, so sandboxes have no network\n");
    return true;
}

static bool
kernel_has(const char *path, const char *what)
{
    return access(path, F_OK) == 0 || problem("kernel", what);
}

static bool
kernel_is_fine(const struct config *c)
{
    bool fine = kernel_is_new_enough(c);
    if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0)
        fine &= kernel_has("/sys/fs/cgroup/unified/cgroup.procs", "cgroup v2 is not mounted");
    fine &= kernel_has("/proc/self/ns/user", "it has no user namespaces");
    fine &= kernel_has("/proc/self/ns/net", "it has no network namespaces");
    return fine;
}

static bool
users_are_fine(const struct config *c)
{
    struct identity who;
    struct err e;
    if (privilege_identity(c, &who, &e) < 0)
        return problem("users", e.text);
    const struct passwd *account = getpwuid(who.uid);
    (void)printf("ok       users: the broker is uid %u%s%s, its sockets belong to group %u\n",
                 who.uid, account != NULL ? ", " : "", account != NULL ? account->pw_name : "",
                 who.socket_gid);
    return true;
}

static bool
paths_are_fine(const struct config *c)
{
    struct stat st;
    bool fine = true;
    if (lstat(c->state_dir, &st) < 0)
        fine = errno == ENOENT || problem("state_dir", strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        fine = problem("state_dir", "no folder");
    else if (st.st_uid != 0)
        fine = problem("state_dir", "it must belong to root");
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        const struct template *t = &c->sandbox.template[i];
        char what[96];
        (void)snprintf(what, sizeof what, "template %s", t->name);
        if (t->disabled[0] != '\0')
            fine = problem(what, t->disabled);
        else
            (void)printf("ok       %s: %u paths\n", what, t->paths_n);
    }
    return fine;
}

int
check_config(const char *file, struct config *c)
{
    if (file != NULL)
        (void)printf("ok       configuration: %s\n", file);
    else
        (void)printf("ok       configuration: none, since there is no %s\n", CONFIG_FILE_DEFAULT);
    config_look(c);
    bool fine = kernel_is_fine(c);
    fine &= users_are_fine(c);
    fine &= paths_are_fine(c);
    (void)puts(fine ? "the configuration is fine" : "the configuration has problems");
    return fine ? 0 : EX_CONFIG;
}
