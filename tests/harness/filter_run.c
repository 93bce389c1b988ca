// SPDX-License-Identifier: Apache-2.0
// See filter_run.h.
#include "tests/harness/filter_run.h"

static uint32_t
load(const struct seccomp_data *data, uint32_t at)
{
    assert_true(at % 4 == 0 && at < sizeof *data);
    uint32_t word;
    memcpy(&word, (const char *)data + at, sizeof word);
    return word;
}

static bool
jumps(const struct sock_filter *i, uint32_t a)
{
    switch (BPF_OP(i->code)) {
    case BPF_JEQ:
        return a == i->k;
    case BPF_JGT:
        return a > i->k;
    case BPF_JGE:
        return a >= i->k;
    case BPF_JSET:
        return (a & i->k) != 0;
    default:
        fail_msg("jump %x", i->code);
        return false;
    }
}

uint32_t
run(const struct filter *f, const struct seccomp_data *data)
{
    uint32_t a = 0;
    uint32_t scratch[16] = {0};
    for (unsigned pc = 0; pc < f->n; pc++) {
        const struct sock_filter *i = &f->code[pc];
        if (i->code == (BPF_LD | BPF_W | BPF_ABS))
            a = load(data, i->k);
        else if (i->code == (BPF_LD | BPF_MEM))
            a = scratch[i->k];
        else if (i->code == BPF_ST)
            scratch[i->k] = a;
        else if (i->code == (BPF_ALU | BPF_AND | BPF_K))
            a &= i->k;
        else if (i->code == (BPF_JMP | BPF_JA))
            pc += i->k;
        else if (BPF_CLASS(i->code) == BPF_JMP)
            pc += jumps(i, a) ? i->jt : i->jf;
        else if (i->code == (BPF_RET | BPF_K))
            return i->k;
        else
            fail_msg("instruction %x", i->code);
    }
    fail_msg("ran off the end");
    return 0;
}
