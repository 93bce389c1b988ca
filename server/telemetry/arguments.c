// SPDX-License-Identifier: Apache-2.0
// The arguments of an executed program, which are bytes that a job chose.
#include <stdlib.h>
#include <string.h>

#include "event_draft.h"
#include "server/base/log.h"

size_t
telemetry_add_argument(char *out, size_t at, size_t out_n, const char *arg)
{
    char escaped[4 * WATCH_ARGV + 1];
    bool plain = arg[0] != '\0' && strpbrk(arg, " \"\\'") == NULL;
    (void)log_escape(arg, escaped, sizeof escaped);
    plain = plain && strcmp(escaped, arg) == 0;
    int n = snprintf(out + at, out_n - at, plain ? "%s%s" : "%s\"%s\"", at > 0 ? " " : "", escaped);
    return n < 0 || (size_t)n >= out_n - at ? out_n - 1 : at + (size_t)n;
}

bool
telemetry_names_nameless(const struct watch_exec *e)
{
    char argv[WATCH_ARGV + 4] = {0};
    uint32_t n = e->args_n < WATCH_ARGV ? e->args_n : WATCH_ARGV;
    memcpy(argv, e->argv, n);
    for (uint32_t i = 0; e->nameless != 0 && i + 4 < n; i++) {
        if (memcmp(argv + i, "/fd/", 4) != 0)
            continue;
        unsigned long fd = strtoul(argv + i + 4, NULL, 10);
        if (fd < 32 && (e->nameless >> fd & 1) != 0)
            return true;
    }
    return false;
}
