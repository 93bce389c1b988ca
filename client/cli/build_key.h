// SPDX-License-Identifier: Apache-2.0
// The keys of steps: equal keys mean that a step has nothing new to do. A key is a BLAKE2b digest of the digest of the files below,
// the step with its network policy, the environment, and for `copy` the names, modes and contents of the files. Times are not part of
// it, because each checkout of a repository sets new ones.
#pragma once

#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/stockade.h"
#include "proto/err.h"

enum { BUILD_KEY_BYTES = 24, BUILD_NAME = 65 };

struct build_key {
    crypto_generichash_state h;
    const atomic_int *stop;
};

// stop: build_key_tree() fails with ERR_CANCELLED when it is not 0. NULL: it is not called.
void build_key_begin(struct build_key *k, const atomic_int *stop);
// A text with its length, so that two of them cannot be confused with others.
void build_key_text(struct build_key *k, const char *text);
void build_key_bytes(struct build_key *k, const void *bytes, size_t n);

// A file, or a folder with all that it holds, without following links in it. Failures are those of open(2) and read(2); devices, FIFOs
// and sockets are left out, as cp does. A file that has far more bytes than its size gives a key that never comes again.
int build_key_tree(struct build_key *k, const char *path, struct err *e);

// The name of the kept snapshot: "build-" and the key in hex.
void build_key_end(struct build_key *k, char name[BUILD_NAME]);

// The same for the template that a build begins with, from its base, digest, working directory and environment.
void build_key_of_base(const struct stockade_sandbox_template *t, char name[BUILD_NAME]);

// Whether it is such a name.
bool build_key_is_name(const char *name);
