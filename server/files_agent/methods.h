// SPDX-License-Identifier: Apache-2.0
// The methods of stockade-files: one function each, which carries out a request and sends its responses. main.c sends the
// END with what it returns.
#pragma once

#include "op.h"
#include "stockade/v1/file_service.pb-c.h"

typedef int files_handler(struct op *op, const ProtobufCMessage *request, struct err *e);

files_handler files_stat, files_list, files_read, files_write, files_make_dir, files_move,
    files_copy, files_remove, files_set_mode, files_upload, files_download, files_diff,
    files_diff_file, files_watch;
