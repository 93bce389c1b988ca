// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and the spawner: one header for both ends of their socket.
//
// The spawner is root; the broker, which parses data from strangers, is not. So every operation has a fixed size, and
// names a sandbox by a slot number that the spawner has assigned. No request contains a path of the host. The spawner checks each
// request against its table of operations and the state of the slot (like OpenSSH's monitor). An invalid request
// means that the broker is faulty or hostile, and ends everything. Only one request comes with descriptors,
// SPAWN_ROOT, and it is not the broker's.
//
//   broker --SOCK_SEQPACKET, one struct per packet--> spawner:   struct spawn_request
//   spawner --------------------------------------> broker:      struct spawn_reply, with descriptors (SCM_RIGHTS)
//
// Replies contain the request's seq and come in any order. The first packet is the struct spawn_config; the reply to
// it has op SPAWN_CONFIGURE, followed by a struct spawn_features in the same packet.
#pragma once

#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/err.h"

// Numbers of agents' cgroups (sandbox/agent.h), above those of all jobs.
#define SPAWN_AGENT_FIRST UINT32_C(0x80000000)

enum {
    SPAWN_PATH_MAX = 256,
    SPAWN_ROOTS_MAX = 48,       // including replaced ones that are still in use
    SPAWN_ROOT_LAYERS_MAX = 16, // a skeleton, /usr, and up to 14 further folders
    SPAWN_SLOTS_MAX = 4095,     // ranges of ids between 0x70010000 and 0x80000000
    SPAWN_IDS_PER_SANDBOX = 65536,
    SPAWN_FDS_MAX = 8,
    SPAWN_SOCKET_FD = 3,     // the spawner finds its end of the socket here after exec
    SPAWN_HOSTS_OF_ROOT = 8, // folders of the host that its sandboxes may have mounted
    SPAWN_ROOT_FDS_MAX = SPAWN_ROOT_LAYERS_MAX + 1 + SPAWN_HOSTS_OF_ROOT,
    SPAWN_DISKS_MAX = 1024,      // open ones
    SPAWN_DISK_RUNS_MAX = 8,     // of MAKE, OPEN and REMOVE that are in progress
    SPAWN_MOUNTS_OF_SANDBOX = 8, // of disks
    SPAWN_AT_MAX = 128,          // a path inside a sandbox
    SPAWN_DIGEST_BYTES = 32,     // of a layer in the state directory (keeper/keep.h)
    SPAWN_KEEPERS_MAX = 4,       // at a time

    // Ids inside a sandbox.
    SANDBOX_UID_JOB = 1000, // "agent"
    SANDBOX_UID_GUEST = 999,
    // The guest's where jobs are root inside: the last id of the range. The user namespace does not map it, so root inside
    // cannot become the guest's user.
    SANDBOX_UID_GUEST_OF_ROOT = SPAWN_IDS_PER_SANDBOX - 1,
    SANDBOX_UID_OVERFLOW = 65534, // as which an id without a mapping is seen (user_namespaces(7))

    // Descriptors that the guest finds after exec.
    GUEST_FD_BROKER = 3,  // SOCK_SEQPACKET to the broker
    GUEST_FD_CGROUP = 4,  // the sandbox's cgroup v2 directory, a mount of its own
    GUEST_FD_SECCOMP = 5, // sealed memfd: struct sock_filter[] that every job loads before exec
    GUEST_FD_OOM = 6,     // its own /proc/PID/oom_score_adj, to write

    // proc(5). The kernel kills those with the highest score first, and their minimum is the guest's: root writes it with
    // CAP_SYS_RESOURCE (fs/proc/base.c, __set_oom_adj). The distance is 5 % of the memory that has run out, which is more
    // than a guest has: it is not chosen before a job that is smaller.
    OOM_SCORE_GUEST = 950,
    OOM_SCORE_JOB = 1000,

    // Descriptors that an agent program finds after exec (sandbox/agent.h); 0 to 2 are /dev/null.
    AGENT_FD_SOCKET = 3,  // SOCK_SEQPACKET to the broker
    AGENT_FD_SCRIPT = 4,  // if it has one: a file for reading
    AGENT_FD_PROGRAM = 5, // only until exec
};

// One range of host ids per slot: slot n owns [SPAWN_ID_BASE_DEFAULT + n * 65536, + 65536). systemd's documented use
// of ids (UIDS-GIDS.md) ends below 0x70000000. Range 0 belongs to the broker if no account "stockade" exists.
#define SPAWN_ID_BASE_DEFAULT 0x70000000u
// The account of fetchers: this id of range 0, which no sandbox has.
#define SPAWN_FETCHER_ID 2u

// The largest disk: more than a loop device or a quota has to hold, and far below what either can.
#define SPAWN_DISK_BYTES_MAX  (UINT64_C(16) << 40)
#define SPAWN_DISK_INODES_MAX (UINT32_C(1) << 28)

// Instead of a weight: it runs when no sandbox with a weight wants the CPU (cpu.idle of cgroups, Linux 5.15).
#define SPAWN_WEIGHT_IDLE 0u

// Limits that the kernel enforces per sandbox; none may be 0.
struct spawn_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t inodes;
    uint32_t cpu_millis; // thousandths of a CPU per 100 ms period
    uint32_t cpu_weight; // 1 to 10000; SPAWN_LIMIT also accepts SPAWN_WEIGHT_IDLE
    uint32_t pids;       // of the jobs; the spawner adds the guest
};

struct spawn_config {
    uint32_t version; // SPAWN_VERSION
    uint32_t id_base;
    uint32_t slots;      // at most SPAWN_SLOTS_MAX
    uint32_t broker_uid; // account that may read the cgroup directories
    uint32_t broker_gid;
    uint32_t netns_pool;            // number of ready network namespaces
    char state_dir[SPAWN_PATH_MAX]; // absolute, owned by root, 0755: skeletons of roots, profiles
    // "": find one (delegated subtree, otherwise /stockade); "/name": below the v2 root
    char cgroup[SPAWN_PATH_MAX];
    char guest_path[SPAWN_PATH_MAX]; // the static guest
    // BPF programs and the relay; "": none. The relay's account must not be root's, the broker's or a sandbox's.
    char loader_path[SPAWN_PATH_MAX];
    // The reader (reader/read.h), and the configuration file that it reads: "": the default one. After it has dropped
    // its privileges, the broker cannot change which file that is.
    char reader_path[SPAWN_PATH_MAX];
    char config_file[SPAWN_PATH_MAX];
    // The program that makes, mounts and removes disks (disk/order.h); "": there are none.
    char disk_path[SPAWN_PATH_MAX];
    // Writes layers into the state directory (keeper/keep.h). "": none.
    char keeper_path[SPAWN_PATH_MAX];
    // Fetches files over HTTPS (fetcher/fetch.h), as SPAWN_FETCHER_ID of the first range. "": none.
    char fetcher_path[SPAWN_PATH_MAX];
    char relay_path[SPAWN_PATH_MAX];
    uint32_t relay_uid;
    uint32_t relay_gid;
    struct spawn_limits limits_max; // the maximum for every request
};
#define SPAWN_VERSION 7u

// A feature that was probed at the start. `detail` has the result, and the consequences if it is missing.
struct spawn_feature {
    char name[48];
    char detail[200];
    uint8_t available;
    uint8_t degraded; // missing, which weakens isolation or accounting
};

enum {
    SPAWN_FEATURES_MAX = 48,
    SPAWN_BPF_LOG_MAX = 4096,
};

struct spawn_features {
    uint32_t hybrid; // cgroup v1 controllers beside a v2 hierarchy
    // layers in memory cannot be shared by sandboxes (Linux before 6.3): INHERIT is refused, and GRAFT of such a layer
    // (LAYER_IDS_UNSUPPORTED); COPY is possible
    uint32_t copies_layers;
    uint32_t n;
    // bits of enum spawn_bpf_fd: the descriptors that come with this packet, in that order
    uint32_t bpf_fds;
    uint32_t bpf;                // bits of enum spawn_bpf
    char cgroup[SPAWN_PATH_MAX]; // v2 path in use
    // why programs were not loaded: messages of libbpf and the verifier
    char bpf_log[SPAWN_BPF_LOG_MAX];
    uint32_t leftovers_cleared; // number of sandboxes of an earlier crash that were removed
    struct spawn_feature feature[SPAWN_FEATURES_MAX];
};

// Maps of the BPF programs (bpf/*.h), and the relay's socket; their descriptors come with the reply to the
// configuration.
enum spawn_bpf_fd {
    BPF_FD_SANDBOXES = 0,
    BPF_FD_RULES,
    BPF_FD_NAMES,
    BPF_FD_FLOWS,
    BPF_FD_NET_COUNTERS,
    BPF_FD_ALERTS,
    BPF_FD_EVENTS,
    BPF_FD_BUDGET_RATES,
    BPF_FD_LOST,
    BPF_FD_CELLS,
    BPF_FD_ACCOUNTS,
    BPF_FD_ACCOUNTS_FREE,
    BPF_FD_EXES,
    BPF_FD_PROFILES,
    BPF_FD_PROFILE_STATES,
    BPF_FD_SENSITIVE,
    BPF_FD_OWN,
    BPF_FD_SENSITIVE_HINTS,
    BPF_FD_NAMED,
    BPF_FD_MARKS,
    BPF_FD_CALLS,
    BPF_FD_RELAY, // SOCK_SEQPACKET to the relay (relay.h)
    BPF_FDS,
};

// Loaded and attached programs.
enum spawn_bpf {
    BPF_HAS_NET = 1,      // verdicts: without it "allowlist" and "open" are refused
    BPF_HAS_UNIX = 2,     // unix socket hooks (Linux 6.7)
    BPF_HAS_WATCH = 4,    // exec, fork, exit and others
    BPF_HAS_SYSCALLS = 8, // the syscall tracepoint can be attached (SPAWN_WATCH)
    BPF_HAS_RELAY = 16,
    BPF_HAS_GUARD = 32, // the program that restricts the relay: without it there is no relay
};

enum spawn_op {
    SPAWN_CONFIGURE = 0, // the first reply only
    SPAWN_CREATE = 1,    // slot: free. Reply: the slot number, and descriptors (enum spawn_fd)
    SPAWN_LIMIT = 2,     // slot: live, frozen. Applies limits. Any may be raised or lowered
    // slot: live, frozen. arg 1 freezes, 0 thaws; the reply comes when that is complete. 2 freezes all but a process that copies
    // its files (COPY)
    SPAWN_FREEZE = 3,
    SPAWN_KILL_JOB = 4, // slot: live, frozen. arg: job number. Kills all of job-N, if it exists
    // slot: live, frozen. Kills, waits until empty, unmounts, removes; then replies. arg 1: no process in it could make a socket
    // other than a unix one, so its network namespace may be used again (spawner/netns.c)
    SPAWN_DESTROY = 5,
    // slot: live, frozen. The relay's listeners inside its network namespace, on NET_RELAY_PORT (bpf/net.h). Descriptors:
    // enum spawn_net_fd. Once per sandbox, or again after the relay has ended.
    SPAWN_NET_OPEN = 6,
    // slot: live. A TCP socket inside its network namespace, non-blocking, connecting to loopback at port `arg`: one
    // descriptor. FAILED_PRECONDITION: nothing listens.
    SPAWN_NET_DIAL = 7,
    SPAWN_WATCH = 8, // no slot. arg 1: attach the syscall tracepoint; 0: detach it
    // no slot. Starts a new relay after the earlier one has ended: one descriptor, as BPF_FD_RELAY
    SPAWN_RELAY = 9,
    SPAWN_PING = 10, // no slot. Answered immediately: all earlier requests have been read
    // slot. arg 1 stops all processes of a live sandbox, 0 lets them continue; the reply comes before that is
    // complete. Does nothing during a FREEZE
    SPAWN_HOLD = 11,
    // no slot. Starts the reader after the earlier one has ended: one descriptor, the broker's end of its socket.
    // FAILED_PRECONDITION while another READ waits.
    SPAWN_READ = 12,
    // no slot. arg: a root. No more sandboxes are made of it, and it is removed with its last one. NOT_FOUND: no such
    // root.
    SPAWN_UNROOT = 13,
    SPAWN_ROOT = 14, // only from the reader, on its own socket: struct spawn_root
    // slot: live, all four: layers of its files (spawner/tree_swap.h). Layers have numbers from 1 on; the reply has the one
    // right below the upper layer. If there is a new upper layer, one descriptor: as SPAWN_FD_DISK, which it replaces.
    // FAILED_PRECONDITION: a job runs. RESOURCE_EXHAUSTED: it has too many layers. After a failure all is as before, or the
    // guest ends.
    SPAWN_SEAL = 15,    // what was written since the last one becomes a layer
    SPAWN_RESTORE = 16, // arg: a layer. The upper one is dropped
    // arg: a layer of from_slot, which is live or frozen. The slot has no layers yet; the reply's are 1 to its number,
    // the lowest first. After a failure the guest ends.
    SPAWN_INHERIT = 17,
    SPAWN_DROP = 18, // arg: a layer on which no other lies. FAILED_PRECONDITION: one does
    // No slot, all three: a disk, named by its id and arg, its enum spawn_disk_kind (disk/order.h). UNAVAILABLE with the reason
    // DISKS_BUSY: SPAWN_DISK_RUNS_MAX are in progress. FAILED_PRECONDITION with the reason NO_DISKS: this host has none.
    // limits: disk_bytes, inodes. ALREADY_EXISTS; RESOURCE_EXHAUSTED: the host's disk has no room for it
    SPAWN_DISK_MAKE = 19,
    // NOT_FOUND; UNAVAILABLE: it is in use elsewhere. The reply has its number, and a descriptor as SPAWN_FD_DISK, which the
    // broker closes before CLOSE. It stays open until then
    SPAWN_DISK_OPEN = 20,
    SPAWN_DISK_REMOVE = 21, // succeeds if it does not exist. FAILED_PRECONDITION: it is open
    // no slot. arg: number of an open disk. FAILED_PRECONDITION: a sandbox has it
    SPAWN_DISK_CLOSE = 22,
    // slot: live. arg: number of an open disk, which is mounted at `at`, by an id-mapped mount without set-id and devices.
    // Missing folders are made. INVALID_ARGUMENT: `at` is one of the sandbox's own folders. FAILED_PRECONDITION: a component
    // of it is no folder. It stays there until the sandbox ends, also after SEAL and RESTORE. With other = 1 it is the folder of the
    // host that the slot's root has with this id instead (struct spawn_host), and arg is 0. NOT_FOUND: the root has none;
    // PERMISSION_DENIED: it is not read_only, and jobs must not write to it.
    SPAWN_MOUNT = 23,
    // Start a keeper (keeper/keep.h): one descriptor, the broker's end of its socket. RESOURCE_EXHAUSTED: SPAWN_KEEPERS_MAX
    // run already.
    SPAWN_KEEP = 24,   // slot: live, frozen. arg: a layer of it, which the keeper gets
    SPAWN_KEEPER = 25, // no slot. It gets none
    // slot: live. Layer `digest` of the state directory becomes a layer of the slot, on layer `arg` (0: on the root); the
    // reply has its number. NOT_FOUND: it is not there. After a failure all is as before.
    SPAWN_ADOPT = 26,
    // slot: live. Two states of its files, for a comparison: arg and `other` are layers, 0 stands for the files of now. Descriptors:
    // enum spawn_state_fd. NOT_FOUND: no such layer.
    SPAWN_STATES = 27,
    // slot: live. A later job finds nothing of earlier ones (spawner/reset.c); once before the first job, and then before
    // each. Reply and failures as of SEAL; layer 0. arg: the number of an agent that stays, which
    // has one thread; or 0
    SPAWN_RESET = 28,
    // slot: live. Layer `arg` of from_slot, which is live or frozen, becomes a layer of the slot, on layer `other` of it; the reply
    // has its number. What it holds counts to the slot's limits. Nothing else changes: a RESTORE shows its files. NOT_FOUND: no such
    // layer or sandbox; RESOURCE_EXHAUSTED: LAYERS, or DISK_FULL: it does not fit. After a failure all is as before.
    SPAWN_GRAFT = 29,
    // slot: live, frozen. A new layer on layer `other` (0: on the root), with a copy of its layers from arg down to that one; or (arg 0) of
    // what was written since the last one, for which FREEZE 2 must be in force; or (from_generation not 0) with a copy of layer arg of
    // from_slot, which is live or frozen, with the ids of this slot. limits: disk_bytes, inodes: at most. The reply has the
    // new layer's number, and a keeper that waits for the order to copy (keeper/keep.h): one descriptor, the broker's end of its
    // socket. Nothing that is shown changes. FAILED_PRECONDITION: another copy is in progress. RESOURCE_EXHAUSTED: LAYERS, KEEPERS,
    // COPY_BYTES, DISK_FULL. After a failure of the keeper the broker drops the layer.
    SPAWN_COPY = 30,
    // slot: live, frozen. arg: that layer is complete. other: files on this layer, which has the same ones as the copy, are files on
    // the copy from now on; 0: none. NOT_FOUND: it is not being copied
    SPAWN_COPIED = 31,
    // slot: live. A new layer on layer `other` (0: on the root), for the files of `digest` of the state directory, which is sealed
    // (keeper/keep.h). limits: disk_bytes, inodes: at most; it gets what the sandbox's limits leave of them. Reply, order and failures as
    // of COPY, COPIED included. NOT_FOUND: it is not there, or not sealed.
    SPAWN_UNSEAL = 32,
    // no slot. Starts a fetcher (fetcher/fetch.h), which is killed after `arg` seconds: one descriptor, the broker's end of its socket.
    // RESOURCE_EXHAUSTED with the reason FETCHERS: the one before still runs. They have the same account, so one that was taken over
    // must not see another one.
    SPAWN_FETCHER = 33,
    // slot: live, frozen. For sandbox/lists.h; arg: enum spawn_lists. `amount`: see there
    SPAWN_LISTS = 34,
};

// Descriptors of a STATES reply, O_PATH, of read-only mounts that no path leads to. What differs between the two states exists in
// one of the last three, which are missing where they would be empty: layers that only one state has, and the upper one. So
// everything else need not be compared. They are for a program inside the sandbox; the broker opens nothing in them.
enum spawn_state_fd {
    STATE_FD_FROM = 0,
    STATE_FD_TO,
    STATE_FD_FROM_ONLY,
    STATE_FD_TO_ONLY,
    STATE_FD_UPPER,
    STATE_FDS,
};

// What disks are for: a part of their names, so that each layer of the broker finds its own. The spawner treats them alike,
// except that the folder of a volume belongs to the job, and that of a layer to root.
enum spawn_disk_kind { SPAWN_DISK_VOLUME, SPAWN_DISK_LAYER, SPAWN_DISK_KINDS_N };

// The kind of its sandboxes (tier.h).
enum spawn_tier { SPAWN_TIER_PROCESS, SPAWN_TIERS_N };

// A folder of the host that sandboxes of a root may have mounted (SPAWN_MOUNT). Its files have the owner and the group of the
// folder itself: if jobs may write to it, those two are the job's ids there, and all other ids are nobody's. Otherwise all are.
struct spawn_host {
    uint8_t id[16]; // of its path: config/template_host_id()
    uint32_t writable;
};

// A root, of which sandboxes are made: layers of folders that the reader opened, because the broker must not choose
// them. Only the reader sends it, with a descriptor per layer, which must be a detached mount (open_tree(2)), one
// more, and another detached mount per folder of the host. The reply is a struct spawn_reply whose `slot` is the root's number, for SPAWN_CREATE; on success err.text
// may be a warning.
//
// Layer 0 is the skeleton, the lowest layer of the sandbox's root directory; layer 1 is /usr. The descriptor after the layers' is
// kept as long as the root exists: the skeleton's folder, locked, so that the next reader knows whether it is in use.
struct spawn_root {
    uint32_t layers_n;
    uint32_t tier; // enum spawn_tier
    // Jobs are root inside: uid 0 of the sandbox's own range, with SPAWN_ROOT_CAPABILITIES.
    uint32_t user_root;
    // /usr and the further folders are writable by them; only with user_root. Otherwise they are read-only mounts there.
    uint32_t writable;
    // The files of its sandboxes are on scratch disks (disk/order.h) instead of in memory. CREATE: FAILED_PRECONDITION with the
    // reason NO_DISKS, RESOURCE_EXHAUSTED: the host's disk has no room. LIMIT cannot change disk_bytes and inodes
    uint32_t on_disk;
    char hostname[64];
    char at[SPAWN_ROOT_LAYERS_MAX][SPAWN_PATH_MAX]; // where each is mounted: "", "/usr", "/opt"
    uint32_t hosts_n;
    struct spawn_host host[SPAWN_HOSTS_OF_ROOT];
};

// What dpkg, apt, npm and pip need as root (capabilities(7)), in the sandbox's own user namespace: CHOWN, DAC_OVERRIDE, FOWNER,
// FSETID, KILL, SETGID, SETUID. All are below 32.
#define SPAWN_ROOT_CAPABILITIES                                                                    \
    (1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER | 1U << CAP_FSETID |              \
     1U << CAP_KILL | 1U << CAP_SETGID | 1U << CAP_SETUID)

// Whether the path is one of the folders that jobs write to, or below one. These exist in the sandbox's own tmpfs alone,
// never in a skeleton: where a folder comes from two layers, overlayfs keeps a list of its names for each descriptor of it
// that read another version, and no cgroup is charged for that memory (tests/escape/uncharged.c).
static inline bool
spawn_is_job_folder(const char *path)
{
    static const char *const folders[] = {"/home/agent", "/tmp", "/var/tmp"};
    for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return false;
}

// Of LISTS. SLABS takes 20 us, UNCHARGED 1 ms and more.
enum spawn_lists {
    // bytes of kernel memory of the host that cannot be reclaimed, charged to a cgroup or not
    SPAWN_LISTS_SLABS,
    // bytes of the general part of it that is charged to none
    SPAWN_LISTS_UNCHARGED,
    // descriptors of the sandbox that can hold a list; `hidden`: on their way through its sockets
    SPAWN_LISTS_FOLDERS,
    SPAWN_LISTS_N,
};

// Descriptors of a NET_OPEN reply. The last two are missing if the kernel has no IPv6.
enum spawn_net_fd { NET_FD_TCP4 = 0, NET_FD_UDP4, NET_FD_TCP6, NET_FD_UDP6 };

struct spawn_request {
    uint32_t op;
    uint32_t seq;
    // Both are ignored if enum spawn_op names no slot, and by CREATE. The generation is that of the CREATE reply,
    // because slots are reused.
    uint32_t slot, generation;
    uint32_t arg;                        // see enum spawn_op; CREATE: root number; others: 0
    uint32_t from_slot, from_generation; // INHERIT, GRAFT, COPY (or 0); others: 0
    uint32_t read_only;                  // MOUNT: 0 or 1; others: 0
    // STATES, GRAFT, COPY, COPIED, UNSEAL: the second layer; MOUNT: 0 or 1; others: 0
    uint32_t other;
    // CREATE: the sandbox's id; its hex form names its cgroup. DISK_*: of a disk. MOUNT with other = 1: of a folder
    uint8_t id[16];
    uint8_t digest[SPAWN_DIGEST_BYTES]; // ADOPT, UNSEAL; others: ignored
    struct spawn_limits limits;         // CREATE, LIMIT, DISK_MAKE, COPY, UNSEAL
    char at[SPAWN_AT_MAX];              // MOUNT: absolute, inside the sandbox; others: ""
};

// Descriptors of a CREATE reply (and DISK_OPEN: the last one), in this order, without missing ones: `fds` has bit n set if enum n is included.
enum spawn_fd {
    SPAWN_FD_GUEST = 0,  // the broker's end of the guest's socket, non-blocking
    SPAWN_FD_CGROUP = 1, // O_RDONLY directory of the v2 cgroup
    SPAWN_FD_MEMORY = 2, // hybrid hosts: v1 directories
    SPAWN_FD_CPU = 3,
    SPAWN_FD_CPUACCT = 4, // never set: every v2 cgroup has cpu.stat
    SPAWN_FD_PIDS = 5,
    SPAWN_FD_BLKIO = 6,
    // O_PATH, of the file system that holds all files that the sandbox writes: for fstatfs(2), which shows how full
    // it is now (no interface shows earlier failed writes). Its contents are hostile, so the broker opens no file of
    // it. It closes this descriptor before it requests DESTROY, because the descriptor keeps the file system's memory
    // allocated.
    SPAWN_FD_DISK = 7,
};

struct spawn_reply {
    uint32_t op;
    uint32_t seq;
    uint32_t slot;
    uint32_t generation;
    uint32_t ok;    // 0: see err
    uint32_t fds;   // bits of enum spawn_fd
    uint32_t uid;   // CREATE: first host id of its range
    uint32_t layer; // SEAL, RESTORE, INHERIT, ADOPT, GRAFT: see there; DISK_OPEN: the disk's number
    uint64_t duration_ns; // duration of the operation
    uint64_t amount;      // LISTS
    uint64_t hidden;      // the same
    struct err err;
};

// The reply to the configuration, on success.
struct spawn_configured {
    struct spawn_reply reply;
    struct spawn_features features;
};
