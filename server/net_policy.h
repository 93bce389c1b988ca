// What the BPF programs know of a sandbox (bpf/sandbox.h): written when it is born, taken back when nothing is left of it.
#pragma once

#include "../proto/err.h"

struct sandbox;

// Writes its entry, with no way out. Before, programs refuse its processes everything. 0 where no program is loaded.
int sandbox_policy_put(struct sandbox *s, struct err *e);

// Takes it back; fine without one.
void sandbox_policy_clear(struct sandbox *s);
