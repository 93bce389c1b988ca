// SPDX-License-Identifier: Apache-2.0
// Where the brokers and spawners of tests keep their state.
#pragma once

// A folder in memory if the host has one with enough room: each start makes the files of a root, and ext4, where it looks
// for a free inode, tries those first that were deleted in the last minutes. Else, and in tests that are about the disk
// (STOCKADE_TEST_ON_DISK), or before Linux 6.3, which cannot map ids there: the host's folder of temporary files. Ends
// without "/". tests/flow/broker.py decides alike.
const char *test_folder(void);
