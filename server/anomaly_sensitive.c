// See anomaly_sensitive.h.
#include "anomaly_sensitive.h"

#include <bpf/bpf.h>

#include "bpf.h"

// Keys and credentials; the memory and environment of other processes; the kernel; what starts by itself. Nothing that
// honest programs, or agents that believe to be root, look at on their own: /etc/passwd, /root, .npmrc, .bash_history, which
// every interactive shell opens, and .netrc, which git opens by way of curl, are none.
static const char *const patterns[] = {
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".git-credentials",
    "id_rsa",
    "id_ed25519",
    "docker.sock",
    "containerd.sock",
    "release_agent",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/crontab",
    "/etc/cron.d",
    "/etc/ld.so.preload",
    "/var/spool/cron",
    "/proc/#/environ",
    "/proc/#/mem",
    "/proc/#/root",
    "/proc/kcore",
    "/proc/kallsyms",
    "/proc/sysrq-trigger",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/sys/kernel/debug",
    "/sys/kernel/uevent_helper",
    "/sys/firmware",
    "/dev/mem",
    "/dev/kmem",
    "/dev/port",
};
_Static_assert(sizeof patterns / sizeof patterns[0] <= WATCH_SENSITIVE, "as many as there may be");

const char *
anomaly_sensitive_at(uint32_t i)
{
    return i < sizeof patterns / sizeof patterns[0] ? patterns[i] : NULL;
}

int
anomaly_sensitive_place(struct watch_sensitive table[WATCH_SENSITIVE_SLOTS], const char *pattern,
                        uint32_t rule)
{
    uint64_t hash = WATCH_FNV;
    for (const char *p = pattern; *p != '\0'; p++)
        hash = watch_fnv(hash, (unsigned char)*p);
    for (uint32_t probe = 0; probe < WATCH_SENSITIVE_PROBES; probe++) {
        uint32_t at = watch_sensitive_slot(hash, probe);
        if (table[at].hash != 0)
            continue;
        table[at] = (struct watch_sensitive){.hash = hash, .rule = rule};
        return (int)at;
    }
    return -1;
}

uint32_t
anomaly_sensitive_write(const struct bpf *bpf)
{
    static struct watch_sensitive table[WATCH_SENSITIVE_SLOTS];
    uint32_t lost = 0;
    if (bpf == NULL || bpf->fd[BPF_FD_SENSITIVE] < 0)
        return 0;
    for (uint32_t i = 0; anomaly_sensitive_at(i) != NULL; i++) {
        int at = anomaly_sensitive_place(table, anomaly_sensitive_at(i), i);
        uint32_t key = (uint32_t)at;
        if (at < 0 || bpf_map_update_elem(bpf->fd[BPF_FD_SENSITIVE], &key, &table[at], BPF_ANY) < 0)
            lost++;
    }
    return lost;
}
