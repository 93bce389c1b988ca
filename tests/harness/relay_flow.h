// SPDX-License-Identifier: Apache-2.0
// The part of a job in tests of the relay: adds flows like the kernel, and makes sockets in the sandbox of
// relay_box.h.
#pragma once

#include "tests/harness/relay_box.h"

// Adds a flow like the connect4 program. Returns its number.
uint32_t box_flow(const uint8_t address[16], uint16_t port, uint8_t protocol);
void box_mapped(uint32_t address, uint8_t out[16]);

// Connects to a flow's address.
int box_connect_flow(int type, uint32_t number);
int box_connect_flow6(int type, uint32_t number);
int box_connect(int type, uint32_t address, uint16_t port);

// Expects a RST from the other side, which shows a refused or cut flow.
void box_expect_reset(int fd);
void box_say(int fd, const char *text);
void box_hear(int fd, const char *text);
