// SPDX-License-Identifier: Apache-2.0
// The rights that the exporter gives up: root (it continues as the account "stockade-exporter"), all capabilities, new
// privileges by exec, and system calls that it never makes.
#pragma once

#include "proto/err.h"

// Before anything is opened. As root: FAILED_PRECONDITION without the account.
int confine_account(struct err *e);

// When everything is open.
int confine_filter(struct err *e);
