// SPDX-License-Identifier: Apache-2.0
// The accounts of sandboxes whose jobs are root inside: scripts of packages refer to those of the system by name, and the host's
// package manager remembers files of its own by their groups.
#pragma once

#include "proto/err.h"

// Rewrites etc/passwd and etc/group of a skeleton: root with a shell, agent, nobody, and the host's accounts with ids from 1 to 999,
// without passwords, comments and members. Accounts of people, from 1000 on, are left out. Adds an empty etc/shadow and gshadow.
int accounts_put(int root, struct err *e);
