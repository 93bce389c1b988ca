// SPDX-License-Identifier: Apache-2.0
// A database with data keys in a folder of its own, which a test opens and closes as a broker does.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "server/state/state.h"
#include "server/vault/vault.h"

struct vault_box {
    char folder[64];
    uv_loop_t loop;
    uv_timer_t alive; // the state keeps no loop alive
    struct state *state;
    struct vault *vault;
};
extern struct vault_box vault_box;

// For cmocka: before and after each test.
int vault_box_set_up(void **unused);
int vault_box_tear_down(void **unused);
// A file of the folder; static.
const char *vault_box_path_of(const char *name);

// Opens both with the master key of these bytes; 0: none. Negative: refused, and closed again.
int vault_box_begin(uint8_t byte, struct err *e);
void vault_box_close_only(void);
// The same with the writer; the end waits for the disk.
void vault_box_start(uint8_t byte);
void vault_box_stop(void);

// A change of the vault; the cookie is a struct err: begin with the code ERR_UNKNOWN, and wait until it is ERR_OK.
void vault_box_on_done(void *cookie, const struct err *e);
void vault_box_wait_for(const struct err *e);
