// SPDX-License-Identifier: Apache-2.0
// See filter.h. filter_code.c makes the guest's program; libseccomp makes the one for jobs.
#include "filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "filter_code.h"
#include "filter_rules.h"

enum { CODE_MAX = 4096 };

static int
add_rule(scmp_filter_ctx ctx, uint32_t action, const struct filter_rule *rule, struct err *e)
{
    struct scmp_arg_cmp args[FILTER_ARGS_MAX];
    unsigned n = 0;
    for (; n < FILTER_ARGS_MAX && rule->args[n].mask != 0; n++) {
        const struct filter_arg *a = &rule->args[n];
        args[n] = (struct scmp_arg_cmp){a->index, SCMP_CMP_MASKED_EQ, .datum_a = a->mask,
                                        .datum_b = a->value};
    }
    if (rule->nr < 0) // the call does not exist on this architecture
        return 0;
    int rc = seccomp_rule_add_array(ctx, action, rule->nr, n, args);
    return rc < 0 ? err_sys(e, -rc, "filter: system call %d", rule->nr) : 0;
}

static int
add_job_rules(scmp_filter_ctx ctx, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < filter_guest_extras_n; i++) {
        const struct filter_extra *x = &filter_guest_extras[i];
        rc = add_rule(ctx, SCMP_ACT_ERRNO((uint32_t)x->job_error),
                      &(struct filter_rule){.nr = x->rule.nr}, e);
    }
    for (unsigned i = 0; rc == 0 && i < filter_job_answers_n; i++) {
        const struct filter_extra *x = &filter_job_answers[i];
        rc = add_rule(ctx, SCMP_ACT_ERRNO((uint32_t)x->job_error), &x->rule, e);
    }
    return rc;
}

// Writes libseccomp's program to a memfd.
static int
write_program(scmp_filter_ctx ctx, struct err *e)
{
    int auto_close fd = memfd_create("stockade-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
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
compile_job(struct filter *f, int *program_fd, struct err *e)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (ctx == NULL)
        return err_sys(e, ENOMEM, "filter: begin");
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    rc = rc < 0 ? err_sys(e, -rc, "filter: set attributes") : add_job_rules(ctx, e);
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
    int rc = filter_code_make(&g, e);
    if (rc == 0)
        rc = compile_job(&j, job_fd, e);
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
