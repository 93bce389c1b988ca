// SPDX-License-Identifier: Apache-2.0
// Two states of the files of a sandbox, each as it was or is, for a program that compares them (ops.h: SPAWN_STATES).
//
// A state is an overlay of its layers without an upper one, or a clone of the root's mount: so the kernel reads whiteouts and
// opaque marks, and nobody else needs to. What the states do not share is a mount as well, which the program asks for names
// only: a name that is there may differ, one that is not there cannot. Nothing is attached, and nothing is opened or listed here.
// Only the part / is compared: not what a writable root adds (tree_parts.c).
#pragma once

#include "tree_swap.h"

// Spawner. from, to: layers, 0 stands for the files of now. fds: STATE_FDS of them, owned by the caller on success, -1: missing.
// *helper_fd: as in tree_swap().
int tree_states(const struct tree_of *p, uint32_t from, uint32_t to, int *fds, int *helper_fd,
                struct err *e);
