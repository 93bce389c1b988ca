// SPDX-License-Identifier: Apache-2.0
// The filters as the kernel would run them: an interpreter computes the verdict for each call (filter_run.h). A job
// runs under both programs and gets the stricter verdict, as described in seccomp(2).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/spawner/filter.h"
#include "server/spawner/filter_code.h"
#include "server/spawner/filter_rules.h"
#include "tests/harness/filter_run.h"

#if defined(__x86_64__)
#define NATIVE  AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE  AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif

enum { REVIEWED_ALLOWED = 266 };

static struct filter guest;
static struct filter job;
static int job_fd = -1;

static uint32_t
verdict_of(const struct seccomp_data *data, bool is_job)
{
    uint32_t outer = run(&guest, data);
    uint32_t inner = is_job ? run(&job, data) : SECCOMP_RET_ALLOW;
    // the lower one as a signed number is used, of two alike the one loaded last; KILL_PROCESS is 0x80000000
    return (int32_t)(inner & SECCOMP_RET_ACTION_FULL) <= (int32_t)(outer & SECCOMP_RET_ACTION_FULL)
               ? inner
               : outer;
}

static uint32_t
verdict_on(uint32_t arch, int nr, uint64_t a0, uint64_t a1, uint64_t a2, bool is_job)
{
    const struct seccomp_data data = {.nr = nr, .arch = arch, .args = {a0, a1, a2}};
    return verdict_of(&data, is_job);
}

static uint32_t
verdict(int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return verdict_on(NATIVE, nr, a0, a1, a2, true);
}

static void
expect(uint32_t got, uint32_t wanted, int nr)
{
    if (got != wanted)
        fail_msg("system call %d: %08x instead of %08x", nr, got, wanted);
}

#define REFUSED     (SECCOMP_RET_ERRNO | EPERM)
#define ABSENT      (SECCOMP_RET_ERRNO | ENOSYS)
#define UNSUPPORTED (SECCOMP_RET_ERRNO | EOPNOTSUPP)
#define INVALID     (SECCOMP_RET_ERRNO | EINVAL)
#define ALLOWED     SECCOMP_RET_ALLOW

// SECURITY.md has the reasons.
static const int must_stay_refused[] = {
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(fanotify_mark),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(acct),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(quotactl),
    SCMP_SYS(quotactl_fd),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(syslog),
    SCMP_SYS(vhangup),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(sysfs),
    SCMP_SYS(ustat),
    SCMP_SYS(uselib),
    SCMP_SYS(mbind),
    SCMP_SYS(set_mempolicy),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(migrate_pages),
    SCMP_SYS(move_pages),
    SCMP_SYS(set_mempolicy_home_node),
    SCMP_SYS(kcmp),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(process_madvise),
    SCMP_SYS(process_mrelease),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(remap_file_pages),
    SCMP_SYS(vmsplice),
    SCMP_SYS(memfd_secret),
    SCMP_SYS(nfsservctl),
    SCMP_SYS(_sysctl),
    SCMP_SYS(sync),
};

static void
calls_that_must_stay_refused_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof must_stay_refused / sizeof must_stay_refused[0]; i++)
        if (must_stay_refused[i] >= 0)
            expect(verdict(must_stay_refused[i], 0, 0, 0), REFUSED, must_stay_refused[i]);
}

static void
calls_that_libc_can_do_without_are_absent(void **state)
{
    (void)state;
    expect(verdict(SCMP_SYS(clone3), 0, 88, 0), ABSENT, SCMP_SYS(clone3));
    for (int nr = 453; nr <= 469; nr++) // map_shadow_stack ... file_setattr
        if (nr != 462)                  // mseal
            expect(verdict(nr, 0, 0, 0), ABSENT, nr);
}

static void
no_file_gets_an_attribute_that_no_limit_counts(void **state)
{
    (void)state;
    for (unsigned i = 0; i < filter_unsupported_n; i++)
        expect(verdict(filter_unsupported[i], 0, 0, 0), UNSUPPORTED, filter_unsupported[i]);
    expect(verdict(SYS_getxattr, 0, 0, 0), ALLOWED, SYS_getxattr);
}

static void
huge_pages_of_the_host_are_refused(void **state)
{
    (void)state;
    const struct {
        int nr;
        unsigned index;
        uint64_t huge;
    } calls[] = {{SYS_mmap, 3, MAP_HUGETLB},
                 {SYS_memfd_create, 1, MFD_HUGETLB},
                 {SYS_shmget, 2, SHM_HUGETLB}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct seccomp_data data = {.nr = calls[i].nr, .arch = NATIVE};
        expect(verdict_of(&data, true), ALLOWED, data.nr);
        data.args[calls[i].index] = calls[i].huge;
        expect(verdict_of(&data, true), REFUSED, data.nr);
        data.args[calls[i].index] |= UINT64_C(30) << 26 | UINT64_C(1) << 63; // of 1 GiB
        expect(verdict_of(&data, true), REFUSED, data.nr);
    }
}

static void
unknown_numbers_are_absent_and_kill_nothing(void **state)
{
    (void)state;
    static const int unknown[] = {470, 500, 1000, 100000, 0x3fffffff, -1};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        expect(verdict(unknown[i], 0, 0, 0), ABSENT, unknown[i]);
}

static void
another_architecture_kills(void **state)
{
    (void)state;
    for (int nr = 0; nr < 500; nr++)
        expect(verdict_on(FOREIGN, nr, 0, 0, 0, true), SECCOMP_RET_KILL_PROCESS, nr);
#ifdef __x86_64__
    for (int nr = 0; nr < 600; nr++) // x32
        expect(verdict(0x40000000 + nr, 0, 0, 0), SECCOMP_RET_KILL_PROCESS, nr);
#endif
}

static void
new_namespaces_are_refused_with_any_other_flags(void **state)
{
    (void)state;
    static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
                                          CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
                                          CLONE_NEWNET};
    static const uint64_t company[] = {0, 17, CLONE_VM | CLONE_VFORK, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++)
        for (size_t k = 0; k < sizeof company / sizeof company[0]; k++)
            expect(verdict(SYS_clone, namespaces[i] | company[k], 0, 0), REFUSED, SYS_clone);
    expect(verdict(SYS_clone, 17, 0, 0), ALLOWED, SYS_clone);
    expect(verdict(SYS_clone, 0x3d0f00 /* pthread_create */, 0, 0), ALLOWED, SYS_clone);
}

static bool
socket_is_allowed(uint64_t family, uint64_t type, uint64_t protocol)
{
    type &= ~(uint64_t)(SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (family == AF_UNIX)
        return true;
    if (family == AF_NETLINK)
        return (type == SOCK_RAW || type == SOCK_DGRAM) && protocol == 0;
    if (family != AF_INET && family != AF_INET6)
        return false;
    uint64_t ping = family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    return (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
           (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP || protocol == ping));
}

static void
sockets_are_of_four_families_and_none_is_raw(void **state)
{
    (void)state;
    static const uint64_t types[] = {SOCK_STREAM,    SOCK_DGRAM, SOCK_RAW,   SOCK_RDM,
                                     SOCK_SEQPACKET, SOCK_DCCP,  SOCK_PACKET};
    for (uint64_t family = 0; family < 64; family++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
            for (uint64_t protocol = 0; protocol < 300; protocol++) {
                uint64_t type = types[t] | (protocol % 2 != 0 ? SOCK_CLOEXEC | SOCK_NONBLOCK : 0);
                bool audit = family == AF_NETLINK && protocol == NETLINK_AUDIT;
                uint32_t wanted = socket_is_allowed(family, type, protocol) ? ALLOWED : REFUSED;
                wanted = audit ? SECCOMP_RET_ERRNO | EPROTONOSUPPORT : wanted;
                if (verdict(SYS_socket, family, type, protocol) != wanted)
                    fail_msg("socket(%d, %d, %d)", (int)family, (int)type, (int)protocol);
            }
    const uint64_t high = UINT64_C(1) << 32;
    expect(verdict(SYS_socket, AF_ALG | high, SOCK_SEQPACKET, 0), REFUSED, SYS_socket);
    expect(verdict(SYS_socket, AF_INET, SOCK_RAW | high, IPPROTO_TCP), REFUSED, SYS_socket);
    expect(verdict(SYS_socketpair, AF_INET, SOCK_STREAM, 0), REFUSED, SYS_socketpair);
    expect(verdict(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0), ALLOWED, SYS_socketpair);
}

static void
typing_into_a_terminal_is_refused_with_any_high_bits(void **state)
{
    (void)state;
    for (int bit = 31; bit < 64; bit++) {
        uint64_t high = bit == 31 ? 0 : UINT64_C(1) << bit;
        expect(verdict(SYS_ioctl, 0, TIOCSTI | high, 0), REFUSED, SYS_ioctl);
        expect(verdict(SYS_ioctl, 0, TIOCLINUX | high, 0), REFUSED, SYS_ioctl);
        expect(verdict(SYS_ioctl, 0, TIOCSETD | high, 0), REFUSED, SYS_ioctl);
        expect(verdict(SYS_ioctl, 0, TCGETS | high, 0), ALLOWED, SYS_ioctl);
    }
    expect(verdict(SYS_ioctl, 0, TIOCSTI + 1, 0), ALLOWED, SYS_ioctl);
    expect(verdict(SYS_ioctl, TIOCSTI, 0, TIOCSTI), ALLOWED, SYS_ioctl);
}

static void
requests_about_disks_and_time_stamps_are_not_supported(void **state)
{
    (void)state;
    static const uint32_t requests[] = {1,          0x8906,     0x8907,    0x80108906,
                                        0x80108907, 0xc020660b, 0xc0c0583b};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        expect(verdict(SYS_ioctl, 3, requests[i], 0), SECCOMP_RET_ERRNO | EOPNOTSUPP, SYS_ioctl);
        expect(verdict(SYS_ioctl, 3, requests[i] | UINT64_C(1) << 33, 0),
               SECCOMP_RET_ERRNO | EOPNOTSUPP, SYS_ioctl);
        expect(verdict(SYS_ioctl, 3, requests[i] + 8, 0), ALLOWED, SYS_ioctl);
    }
}

static void
no_pipe_grows_whatever_the_high_bits(void **state)
{
    (void)state;
    for (uint64_t command = 0; command < 2048; command++)
        expect(verdict(SYS_fcntl, 1, command, 1 << 20), command == F_SETPIPE_SZ ? REFUSED : ALLOWED,
               SYS_fcntl);
    expect(verdict(SYS_fcntl, 1, F_SETPIPE_SZ | UINT64_C(1) << 40, 1), REFUSED, SYS_fcntl);
    expect(verdict(SYS_fcntl, F_SETPIPE_SZ, F_GETPIPE_SZ, F_SETPIPE_SZ), ALLOWED, SYS_fcntl);
}

static void
no_socket_gets_a_program_whatever_the_high_bits(void **state)
{
    (void)state;
    const uint32_t unsupported = SECCOMP_RET_ERRNO | EOPNOTSUPP;
    for (uint64_t option = 0; option < 300; option++) {
        bool attaches = option == SO_ATTACH_FILTER || option == SO_ATTACH_BPF ||
                        option == SO_ATTACH_REUSEPORT_CBPF || option == SO_ATTACH_REUSEPORT_EBPF;
        for (int bit = 31; bit < 64; bit++) {
            uint64_t high = bit == 31 ? 0 : UINT64_C(1) << bit;
            expect(verdict(SYS_setsockopt, 0, SOL_SOCKET | high, option | high),
                   attaches ? unsupported : ALLOWED, SYS_setsockopt);
            expect(verdict(SYS_setsockopt, 0, IPPROTO_IPV6 | high, option), ALLOWED,
                   SYS_setsockopt);
        }
    }
    expect(verdict(SYS_setsockopt, SOL_SOCKET, 0, SO_ATTACH_FILTER), ALLOWED, SYS_setsockopt);
    expect(verdict(SYS_getsockopt, 0, SOL_SOCKET, SO_ATTACH_FILTER), ALLOWED, SYS_getsockopt);
}

static void
personalities_that_weaken_memory_are_refused(void **state)
{
    (void)state;
    static const uint64_t allowed[] = {0, 8, 0x20000, 0x20008, 0xffffffff};
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
        expect(verdict(SYS_personality, allowed[i], 0, 0), ALLOWED, SYS_personality);
    for (int bit = 0; bit < 32; bit++)
        if (bit != 3 && bit != 17)
            expect(verdict(SYS_personality, UINT64_C(1) << bit, 0, 0), REFUSED, SYS_personality);
}

static void
devices_cannot_be_made(void **state)
{
    (void)state;
    const int nr = SYS_mknodat;
    expect(verdict(nr, 0, 0, S_IFCHR | 0666), REFUSED, nr);
    expect(verdict(nr, 0, 0, S_IFBLK | 0666), REFUSED, nr);
    expect(verdict(nr, 0, 0, S_IFBLK | 0666 | 0x10000), REFUSED, nr);
    expect(verdict(nr, 0, 0, S_IFIFO | 0666), ALLOWED, nr);
    expect(verdict(nr, 0, 0, 0666), ALLOWED, nr);
    // nor the character device 0:0, which is a deleted file for overlay
    struct seccomp_data data = {.nr = SYS_renameat2, .arch = NATIVE, .args[4] = RENAME_NOREPLACE};
    expect(verdict_of(&data, true), ALLOWED, SYS_renameat2);
    data.args[4] = RENAME_WHITEOUT;
    expect(verdict_of(&data, true), REFUSED, SYS_renameat2);
}

static void
prctl_is_a_list(void **state)
{
    (void)state;
    static const int refused[] = {PR_SET_MM,     PR_SET_PTRACER,    PR_SET_SYSCALL_USER_DISPATCH,
                                  PR_SCHED_CORE, PR_SET_IO_FLUSHER, PR_MCE_KILL,
                                  9999};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        expect(verdict(SYS_prctl, (uint64_t)refused[i], 0, 0), REFUSED, refused[i]);
    expect(verdict(SYS_prctl, PR_SET_NAME, 0, 0), ALLOWED, SYS_prctl);
    expect(verdict(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0), ALLOWED, SYS_prctl);
}

static void
real_time_priority_for_io_is_refused(void **state)
{
    (void)state;
    expect(verdict(SYS_ioprio_set, 1, 0, 1 << 13), REFUSED, SYS_ioprio_set);
    expect(verdict(SYS_ioprio_set, 1, 0, 2 << 13 | 4), ALLOWED, SYS_ioprio_set);
}

static void
a_job_can_load_no_filter_of_its_own(void **state)
{
    (void)state;
    expect(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0), INVALID, SYS_seccomp);
    assert_true(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8, 0) != ALLOWED); // a listener
    expect(verdict(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0), REFUSED, SYS_prctl);
    expect(verdict_on(NATIVE, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0, false), ALLOWED,
           SYS_seccomp);
}

// The complete list of numbers that are allowed with all arguments zero, on x86-64, so that every change is noticed.
static void
the_list_of_what_is_allowed_is_the_reviewed_one(void **state)
{
    (void)state;
    unsigned allowed = 0;
    unsigned absent = 0;
    unsigned unsupported = 0;
    for (int nr = 0; nr < 470; nr++) {
        uint32_t v = verdict(nr, 0, 0, 0);
        assert_true(v == ALLOWED || v == REFUSED || v == ABSENT || v == UNSUPPORTED ||
                    v == INVALID);
        allowed += v == ALLOWED;
        absent += v == ABSENT;
        unsupported += v == UNSUPPORTED;
    }
#ifdef __x86_64__
    assert_int_equal(allowed, REVIEWED_ALLOWED);
#endif
    assert_int_equal(absent, 17);
    assert_int_equal(unsupported, 3);
}

static void
the_guest_can_only_start_jobs(void **state)
{
    (void)state;
    expect(verdict_on(NATIVE, SYS_clone3, 0, 88, 0, false), ALLOWED, SYS_clone3);
    expect(verdict_on(NATIVE, SYS_keyctl, 1, 0, 0, false), ALLOWED, SYS_keyctl);
    expect(verdict_on(NATIVE, SYS_keyctl, 11, 0, 0, false), REFUSED, SYS_keyctl);
    static const int refused[] = {SYS_mount,  SYS_setns,         SYS_unshare,         SYS_ptrace,
                                  SYS_chroot, SYS_bpf,           SYS_pivot_root,      SYS_open_tree,
                                  SYS_fsopen, SYS_mount_setattr, SYS_process_vm_readv};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        expect(verdict_on(NATIVE, refused[i], 0, 0, 0, false), REFUSED, refused[i]);
}

static void
the_jobs_program_is_in_a_sealed_file(void **state)
{
    (void)state;
    struct sock_filter code[64];
    ssize_t bytes = (ssize_t)(job.n * sizeof code[0]);
    assert_int_equal(pread(job_fd, code, sizeof code, 0), bytes);
    assert_memory_equal(code, job.code, (size_t)bytes);
    assert_int_equal(pwrite(job_fd, code, 8, 0), -1);
    assert_int_equal(ftruncate(job_fd, 0), -1);
}

// libseccomp's program for the same tables.
static void
compile_with_libseccomp(struct filter *out)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    assert_non_null(ctx);
    assert_int_equal(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), 0);
    assert_int_equal(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), 0);
    for (unsigned i = 0; i < filter_job_rules_n + filter_guest_extras_n; i++) {
        const struct filter_rule *rule = i < filter_job_rules_n
                                             ? &filter_job_rules[i]
                                             : &filter_guest_extras[i - filter_job_rules_n].rule;
        struct scmp_arg_cmp args[FILTER_ARGS_MAX];
        unsigned n = 0;
        for (; n < FILTER_ARGS_MAX && rule->args[n].mask != 0; n++)
            args[n] = (struct scmp_arg_cmp){rule->args[n].index, SCMP_CMP_MASKED_EQ,
                                            rule->args[n].mask, rule->args[n].value};
        if (rule->nr >= 0)
            assert_int_equal(seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rule->nr, n, args), 0);
    }
    for (unsigned i = 0; i < filter_absent_n; i++)
        assert_int_equal(
            seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(ENOSYS), filter_absent[i], 0, NULL), 0);
    for (unsigned i = 0; i < filter_unsupported_n; i++)
        assert_int_equal(
            seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EOPNOTSUPP), filter_unsupported[i], 0, NULL),
            0);
    static struct sock_filter code[4096];
    int fd = memfd_create("libseccomp", MFD_CLOEXEC);
    assert_int_equal(seccomp_export_bpf(ctx, fd), 0);
    seccomp_release(ctx);
    ssize_t bytes = pread(fd, code, sizeof code, 0);
    assert_true(bytes > 0);
    (void)close(fd);
    *out = (struct filter){code, (unsigned short)((size_t)bytes / sizeof code[0])};
}

enum { PROBES_MAX = 1024, ARGS_N = 5 }; // no rule looks at the sixth

// Values of one argument that a rule compares, their neighbours, and some with bits outside of the masks.
static size_t
probes_of(int nr, unsigned index, uint64_t out[PROBES_MAX])
{
    size_t n = 0;
    out[n++] = 0;
    out[n++] = UINT64_MAX;
    for (unsigned i = 0; i < filter_job_rules_n + filter_guest_extras_n; i++) {
        const struct filter_rule *rule = i < filter_job_rules_n
                                             ? &filter_job_rules[i]
                                             : &filter_guest_extras[i - filter_job_rules_n].rule;
        for (unsigned a = 0; rule->nr == nr && a < FILTER_ARGS_MAX; a++) {
            const struct filter_arg *arg = &rule->args[a];
            if (arg->mask == 0 || arg->index != index)
                continue;
            assert_true(n + 8 <= PROBES_MAX);
            const uint64_t v = arg->value;
            const uint64_t more[] = {v,
                                     v + 1,
                                     v - 1,
                                     v | ~arg->mask,
                                     v ^ arg->mask,
                                     v | UINT64_C(1) << 32,
                                     v | UINT64_C(1) << 31,
                                     v | UINT64_C(1) << 63};
            memcpy(out + n, more, sizeof more);
            n += sizeof more / sizeof more[0];
        }
    }
    return n;
}

static void
every_verdict_is_libseccomps(void **state)
{
    (void)state;
    struct filter other;
    compile_with_libseccomp(&other);
    static uint64_t probes[ARGS_N][PROBES_MAX];
    unsigned compared = 0;
    for (int nr = 0; nr <= FILTER_NR_REVIEWED; nr++) {
        size_t n[ARGS_N];
        size_t all = 1;
        if (filter_looks_at_more(nr)) // tests of their own, here and in filter_arguments.c
            continue;
        for (unsigned i = 0; i < ARGS_N; i++)
            all *= n[i] = probes_of(nr, i, probes[i]);
        for (size_t i = 0; i < all; i++) {
            struct seccomp_data data = {.nr = nr, .arch = NATIVE};
            for (size_t a = 0, left = i; a < ARGS_N; left /= n[a], a++)
                data.args[a] = probes[a][left % n[a]];
            if (run(&guest, &data) != run(&other, &data))
                fail_msg("system call %d, probe %zu: %08x, libseccomp says %08x", nr, i,
                         run(&guest, &data), run(&other, &data));
            compared++;
        }
    }
    assert_true(compared > 10000);
    // the purpose: the kernel has to verify and compile it for each sandbox
    print_message("%u instructions, libseccomp %u; %u verdicts\n", guest.n, other.n, compared);
    assert_true(guest.n * 5 < other.n * 3);
}

static int
setup(void **state)
{
    (void)state;
    struct err e;
    return filter_compile(&guest, &job, &job_fd, &e);
}

static int
teardown(void **state)
{
    (void)state;
    free(guest.code);
    free(job.code);
    return close(job_fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_must_stay_refused_are_refused),
        cmocka_unit_test(calls_that_libc_can_do_without_are_absent),
        cmocka_unit_test(no_file_gets_an_attribute_that_no_limit_counts),
        cmocka_unit_test(huge_pages_of_the_host_are_refused),
        cmocka_unit_test(unknown_numbers_are_absent_and_kill_nothing),
        cmocka_unit_test(another_architecture_kills),
        cmocka_unit_test(new_namespaces_are_refused_with_any_other_flags),
        cmocka_unit_test(sockets_are_of_four_families_and_none_is_raw),
        cmocka_unit_test(typing_into_a_terminal_is_refused_with_any_high_bits),
        cmocka_unit_test(requests_about_disks_and_time_stamps_are_not_supported),
        cmocka_unit_test(no_pipe_grows_whatever_the_high_bits),
        cmocka_unit_test(no_socket_gets_a_program_whatever_the_high_bits),
        cmocka_unit_test(personalities_that_weaken_memory_are_refused),
        cmocka_unit_test(devices_cannot_be_made),
        cmocka_unit_test(prctl_is_a_list),
        cmocka_unit_test(real_time_priority_for_io_is_refused),
        cmocka_unit_test(a_job_can_load_no_filter_of_its_own),
        cmocka_unit_test(the_list_of_what_is_allowed_is_the_reviewed_one),
        cmocka_unit_test(the_guest_can_only_start_jobs),
        cmocka_unit_test(the_jobs_program_is_in_a_sealed_file),
        cmocka_unit_test(every_verdict_is_libseccomps),
    };
    return cmocka_run_group_tests_name("filter", tests, setup, teardown);
}
