// SPDX-License-Identifier: Apache-2.0
// Fresh upper layers for the box of core.h: sandbox_seal(), sandbox_restore(), sandbox_inherit(), and their answers.
#pragma once

#include "tests/harness/core.h"

struct swapped {
    struct sandbox_swap swap;
    bool called, ok;
    struct err e;
};

// For a request of one's own.
void prepare(struct swapped *w);
void succeeds(struct swapped *w);
void fails(struct swapped *w, int code, const char *words);

// Asks for a seal. 0, or refused.
int ask(struct swapped *w, struct err *e);

// Seals. Returns the layer's number.
uint32_t swap(void);
void swap_fails(int code, const char *words);
void restore(uint32_t layer);

// Whether this kernel can share files in memory between sandboxes: Linux 6.3.
bool can_fork(void);
// A new box that inherits; it is `box` afterwards. And one that is removed.
struct sandbox *fork_of(struct sandbox *parent, uint32_t layer);
void forget_box(struct sandbox *s);
