// SPDX-License-Identifier: Apache-2.0
// See inside.h.
#include "tests/harness/inside.h"
#include "tests/harness/folder.h"

struct inside in;

void
inside_die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
    abort();
}

static void
inside_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        inside_die(path);
    (void)close(fd);
}

static int
inside_userns(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    char path[64];
    char map[64];
    (void)snprintf(map, sizeof map, "0 %d 65536\n", TEST_UID);
    (void)snprintf(path, sizeof path, "/proc/%d/setgroups", pid);
    inside_write(path, "deny");
    (void)snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    inside_write(path, map);
    (void)snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    inside_write(path, map);
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        inside_die(path);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return fd;
}

static void
inside_init(const char *name)
{
    in = (struct inside){.job_fd = -1};
    struct stat st;
    const char *root =
        stat("/sys/fs/cgroup/unified", &st) == 0 ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
    (void)snprintf(in.cgroup, sizeof in.cgroup, "%s/stockade-test-%s-%d", root, name, getpid());
    (void)snprintf(in.state_dir, sizeof in.state_dir, "%s/stockade-test-%s-%d", test_folder(), name,
                   getpid());
    if (mkdir(in.cgroup, 0755) < 0 || mkdir(in.state_dir, 0755) < 0)
        inside_die("make the test's folders");
    struct spawn_config *c = &in.config;
    c->version = SPAWN_VERSION;
    c->id_base = SPAWN_ID_BASE_DEFAULT;
    c->slots = 1024;
    (void)snprintf(c->state_dir, sizeof c->state_dir, "%s", in.state_dir);
}

static void
inside_remove(void)
{
    (void)rmdir(in.cgroup);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", in.state_dir);
    if (system(command) != 0) // NOLINT(cert-env33-c): our own name
        inside_die(command);
}

static void
inside_prepare(void)
{
    static const struct skeleton_template template = {
        .name = "default", .hostname = "sandbox", .paths = {"/opt"}};
    struct err e = {0};
    struct err remark;
    uint32_t number = 0;
    int fds[SPAWN_ROOT_FDS_MAX];
    int folder = root_folder(in.state_dir, &e);
    int auto_root = open(in.cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || root_make(folder, &template, &in.root, fds, &e) < 0 ||
        tree_prepare(&in.config, auto_root, &in.cgroup_fd, &in.tree, &in.features, &e) < 0 ||
        tree_root_add(in.tree, &in.root, fds, in.root.layers_n + 1, &number, &remark, &e) < 0 ||
        filter_compile(&in.guest, &in.job, &in.job_fd, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
    (void)close(folder);
    (void)close(auto_root);
    in.userns_fd = inside_userns();
}

static void
inside_drop(int uid)
{
    if (setns(in.userns_fd, CLONE_NEWUSER) < 0 ||
        setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) < 0 ||
        setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        inside_die("drop");
}

struct tree_sandbox
inside_sandbox(uint64_t disk_bytes, uint32_t inodes)
{
    return (struct tree_sandbox){.userns_fd = in.userns_fd,
                                 .uid = (uint32_t)TEST_UID,
                                 .disk_bytes = disk_bytes,
                                 .inodes = inodes,
                                 .memory_bytes = 512 << 20,
                                 .cpu_millis = 1500,
                                 .hidden_fd = -1,
                                 .scratch_fd = -1};
}

int
inside_script(const char *script, int uid, bool filtered, char *out, size_t size)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        inside_die("pipe");
    pid_t pid = (pid_t)syscall(SYS_clone, INSIDE_NAMESPACES | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        struct err e = {0};
        int disk = -1;
        struct tree_sandbox s = inside_sandbox(64 << 20, 4096);
        (void)dup2(pipes[1], 1);
        (void)dup2(pipes[1], 2);
        if (tree_enter(in.tree, &s, &disk, &e) < 0) {
            (void)dprintf(2, "tree_enter: %s\n", e.text);
            _exit(90);
        }
        inside_drop(uid);
        if (filtered && (filter_load(&in.guest, &e) < 0 || filter_load(&in.job, &e) < 0))
            _exit(91);
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(script), NULL};
        char *env[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin"},
                       (char[]){"HOME=/home/agent"}, (char[]){"LC_ALL=C"}, NULL};
        (void)!chdir("/home/agent");
        execve("/bin/sh", argv, env);
        inside_die("exec /bin/sh");
    }
    (void)close(pipes[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0)
        got = read(pipes[0], out + n, size - 1 - n);
    out[n] = '\0';
    (void)close(pipes[0]);
    int status = 0;
    (void)waitpid(pid, &status, 0);
    return status;
}

const char *
inside_run(const char *script, int uid)
{
    static char output[1 << 18];
    (void)inside_script(script, uid, uid == AGENT, output, sizeof output);
    return output;
}

void
expect_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

int
inside_main(const char *name, void (*before)(void), int (*cases)(void))
{
    if (geteuid() != 0) {
        (void)printf("skipped: needs root\n");
        return 77;
    }
    inside_init(name);
    if (before != NULL)
        before();
    pid_t pid = fork();
    if (pid == 0) {
        inside_prepare();
        int failed = cases();
        (void)fflush(NULL);
        _exit(failed == 0 ? 0 : 1);
    }
    int status = 1;
    (void)waitpid(pid, &status, 0);
    inside_remove();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
