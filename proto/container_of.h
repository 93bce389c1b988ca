// SPDX-License-Identifier: Apache-2.0
// From a pointer to a member to the struct that contains it.
#pragma once

#include <stddef.h>

// NOLINTNEXTLINE(bugprone-macro-parentheses): a type cannot stand in them
#define container_of(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))
