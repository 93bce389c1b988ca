// SPDX-License-Identifier: Apache-2.0
// See foreign.h.
#include "foreign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/auto.h"

enum { ACL_HEAD = 4, ACL_ENTRY = 8 };

static int
refuse(struct err *e, const char *what)
{
    int r = err_set(e, ERR_INVALID_ARGUMENT, "the archive is refused: %s", what);
    err_detail(e, "ARCHIVE_REFUSED", NULL, "load what \"stockade template push\" wrote");
    return r;
}

void
foreign_end(struct foreigners *f)
{
    free(take_ptr(f->link));
    f->links_n = f->links_max = 0;
}

int
foreign_part(const struct foreigners *f, uint64_t number, struct err *e)
{
    return f->rules != NULL && number > f->rules->parts_max
               ? refuse(e, "it changes folders that are read-only in its template")
               : 0;
}

// A set-id file of another owner than jobs needs a template whose jobs are root inside, for no other job can make one.
int
foreign_head(const struct foreigners *f, uint64_t mode, uint64_t uid, uint64_t gid, struct err *e)
{
    if (f->rules == NULL)
        return 0;
    if (uid >= SPAWN_IDS_PER_SANDBOX || gid >= SPAWN_IDS_PER_SANDBOX)
        return refuse(e, "an owner is no user of a sandbox");
    const bool of_guest = uid == SANDBOX_UID_GUEST_OF_ROOT || gid == SANDBOX_UID_GUEST_OF_ROOT;
    if (S_ISREG(mode) && (mode & (S_ISUID | S_ISGID)) != 0 && of_guest)
        return refuse(e, "a set-id file of the guest");
    const bool foreign_uid = (mode & S_ISUID) != 0 && uid != SANDBOX_UID_JOB;
    const bool foreign_gid = (mode & S_ISGID) != 0 && gid != SANDBOX_UID_JOB;
    if (S_ISREG(mode) && !f->rules->set_id && (foreign_uid || foreign_gid))
        return refuse(
            e, "a set-id file of another user than agent, in a template without \"user: root\"");
    return 0;
}

int
foreign_attribute(const struct foreigners *f, const char *name, const char *value, size_t n,
                  bool folder, struct err *e)
{
    if (f->rules == NULL)
        return 0;
    if (strncmp(name, "trusted.", 8) == 0 && (!folder || n != 1 || value[0] != 'y'))
        return refuse(e, "an opaque mark is in the wrong place");
    if (strncmp(name, "system.posix_acl_", 17) == 0 &&
        (n < ACL_HEAD || (n - ACL_HEAD) % ACL_ENTRY != 0))
        return refuse(e, "an access control list has a wrong length");
    return 0;
}

int
foreign_size(const struct foreigners *f, uint64_t bytes, struct err *e)
{
    return f->rules != NULL && bytes > f->rules->bytes_max ? work_too_large(f->rules->bytes_max, e)
                                                           : 0;
}

static int
by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int
foreign_link(struct foreigners *f, uint64_t first, uint64_t own, struct err *e)
{
    if (f->rules == NULL)
        return 0;
    if (first != own)
        return f->links_n > 0 &&
                       bsearch(&first, f->link, f->links_n, sizeof first, by_number) != NULL
                   ? 0
                   : refuse(e, "a hard link to what is no file");
    if (f->links_n == f->links_max) {
        const size_t more = f->links_max * 2 + 64;
        uint64_t *link = realloc(f->link, more * sizeof *link);
        if (link == NULL)
            return err_sys(e, ENOMEM, "read a hard link");
        f->link = link;
        f->links_max = more;
    }
    f->link[f->links_n++] = own;
    return 0;
}

int
foreign_special(const struct foreigners *f, mode_t mode, struct err *e)
{
    return f->rules != NULL && S_ISCHR(mode) && (mode & 07777) != 0
               ? refuse(e, "a whiteout has permissions")
               : 0;
}

int
foreign_name(const struct foreigners *f, char **last, const char *name, struct err *e)
{
    if (f->rules == NULL)
        return 0;
    if (*last != NULL && strcmp(*last, name) >= 0)
        return refuse(e, "names are not in order, or a name is there twice");
    free(*last);
    *last = strdup(name);
    return *last == NULL ? err_sys(e, ENOMEM, "read a name") : 0;
}
