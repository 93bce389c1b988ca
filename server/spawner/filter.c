// See filter.h. libseccomp turns the tables of filter_rules.c into a decision tree: what is listed is allowed, the rest is
// EPERM, another architecture kills. Before it stand a few instructions for what its rules cannot say:
//
//   a number above those reviewed     -> ENOSYS, as on a kernel that does not have it (also -1)
//   ioctl with TIOCSTI or TIOCLINUX   -> EPERM; compared in the low 32 bits, which are all that the kernel looks at
//
// x32 numbers (bit 30) pass this part and are killed by libseccomp's.
#include "filter.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../proto/auto.h"
#include "filter_rules.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the low half of an argument comes first");

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "no filter for this architecture yet"
#endif

enum { X32_BIT = 0x40000000, CODE_MAX = 4096 };

#define WORD(field) ((uint32_t)offsetof(struct seccomp_data, field))
#define ERROR(n)    (SECCOMP_RET_ERRNO | (n))

static const struct sock_filter prologue[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 0, 10),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 6, 0),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, FILTER_NR_REVIEWED, 3, 5),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(args[1])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 1, 2),
    BPF_STMT(BPF_RET | BPF_K, ERROR(ENOSYS)),
    BPF_STMT(BPF_RET | BPF_K, ERROR(EPERM)),
};
enum { PROLOGUE_N = sizeof prologue / sizeof prologue[0] };

static int
add_rules(scmp_filter_ctx ctx, const struct filter_rule *rules, unsigned n, struct err *e)
{
    for (unsigned i = 0; i < n; i++) {
        struct scmp_arg_cmp args[FILTER_ARGS_MAX];
        unsigned count = 0;
        while (count < FILTER_ARGS_MAX && rules[i].args[count].mask != 0) {
            const struct filter_arg *a = &rules[i].args[count];
            args[count++] = (struct scmp_arg_cmp){a->index, SCMP_CMP_MASKED_EQ, .datum_a = a->mask,
                                                  .datum_b = a->value};
        }
        if (rules[i].nr < 0)
            continue;
        int rc = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rules[i].nr, count, args);
        if (rc < 0)
            return err_sys(e, -rc, "filter: allow system call %d", rules[i].nr);
    }
    return 0;
}

static int
add_absent(scmp_filter_ctx ctx, const int *numbers, unsigned n, struct err *e)
{
    for (unsigned i = 0; i < n; i++) {
        int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), numbers[i], 0);
        if (rc < 0)
            return err_sys(e, -rc, "filter: hide system call %d", numbers[i]);
    }
    return 0;
}

static int
add_all(scmp_filter_ctx ctx, bool guest, struct err *e)
{
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc < 0)
        return err_sys(e, -rc, "filter: set attributes");
    rc = add_rules(ctx, filter_job_rules, filter_job_rules_n, e);
    if (rc == 0 && guest)
        rc = add_rules(ctx, filter_guest_rules, filter_guest_rules_n, e);
    if (rc == 0 && !guest)
        rc = add_absent(ctx, filter_absent_job, filter_absent_job_n, e);
    return rc < 0 ? rc : add_absent(ctx, filter_absent_both, filter_absent_both_n, e);
}

// The whole program in a memfd: the prologue, then what libseccomp makes.
static int
write_program(scmp_filter_ctx ctx, struct err *e)
{
    int auto_close fd = memfd_create("stockade-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || write(fd, prologue, sizeof prologue) != (ssize_t)sizeof prologue)
        return err_sys(e, errno, "filter: create a memory file");
    int rc = seccomp_export_bpf(ctx, fd);
    if (rc < 0)
        return err_sys(e, -rc, "filter: export");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(e, errno, "filter: seal");
    return take_fd(&fd);
}

static int
read_program(int fd, struct filter *f, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "filter: read back");
    size_t n = (size_t)st.st_size / sizeof(struct sock_filter);
    if (n > CODE_MAX)
        return err_set(e, ERR_INTERNAL, "filter: %zu instructions; the kernel takes %d", n,
                       CODE_MAX);
    struct sock_filter *auto_free code = malloc((size_t)st.st_size);
    if (code == NULL)
        return err_sys(e, ENOMEM, "filter: read back");
    if (pread(fd, code, (size_t)st.st_size, 0) != st.st_size)
        return err_sys(e, EIO, "filter: read back");
    f->code = take_ptr(code);
    f->n = (unsigned short)n;
    return 0;
}

static int
compile(bool guest, struct filter *f, int *program_fd, struct err *e)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (ctx == NULL)
        return err_sys(e, ENOMEM, "filter: begin");
    int rc = add_all(ctx, guest, e);
    int auto_close fd = rc < 0 ? rc : write_program(ctx, e);
    seccomp_release(ctx);
    if (fd < 0)
        return fd;
    rc = read_program(fd, f, e);
    if (rc == 0)
        *program_fd = take_fd(&fd);
    return rc;
}

int
filter_compile(struct filter *guest, struct filter *job, int *job_fd, struct err *e)
{
    struct filter g = {0};
    struct filter j = {0};
    int auto_close guest_fd = -1;
    int rc = compile(true, &g, &guest_fd, e);
    if (rc == 0)
        rc = compile(false, &j, job_fd, e);
    if (rc < 0) {
        free(g.code);
        return rc;
    }
    *guest = g;
    *job = j;
    return 0;
}

int
filter_load(const struct filter *f, struct err *e)
{
    const struct sock_fprog program = {.len = f->n, .filter = f->code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_sys(e, errno, "load the system call filter");
    return 0;
}
