// SPDX-License-Identifier: Apache-2.0
// See confine.h.
#include "confine.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#define ACCOUNT "stockade-exporter"

int
confine_account(struct err *e)
{
    if (geteuid() != 0)
        return 0;
    const struct passwd *p = getpwnam(ACCOUNT);
    if (p == NULL || p->pw_uid == 0 || p->pw_gid == 0) {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "it must not run as root, and there is no account " ACCOUNT);
        err_detail(e, NULL, NULL, "useradd --system --groups stockade " ACCOUNT);
        return r;
    }
    if (initgroups(p->pw_name, p->pw_gid) < 0 || setresgid(p->pw_gid, p->pw_gid, p->pw_gid) < 0 ||
        setresuid(p->pw_uid, p->pw_uid, p->pw_uid) < 0)
        return err_sys(e, errno, "become %s", ACCOUNT);
    return setuid(0) == 0 ? err_set(e, ERR_INTERNAL, "root can be had again") : 0;
}
