// SPDX-License-Identifier: Apache-2.0
// Detects memory leaks at the end of a process: builds with AddressSanitizer report them on stderr and exit with
// another status, which the tests check. Other builds do nothing. Call it last, after everything was taken down.
#pragma once

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define LEAK_WITH_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAK_WITH_ASAN
#endif
#endif

#ifdef LEAK_WITH_ASAN
#include <sanitizer/allocator_interface.h>
#include <sanitizer/lsan_interface.h>
#include <sys/prctl.h>

// The sanitizer's helper must trace this process, which a non-dumpable process does not allow.
static inline void
leak_judge(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    __lsan_do_leak_check();
}

// Bytes that are allocated now, for a process whose filter prevents tracing: memory that is allocated at the end but
// not at the start is leaked.
static inline size_t
leak_allocated(void)
{
    return __sanitizer_get_current_allocated_bytes();
}
#else
static inline void
leak_judge(void)
{
}

static inline size_t
leak_allocated(void)
{
    return 0;
}
#endif
