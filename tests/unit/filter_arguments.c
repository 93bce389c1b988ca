// SPDX-License-Identifier: Apache-2.0
// Calls whose arguments filter_code.c compares by itself, as filter.c does it for all others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "server/spawner/filter_code.h"

#include "tests/harness/filter_run.h"

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

static struct filter guest;

static void
expect(int nr, unsigned index, uint64_t value, uint32_t wanted)
{
    struct seccomp_data data = {.nr = nr, .arch = NATIVE};
    if (nr < 0)
        return; // not on this architecture
    data.args[index] = value;
    uint32_t got = run(&guest, &data);
    if (got != wanted)
        fail_msg("system call %d with %llx: %08x", nr, (unsigned long long)value, got);
}

static void
waiting_for_many_descriptors_is_invalid(void **state)
{
    (void)state;
    static const struct {
        int nr;
        unsigned index;
    } calls[] = {{SCMP_SYS(poll), 1}, {SYS_ppoll, 1}, {SCMP_SYS(select), 0}, {SYS_pselect6, 0}};
    static const uint64_t allowed[] = {0, 1, 1000, 1024, UINT64_C(1) << 32 | 1};
    static const uint64_t invalid[] = {1025, 4096, 65536, INT32_MAX, UINT32_MAX, 1 | 1u << 31};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (size_t k = 0; k < sizeof allowed / sizeof allowed[0]; k++)
            expect(calls[i].nr, calls[i].index, allowed[k], SECCOMP_RET_ALLOW);
        for (size_t k = 0; k < sizeof invalid / sizeof invalid[0]; k++)
            expect(calls[i].nr, calls[i].index, invalid[k], SECCOMP_RET_ERRNO | EINVAL);
    }
}

static void
advice_to_drop_pages_does_nothing_whatever_the_high_bits(void **state)
{
    (void)state;
    for (uint64_t advice = 0; advice < 64; advice++)
        for (int bit = 31; bit < 64; bit++)
            expect(SYS_fadvise64, 3, advice | (bit == 31 ? 0 : UINT64_C(1) << bit),
                   advice == POSIX_FADV_DONTNEED ? SECCOMP_RET_ERRNO | 0 : SECCOMP_RET_ALLOW);
}

static int
setup(void **state)
{
    (void)state;
    struct err e;
    return filter_code_make(&guest, &e);
}

static int
teardown(void **state)
{
    (void)state;
    free(guest.code);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_for_many_descriptors_is_invalid),
        cmocka_unit_test(advice_to_drop_pages_does_nothing_whatever_the_high_bits),
    };
    return cmocka_run_group_tests_name("filter_arguments", tests, setup, teardown);
}
