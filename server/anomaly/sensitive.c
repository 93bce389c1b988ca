// SPDX-License-Identifier: Apache-2.0
// See sensitive.h.
#include "sensitive.h"

#include <bpf/bpf.h>
#include <string.h>

#include "proto/detect.h"

// Keys and credentials; memory and environment of processes; the kernel; files that are executed automatically.
// /etc/passwd, /root, .npmrc and .bash_history are not in the list: benign programs, and agents that believe to be
// root, look at them unprompted.
//
// hint: a component that each such path has and few other paths have; NULL: the last one.
static const struct {
    const char *pattern;
    uint32_t when;
    const char *hint;
} patterns[] = {
    {".ssh", 0, NULL},
    {".gnupg", 0, NULL},
    {".aws", WATCH_WHEN_THERE, NULL},
    {".azure", WATCH_WHEN_THERE, NULL},
    {".kube", WATCH_WHEN_THERE, NULL},
    {".docker", WATCH_WHEN_THERE, NULL},
    {".config/gcloud", WATCH_WHEN_THERE, NULL},
    {".config/gh", WATCH_WHEN_THERE, NULL},
    {".config/hub", WATCH_WHEN_THERE, NULL},
    {".config/glab-cli", WATCH_WHEN_THERE, NULL},
    {".config/doctl", WATCH_WHEN_THERE, NULL},
    {".oci", WATCH_WHEN_THERE, NULL},
    {".boto", WATCH_WHEN_THERE, NULL},
    {".s3cfg", WATCH_WHEN_THERE, NULL},
    {".git-credentials", WATCH_WHEN_THERE, NULL},
    {".netrc", WATCH_WHEN_THERE, NULL},
    {".pgpass", WATCH_WHEN_THERE, NULL},
    {".pypirc", WATCH_WHEN_THERE, NULL},
    {".vault-token", WATCH_WHEN_THERE, NULL},
    // a folder of this name is a Python virtual environment
    {".env", WATCH_WHEN_THERE | WATCH_WHEN_LAST, NULL},
    {"application_default_credentials.json", WATCH_WHEN_THERE, NULL},
    {"id_rsa", 0, NULL},
    {"id_dsa", 0, NULL},
    {"id_ecdsa", 0, NULL},
    {"id_ecdsa_sk", 0, NULL},
    {"id_ed25519", 0, NULL},
    {"id_ed25519_sk", 0, NULL},
    // Those above are credentials that a job may also make for itself (own.c).
    {"kubernetes.io/serviceaccount", 0, NULL},
    {"/run/secrets", 0, NULL},
    {"/var/run/secrets", 0, NULL},
    {"docker.sock", 0, NULL},
    {"containerd.sock", 0, NULL},
    {"release_agent", 0, NULL},
    {"/etc/shadow", 0, NULL},
    {"/etc/gshadow", 0, NULL},
    {"/etc/sudoers", 0, NULL},
    {"/etc/sudoers.d", 0, NULL},
    {"/etc/crontab", 0, NULL},
    {"/etc/cron.d", 0, NULL},
    {"/etc/ld.so.preload", WATCH_WHEN_THERE, NULL}, // every program looks for it
    {"/var/spool/cron", 0, NULL},
    {"/proc/#/environ", 0, NULL},
    {"/proc/#/task/#/environ", 0, NULL},
    {"/proc/self/environ", 0, NULL},
    {"/proc/self/task/#/environ", 0, NULL},
    {"/proc/thread-self/environ", 0, NULL},
    {"/proc/#/mem", 0, NULL},
    {"/proc/#/task/#/mem", 0, NULL},
    {"/proc/self/mem", 0, NULL},
    {"/proc/self/task/#/mem", 0, NULL},
    {"/proc/thread-self/mem", 0, NULL},
    {"/proc/#/root", 0, "proc"},
    {"/proc/#/task/#/root", 0, "proc"},
    {"/proc/self/root", 0, "proc"},
    {"/proc/self/task/#/root", 0, "proc"},
    {"/proc/thread-self/root", 0, "proc"},
    {"/proc/kcore", 0, NULL},
    {"/proc/kallsyms", 0, NULL},
    {"/proc/sysrq-trigger", 0, NULL},
    {"/proc/sys/kernel/core_pattern", 0, NULL},
    {"/proc/sys/kernel/modprobe", 0, NULL},
    {"/sys/kernel/debug", 0, "kernel"},
    {"/sys/kernel/uevent_helper", 0, NULL},
    {"/sys/firmware", 0, NULL},
    {"/dev/mem", 0, NULL},
    {"/dev/kmem", 0, NULL},
    {"/dev/port", 0, NULL},
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };
_Static_assert(sizeof patterns / sizeof patterns[0] <= WATCH_SENSITIVE, "as many as there may be");
_Static_assert(WATCH_SENSITIVE + SENSITIVE_OWN_MAX == WATCH_SENSITIVE_WRITTEN,
               "then those of rules");

const char *
anomaly_sensitive_at(uint32_t i)
{
    return i < PATTERNS ? patterns[i].pattern : NULL;
}

static const char first_of_the_host[] = "kubernetes.io/serviceaccount";

bool
anomaly_sensitive_is_credential(uint32_t i)
{
    return i < (uint32_t)anomaly_sensitive_find(first_of_the_host);
}

int
anomaly_sensitive_find(const char *pattern)
{
    for (uint32_t i = 0; i < PATTERNS; i++)
        if (strcmp(patterns[i].pattern, pattern) == 0)
            return (int)i;
    return -1;
}

int
anomaly_sensitive_check(const char *pattern, struct err *e)
{
    uint32_t components = 0;
    size_t length = strlen(pattern);
    if (length == 0 || length >= SENSITIVE_PATTERN_MAX || pattern[length - 1] == '/')
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "must be a path of 1 to %d bytes without a trailing /",
                       SENSITIVE_PATTERN_MAX - 1);
    for (const char *at = pattern + (pattern[0] == '/'); *at != '\0'; components++) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return err_set(e, ERR_INVALID_ARGUMENT, "must not have \"//\", \".\" or \"..\"");
        at += n + (at[n] == '/');
    }
    if (pattern[0] != '/' && components > 2)
        return err_set(e, ERR_INVALID_ARGUMENT, "must begin with / or have one or two components");
    return 0;
}

static bool
put(struct sensitive_table *t, const char *pattern, uint32_t rule, uint32_t when)
{
    uint64_t hash = WATCH_FNV;
    for (const char *p = pattern; *p != '\0'; p++)
        hash = watch_fnv(hash, (unsigned char)*p);
    for (uint32_t probe = 0; probe < WATCH_SENSITIVE_PROBES; probe++) {
        struct watch_sensitive *to = &t->slot[watch_sensitive_slot(hash, probe)];
        if (to->hash != 0)
            continue;
        *to = (struct watch_sensitive){.hash = hash, .rule = rule, .when = when};
        return true;
    }
    return false;
}

static void
put_hint(struct sensitive_table *t, const char *component)
{
    uint64_t begin = 0;
    size_t n = strlen(component);
    for (size_t i = 0; i < n && i < 8; i++)
        begin |= (uint64_t)(unsigned char)component[i] << (8 * i);
    uint32_t bit = watch_hint(begin);
    t->hints.bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

static const char *
last_component(const char *pattern)
{
    const char *slash = strrchr(pattern, '/');
    return slash != NULL ? slash + 1 : pattern;
}

// The last two components of an absolute pattern. NULL: it has only one.
static const char *
last_two(const char *pattern)
{
    const char *at = last_component(pattern) - 1;
    while (at > pattern && at[-1] != '/')
        at--;
    return at > pattern ? at : NULL;
}

bool
anomaly_sensitive_add(struct sensitive_table *t, const char *pattern, uint32_t rule, uint32_t when)
{
    put_hint(t, last_component(pattern));
    const char *two = pattern[0] == '/' ? last_two(pattern) : NULL;
    // A refused file cannot be the job's own, wherever its path seems to start.
    bool fine = two == NULL || put(t, two, rule, when | WATCH_WHEN_DENIED);
    return put(t, pattern, rule, when) && fine;
}

uint32_t
anomaly_sensitive_fill(struct sensitive_table *t, const struct sensitive_config *c)
{
    uint32_t lost = 0;
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < PATTERNS; i++) {
        if (c->without[i])
            continue;
        const char *pattern = patterns[i].pattern;
        if (patterns[i].hint == NULL) {
            lost += !anomaly_sensitive_add(t, pattern, i, patterns[i].when);
            continue;
        }
        put_hint(t, patterns[i].hint);
        lost += !put(t, pattern, i, patterns[i].when);
    }
    for (uint32_t i = 0; i < c->own_n; i++)
        lost += !anomaly_sensitive_add(t, c->own[i], WATCH_SENSITIVE + i, 0);
    return lost;
}

// ---- paths of rules

struct written_paths {
    struct sensitive_table *t; // NULL: they are only checked
    uint32_t n, lost;
    struct err *e;
    int rc;
};

// Sensitive paths are watched in any case.
static void
add_written(void *cookie, const char *path, bool below)
{
    struct written_paths *w = cookie;
    struct err e;
    char pattern[SENSITIVE_PATTERN_MAX + 1];
    size_t n = strnlen(path, sizeof pattern - 1);
    memcpy(pattern, path, n);
    pattern[n] = '\0';
    if (below && n > 1 && pattern[n - 1] == '/')
        pattern[n - 1] = '\0';
    if (w->rc < 0 || anomaly_sensitive_find(pattern) >= 0)
        return;
    if (w->n == SENSITIVE_WRITTEN_MAX)
        w->rc = err_set(w->e, ERR_INVALID_ARGUMENT,
                        "rules about SENSITIVE_OPEN name more than %d paths that the kernel would "
                        "have to report",
                        SENSITIVE_WRITTEN_MAX);
    else if (anomaly_sensitive_check(pattern, &e) < 0)
        w->rc = err_set(w->e, ERR_INVALID_ARGUMENT, "the path %.64s of a rule %s", path, e.text);
    if (w->rc < 0)
        return;
    if (w->t != NULL)
        w->lost += !anomaly_sensitive_add(w->t, pattern, WATCH_SENSITIVE_WRITTEN + w->n,
                                          below ? 0 : WATCH_WHEN_LAST);
    w->n++;
}

uint32_t
anomaly_sensitive_rules(struct sensitive_table *t, const struct detect *rules)
{
    struct err ignored;
    struct written_paths w = {.t = t, .e = &ignored};
    detect_paths(rules, add_written, &w);
    return w.lost;
}

int
anomaly_sensitive_check_rules(const struct detect *rules, struct err *e)
{
    struct written_paths w = {.e = e};
    detect_paths(rules, add_written, &w);
    return w.rc;
}

uint32_t
anomaly_sensitive_write(const struct sensitive_table *t, int sensitive_fd, int hints_fd)
{
    uint32_t lost = 0;
    uint32_t zero = 0;
    for (uint32_t i = 0; i < WATCH_SENSITIVE_SLOTS; i++)
        if (bpf_map_update_elem(sensitive_fd, &i, &t->slot[i], BPF_ANY) < 0)
            lost++;
    if (bpf_map_update_elem(hints_fd, &zero, &t->hints, BPF_ANY) < 0)
        lost++;
    return lost;
}
