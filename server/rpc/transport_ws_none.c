// SPDX-License-Identifier: Apache-2.0
// Replaces transport_ws.c in builds without nng (STOCKADE_NNG=OFF): there are no websockets, and listen_check_ws()
// refuses them before anything is opened.
#include "transport.h"

const struct transport_ops transport_ws = {0};

const char *
transport_ws_version(void)
{
    return "";
}
