// The few kernel types that our programs read, each with the fields that they read: offsets come from the running
// kernel's BTF (CO-RE, docs/bpf/btf.rst). libbpf's headers expect the fixed-size types from here.
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

struct task_struct {
    int pid;
    int tgid;
    struct css_set *cgroups;
};

#pragma clang attribute pop
