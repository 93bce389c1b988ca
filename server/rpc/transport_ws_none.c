// SPDX-License-Identifier: Apache-2.0
// In the place of transport_ws.c where the build has no nng (STOCKADE_NNG=OFF): there are no websockets, and
// listen_check_ws() says so before anything is opened.
#include "transport.h"

const struct transport_ops transport_ws = {0};

const char *
transport_ws_version(void)
{
    return "";
}
