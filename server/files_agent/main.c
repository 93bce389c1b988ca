// SPDX-License-Identifier: Apache-2.0
// stockade-files: works on the files of a sandbox, inside it, for the broker (sandbox/agent.h).
//
// It has the rights of the jobs and no other, so whatever a hostile tree makes it do, a job could do itself. This process
// only receives requests; a child carries out each operation that may take long, so that none waits for another. The
// end of the socket ends it, and the end of its own socket each child.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/spawner/ops.h"
#include "methods.h"
#include "path.h"
#include "stockade/v1/snapshot_service.pb-c.h"

static const struct {
    const ProtobufCMessageDescriptor *request;
    files_handler *handler;
    bool quick; // a few system calls: this process does it itself
} methods[FILES_METHODS_N] = {
    [FILES_STAT] = {&stockade__v1__file_service_stat_request__descriptor, files_stat, true},
    [FILES_LIST] = {&stockade__v1__file_service_list_request__descriptor, files_list, false},
    [FILES_READ] = {&stockade__v1__file_service_read_request__descriptor, files_read, false},
    [FILES_WRITE] = {&stockade__v1__file_service_open_write_request__descriptor, files_write,
                     false},
    [FILES_MAKE_DIR] = {&stockade__v1__file_service_make_dir_request__descriptor, files_make_dir,
                        true},
    [FILES_MOVE] = {&stockade__v1__file_service_move_request__descriptor, files_move, true},
    [FILES_COPY] = {&stockade__v1__file_service_copy_request__descriptor, files_copy, false},
    [FILES_REMOVE] = {&stockade__v1__file_service_remove_request__descriptor, files_remove, false},
    [FILES_UPLOAD] = {&stockade__v1__file_service_upload_request__descriptor, files_upload, false},
    [FILES_DOWNLOAD] = {&stockade__v1__file_service_download_request__descriptor, files_download,
                        false},
    [FILES_WATCH] = {&stockade__v1__file_service_watch_request__descriptor, files_watch, false},
    [FILES_SET_MODE] = {&stockade__v1__file_service_set_mode_request__descriptor, files_set_mode,
                        true},
    [FILES_DIFF] = {&stockade__v1__snapshot_service_diff_request__descriptor, files_diff, false},
    [FILES_DIFF_FILE] = {&stockade__v1__snapshot_service_diff_file_request__descriptor,
                         files_diff_file, false},
};

static void
carry_out(struct op *op, uint32_t method, const void *bytes, size_t n)
{
    struct err e;
    ProtobufCMessage *m = protobuf_c_message_unpack(methods[method].request, NULL, n, bytes);
    int r = m == NULL ? err_sys(&e, ENOMEM, "read a request") : methods[method].handler(op, m, &e);
    if (r < 0)
        err_sanitize(&e);
    op_end(op, r < 0 ? &e : NULL);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void
begin(struct op *op, uint32_t method, const void *bytes, size_t n)
{
    if (methods[method].quick) {
        carry_out(op, method, bytes, n);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(AGENT_FD_SOCKET);
        carry_out(op, method, bytes, n);
        op_wait(op);
        _exit(0);
    }
    struct err e;
    if (pid < 0) {
        (void)err_sys(&e, errno, "start a process for the operation");
        err_detail(&e, "PROCESSES", "pids", "end processes of the sandbox, or raise its limit");
        op_end(op, &e);
    }
}

// False: the broker has closed the socket.
static bool
serve_one(void)
{
    static struct op op;
    static struct {
        struct files_head head;
        uint8_t request[FILES_DATA_MAX];
    } in;
    int auto_close fd = -1;
    struct fdpass m = {&in, sizeof in, &fd, 1};
    int r = fdpass_receive(AGENT_FD_SOCKET, &m, 0);
    if (r == 0 || (r < 0 && m.n == 0))
        return false;
    if (r < 0 || fd < 0 || m.n < sizeof in.head || in.head.method >= FILES_METHODS_N)
        return true; // without descriptors the operation is cut off
    op = (struct op){.fd = fd};
    begin(&op, in.head.method, in.request, m.n - sizeof in.head);
    return true;
}

int
main(int argc, char **argv)
{
    struct err e;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); // EFBIG instead
    (void)signal(SIGCHLD, SIG_IGN); // children are reaped by the kernel
    (void)umask(022);
    if (argc != 3 || path_init(argv[1], argv[2], &e) < 0)
        return 1;
    while (serve_one())
        continue;
    return 0;
}
