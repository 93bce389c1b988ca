// SPDX-License-Identifier: Apache-2.0
// One operation: its socket, and the packets that go over it (protocol.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"
#include "protocol.h"

struct op {
    int fd; // SOCK_SEQPACKET to the broker
    uint64_t busy_ns;
    struct {
        struct files_head head;
        uint8_t data[FILES_DATA_MAX];
    } packet;
};

// Each sends one packet, and waits while the broker does not read. If the broker has closed the socket, they return
// CANCELLED: undo what is half done, and end.
int op_message(struct op *op, const ProtobufCMessage *m, struct err *e);
int op_data(struct op *op, size_t n, struct err *e); // the first n bytes of packet.data
// Reports that it works, if the last packet was sent long ago. Call it for each step of a long operation.
int op_busy(struct op *op, struct err *e);

// Waits for the next packet of a transfer. Returns the number of bytes in packet.data; 0: no more will come (FINISH);
// negative: the broker has closed the socket.
ssize_t op_receive(struct op *op, struct err *e);

// Reports the end: success (e NULL), or the failure.
void op_end(struct op *op, const struct err *e);

// Waits until the broker has closed the socket: unread bytes in it would make the kernel discard the END (ECONNRESET).
void op_wait(struct op *op);

// Writes *e for an errno of a system call on a file: the code and the reason that a caller of FileService sees.
int file_err(struct err *e, int sys, const char *what, const char *path);
// The same for a file that is not a regular one (NOT_REGULAR, IS_A_FOLDER): it says what it is.
int file_not_regular(struct err *e, mode_t mode, const char *what, const char *path);
