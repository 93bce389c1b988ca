// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Verdicts on connect(2) and sendto(2) of unix sockets by name. Needs Linux 6.7. It is an object of its own, so
// earlier kernels lack only this.
//
// These programs are not what protects the host's sockets. Abstract names belong to the network namespace. Host
// folders that a template shares are lower layers of the root's overlay: the kernel finds a listening socket by its
// inode, and the overlay has inodes of its own, whatever path leads there (links, another working directory,
// /proc/self/root). So a job may connect to every socket that it can name; all of them belong to its own sandbox.
//
// These programs refuse everything to a sandbox without an entry (fail closed). They also refuse names below /usr,
// where no sandbox has a socket of its own, with EPERM, and report them: such a job looks for sockets of the host.
#include "vmlinux_min.h"

#include "emit.h"
#include "net.h"

enum { AF_UNIX = 1, PATH_AT = 2, DENY = 0, ALLOW = 1 };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BPF_SLOTS);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct net_counters);
} net_counters SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_sock_addr_kern {
    void *uaddr;
    __u32 uaddrlen;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;

static __always_inline void report_denied(const struct bpf_sandbox *box, const char *path)
{
    __u32 slot = box->slot;
    __u64 cgroup = bpf_get_current_ancestor_cgroup_id((int)sandbox_level + 1);
    struct net_counters *n = bpf_map_lookup_elem(&net_counters, &slot);
    if (n)
        __sync_fetch_and_add(&n->denied[NET_UNIX], 1);
    const __u64 *text = (const __u64 *)path;
    bool first =
        emit_is_first(box->slot, box->generation, text[0] * 0x9e3779b97f4a7c15ULL ^ text[1]);
    struct event *e =
        emit_begin(box, cgroup, EVENT_DENIED, CLASS_DENIAL, sizeof(struct net_event), first);
    if (!e)
        return;
    struct net_event *body = (struct net_event *)(e + 1);
    __builtin_memset(body, 0, sizeof *body);
    __builtin_memcpy(body->address, path, sizeof body->address);
    body->family = AF_UNIX;
    body->reason = NET_UNIX;
    body->hook = NET_HOOK_UNIX;
    body->rule = ~0U;
    bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline int verdict(struct bpf_sock_addr *ctx)
{
    __u64 id = bpf_get_current_ancestor_cgroup_id((int)sandbox_level);
    const struct bpf_sandbox *box = bpf_map_lookup_elem(&sandboxes, &id);
    char path[16] = {0};
    if (!box)
        return DENY;
    struct bpf_sock_addr_kern *k = bpf_cast_to_kern_ctx(ctx);
    const char *address = k->uaddr;
    __u32 n = k->uaddrlen;
    n = n > PATH_AT ? n - PATH_AT : 0;
    if (n > sizeof path)
        n = sizeof path;
    if (!address || bpf_probe_read_kernel(path, n, address + PATH_AT) < 0)
        return ALLOW;
    if (__builtin_memcmp(path, "/usr", 4) != 0 || (path[4] != '/' && path[4] != '\0'))
        return ALLOW;
    report_denied(box, path);
    return DENY;
}

// The loader sets the attach types of these, BPF_CGROUP_UNIX_CONNECT and _SENDMSG, because its libbpf has no section
// names for them.
SEC("cgroup/connect4")
int net_unix_connect(struct bpf_sock_addr *ctx)
{
    return verdict(ctx);
}

SEC("cgroup/sendmsg4")
int net_unix_sendmsg(struct bpf_sock_addr *ctx)
{
    return verdict(ctx);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
