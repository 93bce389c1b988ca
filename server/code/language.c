// SPDX-License-Identifier: Apache-2.0
// See language.h. A loader reads the program from the link (kernel.h) and executes it. So no file of the sandbox is needed,
// which a job could change.
#include "language.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/language.h"

static const uint8_t python_program[] = {
#include "kernel_python.inc"
};
static const uint8_t snippets_program[] = {
#include "kernel_snippets.inc"
};
static const uint8_t bash_program[] = {
#include "kernel_bash.inc"
};
static const uint8_t node_program[] = {
#include "kernel_node.inc"
};

#define LOAD_PYTHON                                                                                \
    "import os;link=os.fdopen(3,'rb',65536);n=link.readline().split()[2];"                         \
    "exec(compile(link.read(int(n)),'<kernel>','exec'),{'__name__':'stockade','link':link})"

// The program is in a file that all zygotes share, so they also share its offset.
#define LOAD_PYTHON_ZYGOTE                                                                         \
    "import os;n=os.fstat(4).st_size;t=os.pread(4,n,0);os.close(4);"                               \
    "exec(compile(t,'<kernel>','exec'),{'__name__':'stockade','zygote':True})"

#define LOAD_BASH                                                                                  \
    "IFS=' ' read -r -u 3 k r n;LC_ALL=C IFS= read -r -d '' -u 3 -N \"$n\" k;eval \"$k\""

#define LOAD_NODE                                                                                  \
    "{let f=require('fs'),c=Buffer.alloc(1),h='';while(f.readSync(3,c),c[0]!==10)h+=c;"            \
    "let n=+h.split(' ')[2],b=Buffer.alloc(n),a=0;while(a<n)a+=f.readSync(3,b,a,n-a,null);"        \
    "new Function('require','process',b.toString())(require,process)}"

static const struct language languages[] = {
    {"python",
     {"python3", "-c", LOAD_PYTHON},
     python_program,
     sizeof python_program,
     LOAD_PYTHON_ZYGOTE,
     true},
    {"bash", {"bash", "-c", LOAD_BASH}, bash_program, sizeof bash_program, NULL, false},
    {"javascript", {"node", "-e", LOAD_NODE}, node_program, sizeof node_program, NULL, false},
};

const struct language *
language_find(const char *word, struct err *e)
{
    const char *name = language_named(word, e);
    for (size_t i = 0; name != NULL && i < sizeof languages / sizeof languages[0]; i++)
        if (strcmp(languages[i].name, name) == 0)
            return &languages[i];
    return NULL;
}

const struct language *
language_of_snippets(void)
{
    static const struct language python = {.name = "python",
                                           .args = {"python3", "-c", LOAD_PYTHON_ZYGOTE},
                                           .program = snippets_program,
                                           .program_n = sizeof snippets_program};
    return &python;
}

int
language_file(const struct language *l, struct err *e)
{
    int auto_close fd = memfd_create("stockade-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    if (fd < 0 || write(fd, l->program, l->program_n) != (ssize_t)l->program_n ||
        fcntl(fd, F_ADD_SEALS, seals) < 0)
        return err_sys(e, errno, "keep the program of an interpreter");
    return take_fd(&fd);
}
