// SPDX-License-Identifier: Apache-2.0
// See destinations.h. A change of the table needs a new version.
//
// A set holds what the usual client of a service connects to when it reads, and no wildcards: a name below a wildcard may
// belong to a stranger. Sources: the clients' default configurations; JFrog, "Public Registry Hostnames"
// (docs.jfrog.com/security/docs/configuration-by-package-type) for pypi, npm, crates and rubygems; go.dev/ref/mod
// (GOPROXY, GOSUMDB) for go; docs.github.com "Communicating with self-hosted runners" for github.
#include "destinations.h"

#include <stdio.h>
#include <string.h>

const char destination_sets_version[] = "2026-11-23";

const struct destination_set destination_sets[] = {
    {"pypi",
     "Python packages: pip, uv, poetry",
     {"pypi.org:443/tcp", "files.pythonhosted.org:443/tcp"}},
    {"npm",
     "Node packages: npm, pnpm, yarn",
     {"registry.npmjs.org:443/tcp", "registry.yarnpkg.com:443/tcp"}},
    {"crates",
     "Rust packages: cargo",
     {"index.crates.io:443/tcp", "static.crates.io:443/tcp", "crates.io:443/tcp"}},
    {"go",
     "Go modules and their checksums",
     {"proxy.golang.org:443/tcp", "sum.golang.org:443/tcp"}},
    {"rubygems",
     "Ruby packages: gem, bundler",
     {"rubygems.org:443/tcp", "index.rubygems.org:443/tcp", "api.rubygems.org:443/tcp"}},
    {"maven",
     "Java packages of Maven Central",
     {"repo.maven.apache.org:443/tcp", "repo1.maven.org:443/tcp"}},
    {"debian",
     "packages of Debian: apt",
     {"deb.debian.org:80/tcp", "deb.debian.org:443/tcp", "security.debian.org:80/tcp",
      "security.debian.org:443/tcp"}},
    {"github",
     "repositories and releases of GitHub, by HTTPS and SSH; a job with a token can write, too",
     {"github.com:443/tcp", "github.com:22/tcp", "api.github.com:443/tcp",
      "codeload.github.com:443/tcp", "raw.githubusercontent.com:443/tcp",
      "objects.githubusercontent.com:443/tcp", "release-assets.githubusercontent.com:443/tcp"}},
    {NULL, NULL, {NULL}},
};

const struct destination_set *
destination_set_find(const char *name)
{
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

const char *
destination_set_names(char *out, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (const struct destination_set *s = destination_sets; s->name != NULL && used < n; s++)
        used += (size_t)snprintf(out + used, n - used, "%s@%s", used > 0 ? ", " : "", s->name);
    return out;
}
