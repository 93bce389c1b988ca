// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// For comparison with watch.bpf.c: a program that does nothing at the same tracepoint, and the usual way of counting
// system calls, a hash by cgroup and number.
#include "../../bpf/vmlinux_min.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct key {
    __u64 cgroup;
    __u64 number;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct key);
    __type(value, __u64);
} counts SEC(".maps");

SEC("tp_btf/sys_exit")
int
BPF_PROG(peer_empty, struct pt_regs *regs, long result)
{
    return 0;
}

SEC("tp_btf/sys_exit")
int
BPF_PROG(peer_hash, struct pt_regs *regs, long result)
{
    struct key key = {.cgroup = bpf_get_current_cgroup_id()};
#if defined(__TARGET_ARCH_x86)
    key.number = regs->orig_ax;
#else
    key.number = (__u64)regs->syscallno;
#endif
    __u64 one = 1;
    __u64 *n = bpf_map_lookup_elem(&counts, &key);
    if (n)
        __sync_fetch_and_add(n, 1);
    else
        bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST);
    return 0;
}
