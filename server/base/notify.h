// SPDX-License-Identifier: Apache-2.0
// Sends the state of the broker to systemd (sd_notify(3)): one datagram to NOTIFY_SOCKET, if that is set.
#pragma once

// state: such as "READY=1" or "STOPPING=1". Failures are ignored.
void notify_systemd(const char *state);
