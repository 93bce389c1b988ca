// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The few kernel types that our programs read, each with only the fields that they read. The offsets come from the
// running kernel's BTF (CO-RE, docs/bpf/btf.rst). libbpf's headers need the fixed-size types from here.
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
    __u64 id;
};

struct cgroup {
    int level;
    struct kernfs_node *kn;
    struct cgroup *ancestors[]; // 6.1; before: ancestor_ids
};

struct css_set {
    struct cgroup *dfl_cgrp;
};

typedef struct {
    unsigned int val;
} kuid_t;

struct uid_gid_extent {
    __u32 first, lower_first, count;
};

struct uid_gid_map {
    struct uid_gid_extent extent[5]; // larger maps are stored elsewhere
    __u32 nr_extents;
};

struct user_namespace {
    struct uid_gid_map uid_map;
    struct user_namespace *parent;
    int level;
};

struct cred {
    kuid_t uid;
    struct user_namespace *user_ns;
};

struct super_block {
    unsigned long s_magic;
};

struct inode {
    unsigned short i_mode;
    kuid_t i_uid;
    unsigned int i_rdev;
    struct super_block *i_sb;
    unsigned long i_ino;
    unsigned int i_nlink;
    long long i_size;
};

struct hlist_bl_node {
    struct hlist_bl_node *next, **pprev;
};

struct qstr {
    __u32 len;
    const unsigned char *name;
};

struct dentry {
    struct hlist_bl_node d_hash;
    struct dentry *d_parent;
    struct qstr d_name;
    unsigned char d_iname[32];
};

union shortname_store {
    unsigned char string[40];
};

struct dentry___short { // since Linux 6.14
    union shortname_store d_shortname;
};

struct vfsmount {
    struct dentry *mnt_root;
};

struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
};

struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
};

struct file {
    struct inode *f_inode;
    struct path f_path;
    unsigned int f_mode;
    void *private_data;
    const struct cred *f_cred;
};

struct list_head {
    struct list_head *next;
};

struct tty_struct {
    struct tty_struct *link; // its other end
    struct list_head tty_files;
};

struct tty_file_private {
    struct tty_struct *tty;
    struct file *file;
    struct list_head list; // in tty_struct.tty_files
};

struct in6_addr {
    __u8 bytes[16];
};

struct sock_common {
    __be32 skc_daddr;
    __be16 skc_dport;
    unsigned short skc_family;
    unsigned char skc_state;
    struct in6_addr skc_v6_daddr;
};

struct sock {
    struct sock_common __sk_common;
};

struct socket {
    struct sock *sk;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
    unsigned long *open_fds;
};

struct files_struct {
    struct fdtable *fdt;
};

struct fs_struct {
    struct path root, pwd;
};

struct upid {
    int nr;
};

struct pid {
    unsigned int level;
    struct upid numbers[1];
};

struct mm_struct {
    unsigned long task_size;
    unsigned long start_code, end_code;
    unsigned long arg_start, arg_end, env_end;
    struct file *exe_file;
};

typedef struct {
    int counter;
} atomic_t;

struct rlimit {
    unsigned long rlim_cur, rlim_max;
};

struct signal_struct {
    atomic_t live;
    int nr_threads;
    struct list_head thread_head;
    int group_exit_code;
    unsigned int flags;
    struct mm_struct *oom_mm;
    struct rlimit rlim[16];
};

struct task_struct {
    int pid;
    int tgid;
    int exit_code;
    __u64 start_time;
    struct css_set *cgroups;
    struct task_struct *group_leader, *real_parent;
    struct pid *thread_pid;
    struct list_head thread_node;
    struct mm_struct *mm;
    const struct cred *cred;
    struct fs_struct *fs;
    struct files_struct *files;
    struct signal_struct *signal;
    char comm[16];
};

struct linux_binprm {
    const char *filename;
};

union __sifields {
    struct {
        int _syscall;
        unsigned int _arch;
    } _sigsys;
};

struct kernel_siginfo {
    int si_code;
    union __sifields _sifields;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r10, r8, dx, si, di, orig_ax, ip;
};
#define PROGRAM_COUNTER ip
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __u64 regs[31];
    __u64 pc;
    __u64 orig_x0;
    int syscallno;
};
#define PROGRAM_COUNTER pc
#endif

#pragma clang attribute pop
