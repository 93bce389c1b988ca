// SPDX-License-Identifier: Apache-2.0
// See job.h: finds the check by its number and runs it.
#include "job.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "network.h"

const char *self_path;

static const struct check *const sections[] = {
    filesystem_checks, process_checks,    namespace_checks, kernel_checks,
    resource_checks,   credential_checks, corner_checks,    door_checks,
    proc_checks,       socket_checks,     uncharged_checks, root_checks,
};
enum { SECTIONS_N = sizeof sections / sizeof sections[0] };

int
say(enum verdict verdict, const char *fmt, ...)
{
    static const char *const words[] = {
        [HELD] = "held", [ESCAPED] = "ESCAPED", [SKIPPED] = "skipped"};
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("%s: %s\n", words[verdict], text);
    (void)fflush(stdout);
    return (int)verdict;
}

const char *
parameter(const char *name)
{
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

long
parameter_number(const char *name)
{
    return strtol(parameter(name), NULL, 0);
}

bool
refused(long result)
{
    return result == -1 && (errno == EPERM || errno == ENOSYS || errno == EACCES);
}

int
in_child(void (*fn)(void))
{
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        fn();
        _exit(0);
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    return status;
}

static int
list(void)
{
    for (int s = 0; s < SECTIONS_N; s++)
        for (const struct check *c = sections[s]; c->number != 0; c++)
            printf("%d\t%s\t%s\n", c->number, c->says, c->barrier);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc < 2)
        return list();
    self_path = argv[0];
    if (strcmp(argv[1], "network") == 0)
        return network_job(argc - 2, argv + 2);
    long number = strtol(argv[1], NULL, 10);
    for (int s = 0; s < SECTIONS_N; s++)
        for (const struct check *c = sections[s]; c->number != 0; c++)
            if (c->number == number)
                return c->run();
    printf("no check %s\n", argv[1]);
    return 2;
}
