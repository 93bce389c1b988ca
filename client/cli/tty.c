// SPDX-License-Identifier: Apache-2.0
// See tty.h.
#include "tty.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t is_raw;

void
tty_restore(void)
{
    if (!is_raw)
        return;
    is_raw = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

// tcsetattr is async-signal-safe (signal-safety(7)).
static void
on_crash(int number)
{
    if (is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void
restore_on_crash(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = on_crash};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaction(numbers[i], &action, NULL);
}

bool
tty_raw(void)
{
    if (is_raw)
        return true;
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return false;
    struct termios raw = saved;
    cfmakeraw(&raw);
    (void)atexit(tty_restore);
    restore_on_crash();
    is_raw = 1;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0) {
        is_raw = 0;
        return false;
    }
    return true;
}

void
tty_size(uint32_t *rows, uint32_t *columns)
{
    static const int fds[] = {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO};
    *rows = 24;
    *columns = 80;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        struct winsize size;
        if (ioctl(fds[i], TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
            *rows = size.ws_row > 4096 ? 4096 : size.ws_row;
            *columns = size.ws_col > 4096 ? 4096 : size.ws_col;
            return;
        }
    }
}
