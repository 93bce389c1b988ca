// SPDX-License-Identifier: Apache-2.0
// Profiles on disk: STATE_DIR/profiles/TEMPLATE.profile, in a folder that belongs to the broker.
//
// Root creates the folder before it drops its privileges and never reads it again, so a false file there can deceive
// only the broker, which owns the profiles anyway. Learning takes many runs, so profiles must survive a restart.
#pragma once

#include "profiles.h"

#define ANOMALY_FOLDER "profiles"

// Loads a saved profile, if there is one; logs a file that cannot be used.
void anomaly_load(const char *state_dir, struct profiles *p, uint32_t template);

// Saves a profile, completely or not at all; removes the file if there is nothing to save.
int anomaly_store(const char *state_dir, struct profiles *p, uint32_t template, struct err *e);
