// SPDX-License-Identifier: Apache-2.0
// An audit log in a folder of its own, for tests: write to it, and verify what is there. Each function fails the test
// (cmocka's fail) if it cannot do what it says.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/audit_verify.h"
#include "server/audit/audit.h"

extern char trail_folder[64];
extern uv_loop_t trail_loop;

// cmocka's setup and teardown: the folder and the loop.
int trail_set_up(void **unused);
int trail_tear_down(void **unused);

// A checkpoint every 16 records.
struct audit_settings trail_settings(void);
struct audit *trail_open(const struct audit_settings *s);
// Writes the beginning of a call, by the tenant "uid:7".
void trail_call(struct audit *a, const char *method);
// Waits until all that was written is stored. Returns why not.
struct err trail_wait(struct audit *a);
// A log with so many calls, closed.
void trail_make(unsigned calls);

struct trail_seen {
    unsigned problems[AUDIT_PROBLEMS];
    char text[512]; // of the last one
};
void trail_key(uint8_t key[AUDIT_KEY]);
struct audit_verified trail_verify(struct trail_seen *seen);
unsigned trail_problems(const struct trail_seen *s);

// The path of a file of the log, valid until the next call.
const char *trail_path(unsigned number);
// A whole file; free it.
uint8_t *trail_read(const char *path, size_t *n);
void trail_write(const char *path, const uint8_t *bytes, size_t n);
// Frame number `index` of a file's bytes.
struct audit_frame trail_frame(const uint8_t *bytes, size_t n, unsigned index, size_t *offset);
