// SPDX-License-Identifier: Apache-2.0
// See stopping.h.
#include "stopping.h"

#include <string.h>

static const char reason[] = "STOPPING";

int
stopping_say(struct err *e, enum err_code code)
{
    int r = err_set(e, code, "%s", STOPPING_TEXT);
    err_detail(e, reason, NULL, "try again when the broker was started again");
    return r;
}

bool
stopping_is(const struct err *e)
{
    return strcmp(e->reason, reason) == 0;
}
