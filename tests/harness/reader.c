// SPDX-License-Identifier: Apache-2.0
// See reader.h.
#include "tests/harness/reader.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/reader/read.h"

int
reader_root(int fd, struct err *e)
{
    static struct read_report report;
    const struct read_order order = {1, 0};
    struct read_answer answer;
    int root = -1;
    if (recv(fd, &report, sizeof report, 0) != (ssize_t)sizeof report) {
        (void)err_set(e, ERR_INTERNAL, "the reader has ended");
    } else if (report.err.code != ERR_OK) {
        *e = report.err;
    } else if (send(fd, &order, sizeof order, MSG_NOSIGNAL) < 0 ||
               recv(fd, &answer, sizeof answer, 0) != (ssize_t)sizeof answer) {
        (void)err_set(e, ERR_INTERNAL, "the reader does not answer");
    } else if (!answer.ok) {
        *e = answer.err;
    } else {
        root = (int)answer.root;
    }
    (void)close(fd);
    return root;
}
