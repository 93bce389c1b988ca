// SPDX-License-Identifier: Apache-2.0
// Local variables that release what they own when they go out of scope.
//
// Declare a local that owns a resource with one of these, initialize it empty (NULL or -1), and empty it with
// take_ptr() or take_fd() at the one place where ownership leaves the function.
#pragma once

#include <stdlib.h>
#include <unistd.h>

static inline void
auto_free_(void *p)
{
    free(*(void **)p);
}

static inline void
auto_close_(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

// char *auto_free text = strdup("...");
#define auto_free __attribute__((cleanup(auto_free_)))
// int auto_close fd = -1;
#define auto_close __attribute__((cleanup(auto_close_)))

// Passes ownership on: returns the value and empties the variable.
static inline int
take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define take_ptr(p)                                                                                \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
