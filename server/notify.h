// SPDX-License-Identifier: Apache-2.0
// Tells systemd how the broker is (sd_notify(3)): one datagram to NOTIFY_SOCKET, nothing without it.
#pragma once

// state: such as "READY=1" or "STOPPING=1". A failure is of no consequence and not told.
void notify_systemd(const char *state);
