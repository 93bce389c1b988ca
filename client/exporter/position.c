// SPDX-License-Identifier: Apache-2.0
// See position.h.
#include "position.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

enum { POSITION_BYTES = 38 }; // 16 digits, a blank, 20 digits, a line break

int
position_open_file(const char *path, int flags, struct err *e)
{
    struct stat st;
    int auto_close fd =
        open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: not a regular file", path);
    if (fchmod(fd, 0600) < 0)
        return err_sys(e, errno, "change the mode of %s", path);
    return take_fd(&fd);
}

static void
read_it(struct position *p)
{
    char text[POSITION_BYTES + 1] = "";
    char instance[POSITION_INSTANCE] = "";
    uint64_t sequence = 0;
    if (pread(p->fd, text, POSITION_BYTES, 0) != POSITION_BYTES ||
        // NOLINTNEXTLINE(cert-err34-c): %16 and %20 bound it
        sscanf(text, "%16[0-9a-f] %20" SCNu64, instance, &sequence) != 2)
        return;
    memcpy(p->instance, instance, sizeof p->instance);
    p->sequence = sequence;
}

int
position_open(struct position *p, const char *path, struct err *e)
{
    *p = (struct position){.fd = -1};
    int fd = position_open_file(path, O_RDWR, e);
    if (fd < 0)
        return fd;
    p->fd = fd;
    read_it(p);
    return 0;
}

void
position_close(struct position *p)
{
    int auto_close fd = take_fd(&p->fd);
    (void)fd;
}

int
position_note(struct position *p, const char *instance, uint64_t sequence)
{
    char text[POSITION_BYTES + 1];
    if (strlen(instance) != POSITION_INSTANCE - 1)
        return 0;
    memcpy(p->instance, instance, POSITION_INSTANCE);
    p->sequence = sequence;
    (void)snprintf(text, sizeof text, "%s %020" PRIu64 "\n", instance, sequence);
    return pwrite(p->fd, text, POSITION_BYTES, 0) == POSITION_BYTES ? 0 : -EIO;
}

bool
position_has(const struct position *p, const char *instance, uint64_t sequence)
{
    return sequence <= p->sequence && strcmp(p->instance, instance) == 0;
}
