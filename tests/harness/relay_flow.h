// SPDX-License-Identifier: Apache-2.0
// What a job does, for tests of the relay: flows as the kernel would note them, and sockets in the sandbox of relay_box.h.
#pragma once

#include "tests/harness/relay_box.h"

// What connect4 would note: the number of a flow to there.
uint32_t box_flow(const uint8_t address[16], uint16_t port, uint8_t protocol);
void box_mapped(uint32_t address, uint8_t out[16]);

// To a flow's address.
int box_connect_flow(int type, uint32_t number);
int box_connect_flow6(int type, uint32_t number);
int box_connect(int type, uint32_t address, uint16_t port);

// The other side has sent a RST: what a refused or cut flow shows.
void box_expect_reset(int fd);
void box_say(int fd, const char *text);
void box_hear(int fd, const char *text);
