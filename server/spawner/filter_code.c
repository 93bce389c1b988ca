// SPDX-License-Identifier: Apache-2.0
// See filter_code.h. A program is written from its end to its start: jumps only go forward, so the target of a jump
// is written before the jump. A position is the number of instructions from there to the end.
//
//   architecture: kill if not native
//   number: a tree of ranges -> a verdict, or tests of the arguments
//
// In addition to the rules: a number above the reviewed ones, and -1, return ENOSYS; x32 numbers kill. ioctl and
// fcntl are allowed except for some requests, setsockopt except for four options, poll and select except for many
// descriptors, and fadvise except for one advice; these are compared in their low 32 bits, because the kernel ignores
// the others.
#include "filter_code.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "filter_rules.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the low half of an argument comes first");

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "no filter for this architecture yet"
#endif

// A conditional jump reaches 255 instructions; NEAR leaves room for two that may be inserted.
enum { CODE_MAX = 2048, NEAR = 250, RULES_MAX = 96, RANGES_MAX = 1024 };

enum verdict { ALLOW, REFUSE, ABSENT, UNSUPPORTED, INVALID, NOTHING, KILL, VERDICTS_N };

static const uint32_t verdicts[VERDICTS_N] = {
    [ALLOW] = SECCOMP_RET_ALLOW,
    [REFUSE] = SECCOMP_RET_ERRNO | EPERM,
    [ABSENT] = SECCOMP_RET_ERRNO | ENOSYS,
    [UNSUPPORTED] = SECCOMP_RET_ERRNO | EOPNOTSUPP,
    [INVALID] = SECCOMP_RET_ERRNO | EINVAL,
    [NOTHING] = SECCOMP_RET_ERRNO | 0,
    [KILL] = SECCOMP_RET_KILL_PROCESS,
};

struct program {
    struct sock_filter code[CODE_MAX]; // the last instruction first
    unsigned n;
    unsigned verdict[VERDICTS_N]; // the position of the nearest one; 0: none yet
};

// Values from `from` up to the next range lead to the same position.
struct range {
    uint32_t from;
    unsigned to;
};

struct ranges {
    struct range range[RANGES_MAX];
    unsigned n;
};

struct rules {
    const struct filter_rule *rule[RULES_MAX];
    unsigned n;
};

static unsigned
put(struct program *p, struct sock_filter instruction)
{
    assert(p->n < CODE_MAX);
    p->code[p->n++] = instruction;
    return p->n;
}

// A position within reach that leads to `to`.
static unsigned
come_near(struct program *p, unsigned to)
{
    if (p->n - to <= NEAR)
        return to;
    return put(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, p->n - to));
}

static unsigned
verdict(struct program *p, enum verdict v)
{
    if (p->verdict[v] == 0 || p->n - p->verdict[v] > NEAR)
        p->verdict[v] = put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdicts[v]));
    return p->verdict[v];
}

static unsigned
jump(struct program *p, uint16_t test, uint32_t value, unsigned yes, unsigned no)
{
    if (yes == no)
        return yes;
    yes = come_near(p, yes);
    no = come_near(p, no);
    return put(p, (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | BPF_K | test), value,
                                               (uint8_t)(p->n - yes), (uint8_t)(p->n - no)));
}

static unsigned
load(struct program *p, size_t offset)
{
    return put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void
add_range(struct ranges *r, uint32_t from, unsigned to)
{
    if (r->n > 0 && r->range[r->n - 1].from == from)
        r->n--; // an empty range
    if (r->n > 0 && r->range[r->n - 1].to == to)
        return;
    assert(r->n < RANGES_MAX);
    r->range[r->n++] = (struct range){from, to};
}

// Searches the loaded value in the ranges.
static unsigned
tree(struct program *p, const struct range *r, unsigned n)
{
    if (n == 1)
        return r[0].to;
    if (n == 3 && r[0].to == r[2].to && r[2].from == r[1].from + 1)
        return jump(p, BPF_JEQ, r[1].from, r[1].to, r[0].to);
    unsigned half = n / 2;
    unsigned high = tree(p, r + half, n - half);
    unsigned low = tree(p, r, half);
    return jump(p, BPF_JGE, r[half].from, high, low);
}

// Makes the instruction that is written next continue at `to`.
static void
fall_to(struct program *p, unsigned to)
{
    if (to != p->n)
        (void)put(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, p->n - to));
}

// Loads one 32-bit half of an argument, applies the mask, and tests it.
static unsigned
test_half(struct program *p, const struct filter_arg *a, bool high, const struct ranges *r)
{
    uint32_t mask = (uint32_t)(high ? a->mask >> 32 : a->mask);
    fall_to(p, tree(p, r->range, r->n));
    if (mask != UINT32_MAX)
        (void)put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    return load(p, offsetof(struct seccomp_data, args) + a->index * sizeof(uint64_t) +
                       (high ? sizeof(uint32_t) : 0));
}

// Moves the rules that compare the same bits of the same argument with the same value, within the bits of `half`.
static void
take(struct rules *from, unsigned depth, const struct filter_arg *like, uint64_t half,
     struct rules *out)
{
    unsigned left = 0;
    out->n = 0;
    for (unsigned i = 0; i < from->n; i++) {
        const struct filter_arg *a = &from->rule[i]->args[depth];
        bool same = a->index == like->index && a->mask == like->mask &&
                    (a->value & half) == (like->value & half);
        if (same)
            out->rule[out->n++] = from->rule[i];
        else
            from->rule[left++] = from->rule[i];
    }
    from->n = left;
}

// The lowest value of the rules' argument, so that ranges are in order.
static const struct filter_arg *
least(const struct rules *rules, unsigned depth)
{
    const struct filter_arg *found = &rules->rule[0]->args[depth];
    for (unsigned i = 1; i < rules->n; i++) {
        const struct filter_arg *a = &rules->rule[i]->args[depth];
        if (a->value < found->value)
            found = a;
    }
    return found;
}

static void
add_value(struct ranges *r, uint32_t value, unsigned to, unsigned fail)
{
    add_range(r, value, to);
    if (value != UINT32_MAX)
        add_range(r, value + 1, fail);
}

static unsigned test_rules(struct program *p, struct rules rules, unsigned depth, unsigned fail);

// Rules on the same argument, with the same mask and upper half.
static unsigned
test_low(struct program *p, struct rules rules, unsigned depth, unsigned fail)
{
    const struct filter_arg any = rules.rule[0]->args[depth];
    struct ranges r = {.n = 0};
    struct rules same;
    add_range(&r, 0, fail);
    while (rules.n > 0) {
        const struct filter_arg *a = least(&rules, depth);
        uint32_t value = (uint32_t)a->value;
        take(&rules, depth, a, UINT64_MAX, &same);
        add_value(&r, value, test_rules(p, same, depth + 1, fail), fail);
    }
    return test_half(p, &any, false, &r);
}

// Rules on the same argument, with the same mask.
static unsigned
test_argument(struct program *p, struct rules rules, unsigned depth, unsigned fail)
{
    const struct filter_arg any = rules.rule[0]->args[depth];
    if (any.mask >> 32 == 0)
        return test_low(p, rules, depth, fail);
    struct ranges r = {.n = 0};
    struct rules same;
    add_range(&r, 0, fail);
    while (rules.n > 0) {
        const struct filter_arg *a = least(&rules, depth);
        uint32_t value = (uint32_t)(a->value >> 32);
        take(&rules, depth, a, ~(uint64_t)UINT32_MAX, &same);
        add_value(&r, value, test_low(p, same, depth, fail), fail);
    }
    return test_half(p, &any, true, &r);
}

// Allows if one of the rules matches; otherwise goes to `fail`.
static unsigned
test_rules(struct program *p, struct rules rules, unsigned depth, unsigned fail)
{
    for (unsigned i = 0; i < rules.n; i++) {
        if (depth == FILTER_ARGS_MAX || rules.rule[i]->args[depth].mask == 0)
            return verdict(p, ALLOW);
    }
    while (rules.n >
           0) { // the last written one is tested first; if it fails, the one written before is next
        struct rules same;
        take(&rules, depth, &rules.rule[0]->args[depth], 0, &same);
        fail = test_argument(p, same, depth, fail);
    }
    return fail;
}

// ioctl is allowed, except requests that type into a terminal, that make the kernel load a module for a terminal
// (TIOCSETD), that show where the host's files are on its disks, and that enable time stamps for every packet of the
// host. A file system or socket without these requests returns EOPNOTSUPP or ENOTTY.
static unsigned
test_ioctl(struct program *p)
{
    static const struct filter_arg request = {.index = 1, .mask = UINT32_MAX};
    static const struct {
        uint32_t request;
        enum verdict verdict;
    } rows[] = {
        {1 /* FIBMAP */, UNSUPPORTED},
        {TIOCSTI, REFUSE},
        {TIOCLINUX, REFUSE},
        {TIOCSETD, REFUSE},
        {0x8906 /* SIOCGSTAMP */, UNSUPPORTED},
        {0x8907 /* SIOCGSTAMPNS */, UNSUPPORTED},
        {0x80108906 /* SIOCGSTAMP_NEW */, UNSUPPORTED},
        {0x80108907 /* SIOCGSTAMPNS_NEW */, UNSUPPORTED},
        {0xc020660b /* FS_IOC_FIEMAP */, UNSUPPORTED},
        {0xc0c0583b /* FS_IOC_GETFSMAP */, UNSUPPORTED},
    };
    struct ranges r = {.n = 0};
    unsigned allow = verdict(p, ALLOW);
    add_range(&r, 0, allow);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert(i == 0 || rows[i - 1].request < rows[i].request);
        add_value(&r, rows[i].request, verdict(p, rows[i].verdict), allow);
    }
    return test_half(p, &request, false, &r);
}

// fcntl is allowed, except for enlarging a pipe: the pipes of a job's stdio belong to the broker, whose account has a
// limit on the pages of all pipes (fs.pipe-user-pages-soft). When it is used up, the pipes of new jobs get only a
// sixteenth.
static unsigned
test_fcntl(struct program *p)
{
    static const struct filter_arg command = {.index = 1, .mask = UINT32_MAX};
    struct ranges r = {.n = 0};
    unsigned allow = verdict(p, ALLOW);
    add_range(&r, 0, allow);
    add_value(&r, F_SETPIPE_SZ, verdict(p, REFUSE), allow);
    return test_half(p, &command, false, &r);
}

// setsockopt is allowed, except for attaching programs to sockets: compiled programs use memory that is limited for
// the whole host, which the filters of seccomp also need (filter_rules.c). Programs such as libpcap work without.
static unsigned
test_setsockopt(struct program *p)
{
    static const struct filter_arg level = {.index = 1, .mask = UINT32_MAX};
    static const struct filter_arg option = {.index = 2, .mask = UINT32_MAX};
    struct ranges r = {.n = 0};
    unsigned allow = verdict(p, ALLOW);
    unsigned refuse = verdict(p, UNSUPPORTED);
    _Static_assert(SO_ATTACH_FILTER < SO_ATTACH_BPF &&
                       SO_ATTACH_BPF + 1 == SO_ATTACH_REUSEPORT_CBPF &&
                       SO_ATTACH_BPF + 2 == SO_ATTACH_REUSEPORT_EBPF,
                   "in order");
    add_range(&r, 0, allow);
    add_value(&r, SO_ATTACH_FILTER, refuse, allow);
    add_range(&r, SO_ATTACH_BPF, refuse);
    add_range(&r, SO_ATTACH_REUSEPORT_EBPF + 1, allow);
    unsigned of_socket = test_half(p, &option, false, &r);
    r.n = 0;
    add_range(&r, 0, allow);
    add_value(&r, SOL_SOCKET, of_socket, allow);
    return test_half(p, &level, false, &r);
}

// While it waits, poll keeps 64 to 128 bytes per descriptor that no cgroup is charged for: 4 MiB per thread with a limit of
// 65536 files. What waits for more descriptors uses epoll, whose memory is charged.
static unsigned
test_descriptors(struct program *p, uint8_t index)
{
    const struct filter_arg number = {.index = index, .mask = UINT32_MAX};
    struct ranges r = {.n = 0};
    add_range(&r, 0, verdict(p, ALLOW));
    add_range(&r, FILTER_POLL_MAX + 1, verdict(p, INVALID));
    return test_half(p, &number, false, &r);
}

static unsigned
test_poll(struct program *p)
{
    return test_descriptors(p, 1);
}

static unsigned
test_select(struct program *p)
{
    return test_descriptors(p, 0);
}

// The pages of /usr are the host's: a job could drop them from memory again and again, so that all others read them from
// the disk. The sandbox's own files have none that could be dropped.
static unsigned
test_fadvise(struct program *p)
{
    static const struct filter_arg advice = {.index = 3, .mask = UINT32_MAX};
    struct ranges r = {.n = 0};
    unsigned allow = verdict(p, ALLOW);
    add_range(&r, 0, allow);
    add_value(&r, POSIX_FADV_DONTNEED, verdict(p, NOTHING), allow);
    return test_half(p, &advice, false, &r);
}

// Calls that are allowed except for some arguments.
static unsigned (*test_of(int nr))(struct program *)
{
    static const struct {
        int nr;
        unsigned (*test)(struct program *);
    } rows[] = {
        {__NR_ioctl, test_ioctl},
        {__NR_fcntl, test_fcntl},
        {__NR_setsockopt, test_setsockopt},
        {__NR_fadvise64, test_fadvise},
        {__NR_ppoll, test_poll},
        {__NR_pselect6, test_select},
#ifdef __NR_poll
        {__NR_poll, test_poll},
        {__NR_select, test_select},
#endif
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].nr == nr)
            return rows[i].test;
    return NULL;
}

bool
filter_looks_at_more(int nr)
{
    return test_of(nr) != NULL;
}

static void
find_rules(int nr, struct rules *out)
{
    out->n = 0;
    for (unsigned i = 0; i < filter_job_rules_n; i++) {
        if (filter_job_rules[i].nr == nr)
            out->rule[out->n++] = &filter_job_rules[i];
    }
    for (unsigned i = 0; i < filter_guest_extras_n; i++) {
        if (filter_guest_extras[i].rule.nr == nr)
            out->rule[out->n++] = &filter_guest_extras[i].rule;
    }
    assert(out->n < RULES_MAX - 1);
}

// The verdict on all calls of that number, or VERDICTS_N: depends on the arguments.
static enum verdict
constant(int nr, const struct rules *rules)
{
    if (test_of(nr) != NULL && rules->n > 0)
        return VERDICTS_N;
    for (unsigned i = 0; i < rules->n; i++) {
        if (rules->rule[i]->args[0].mask == 0)
            return ALLOW;
    }
    for (unsigned i = 0; i < filter_absent_n; i++) {
        if (filter_absent[i] == nr)
            return ABSENT;
    }
    for (unsigned i = 0; i < filter_unsupported_n; i++) {
        if (filter_unsupported[i] == nr)
            return UNSUPPORTED;
    }
    return rules->n == 0 ? REFUSE : VERDICTS_N;
}

static void
write_program(struct program *p)
{
    enum { NUMBERS = FILTER_NR_REVIEWED + 1 };
    static unsigned tests[NUMBERS];
    static enum verdict always[NUMBERS];
    static struct ranges r;
    struct rules rules;
    for (int nr = 0; nr < NUMBERS; nr++) {
        find_rules(nr, &rules);
        always[nr] = constant(nr, &rules);
        if (always[nr] == VERDICTS_N)
            tests[nr] =
                test_of(nr) != NULL ? test_of(nr)(p) : test_rules(p, rules, 0, verdict(p, REFUSE));
    }
    // written again, so that all constant verdicts share their instructions
    unsigned verdict_at[VERDICTS_N];
    for (int v = 0; v < VERDICTS_N; v++)
        verdict_at[v] = put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdicts[v]));
    r.n = 0;
    for (uint32_t nr = 0; nr < NUMBERS; nr++)
        add_range(&r, nr, always[nr] == VERDICTS_N ? tests[nr] : verdict_at[always[nr]]);
    add_range(&r, NUMBERS, verdict_at[ABSENT]);
#ifdef __x86_64__
    add_range(&r, FILTER_X32_BIT, verdict_at[KILL]);
#endif
    add_range(&r, UINT32_MAX, verdict_at[ABSENT]);
    fall_to(p, tree(p, r.range, r.n));
    unsigned number = load(p, offsetof(struct seccomp_data, nr));
    (void)jump(p, BPF_JEQ, NATIVE, number, verdict_at[KILL]);
    (void)load(p, offsetof(struct seccomp_data, arch));
}

int
filter_code_make(struct filter *f, struct err *e)
{
    static struct program p;
    p.n = 0;
    memset(p.verdict, 0, sizeof p.verdict);
    write_program(&p);
    struct sock_filter *code = malloc(p.n * sizeof *code);
    if (code == NULL)
        return err_sys(e, ENOMEM, "filter: write");
    for (unsigned i = 0; i < p.n; i++)
        code[i] = p.code[p.n - 1 - i];
    *f = (struct filter){.code = code, .n = (unsigned short)p.n};
    return 0;
}
