// SPDX-License-Identifier: Apache-2.0
// See check.h. Creates and changes nothing, and needs no privilege.
#include "check.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/utsname.h>
#include <sysexits.h>
#include <unistd.h>

#include "privilege.h"
#include "proto/arena.h"
#include "proto/detect.h"
#include "proto/plural.h"
#include "proto/validate.h"

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
users_are_fine(const struct config *c, struct identity *who)
{
    struct err e;
    if (privilege_identity(c, who, &e) < 0)
        return problem("users", e.text);
    const struct passwd *account = getpwuid(who->uid);
    (void)printf("ok       users: the broker is uid %u%s%s, its sockets belong to group %u\n",
                 who->uid, account != NULL ? ", " : "", account != NULL ? account->pw_name : "",
                 who->socket_gid);
    return true;
}

// Prints a problem. For other users than root, what only root can see is a note and no failure.
static bool
failed(const char *what, const struct err *e)
{
    if (geteuid() != 0 && e->sys == EACCES) {
        (void)printf("note     %s: not checked, because only root may look: %s\n", what, e->text);
        return true;
    }
    (void)problem(what, e->text);
    if (e->hint[0] != '\0')
        (void)printf("         %s\n", e->hint);
    return false;
}

static bool
folders_are_fine(const struct config *c, const struct identity *who)
{
    struct err e;
    bool fine = privilege_check_state_dir(c, who, &e) == 0 || failed("folders", &e);
    return (privilege_check_sockets(c, who, &e) == 0 || failed("sockets", &e)) && fine;
}

// Certificates and keys, with the rights of the broker's account. (Capabilities to read everything go with the user id.)
static bool
certificates_are_fine(const struct config *c, const struct identity *who)
{
    struct err e;
    if (c->tls.certificate[0] == '\0')
        return true;
    const bool root = geteuid() == 0;
    (void)setfsuid(root ? who->uid : geteuid());
    (void)setfsgid(root ? who->gid : getegid());
    int rc = tls_check(&c->tls, &e);
    if (rc < 0 && root && who->socket_gid != who->gid) { // the broker has this group as well
        struct err other;
        (void)setfsgid(who->socket_gid);
        rc = tls_check(&c->tls, &other);
    }
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
    if (rc < 0)
        return failed("tls", &e);
    (void)printf("ok       tls: %s\n", c->tls.certificate);
    return true;
}

// Without some of them the broker starts, and lacks what they are for.
static bool
programs_are_fine(const struct config *c)
{
    static const struct {
        const char *name;
        bool is_bpf;
        const char *loss; // NULL: the broker needs it
    } programs[] = {
        {"stockade-spawner", false, NULL},
        {"stockade-guest", false, NULL},
        {"stockade-files", false, NULL},
        {"stockade-reader", false, NULL},
        {"stockade-loader", true, "sandboxes have no network"},
        {"stockade-relay", true, "sandboxes have no network"},
        {"stockade-disk", false, "volumes and layers on disk are refused"},
        {"stockade-keeper", false, "snapshots cannot be kept"},
        {"stockade-fetcher", false, "key sets of issuers are not read from URLs"},
    };
    char path[SPAWN_PATH_MAX];
    struct err e;
    bool fine = true;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if ((programs[i].is_bpf && !c->bpf_enabled) ||
            privilege_program(programs[i].name, path, sizeof path, &e) == 0)
            continue;
        if (programs[i].loss != NULL)
            (void)printf("note     programs: %s; %s\n", e.text, programs[i].loss);
        else
            fine = problem("programs", e.text);
    }
    return fine;
}

static bool
templates_are_fine(const struct config *c)
{
    bool fine = true;
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        const struct template *t = &c->sandbox.template[i];
        char what[96];
        (void)snprintf(what, sizeof what, "template %s", t->name);
        if (t->disabled[0] != '\0')
            fine = problem(what, t->disabled);
        else
            (void)printf("ok       %s: %u %s\n", what, t->paths_n,
                         plural(t->paths_n, "path", "paths"));
    }
    return fine;
}

static bool
policies_are_fine(struct config *c)
{
    struct arena *auto_arena a = arena_new(CONFIG_POLICY_ARENA);
    Stockade__V1__PolicyFiles files;
    struct policy *p = NULL;
    struct policy_view v;
    struct err e;
    int r = a != NULL ? validate_init(&e) : err_sys(&e, ENOMEM, "read the policies");
    if (r == 0)
        r = config_policy_files(c, a, &files, &e);
    if (r == 0)
        r = policy_read(&files, &p, &e);
    if (r < 0)
        return failed("policy", &e);
    r = config_read_rules(c, &files, &e);
    if (r < 0) {
        policy_free(p);
        return failed("rules", &e);
    }
    policy_view(p, &v);
    (void)printf("ok       policy: %zu %s, %u %s, %u %s\n", v.files->n_files,
                 plural(v.files->n_files, "file", "files"), v.rules,
                 plural(v.rules, "rule", "rules"), v.tests, plural(v.tests, "test", "tests"));
    const unsigned rules = detect_count(c->anomaly.rules), tests = detect_tests(c->anomaly.rules);
    (void)printf("ok       rules: %u %s, %u %s\n", rules, plural(rules, "rule", "rules"), tests,
                 plural(tests, "test", "tests"));
    policy_free(p);
    return true;
}

int
check_config(const char *file, struct config *c)
{
    if (file != NULL)
        (void)printf("ok       configuration: %s\n", file);
    else
        (void)printf("ok       configuration: none, since there is no %s\n", CONFIG_FILE_DEFAULT);
    struct identity who;
    config_look(c);
    bool fine = kernel_is_fine(c);
    if (users_are_fine(c, &who)) {
        fine &= folders_are_fine(c, &who);
        fine &= certificates_are_fine(c, &who);
    } else
        fine = false;
    fine &= programs_are_fine(c);
    fine &= policies_are_fine(c);
    fine &= templates_are_fine(c);
    (void)puts(fine ? "the configuration is fine" : "the configuration has problems");
    return fine ? 0 : EX_CONFIG;
}
