# SPDX-License-Identifier: Apache-2.0
"""Certificates for a test, made by openssl(1) in a folder of its own, which is removed at the end.

    files = Certificates("tls")
    files.authority("ca")
    files.certificate("server", "DNS:localhost,IP:127.0.0.1")      # server.pem, server.key
"""

import atexit
import os
import shutil
import subprocess
import tempfile

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    def __init__(self, name):
        self.folder = tempfile.mkdtemp(prefix=f"stockade-{name}-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o755)

    def path(self, file):
        return os.path.join(self.folder, file)

    def openssl(self, *words, feed=None):
        return subprocess.run(["openssl", *words], input=feed, check=True, capture_output=True, cwd=self.folder).stdout

    def authority(self, name):
        self.openssl("req", "-x509", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "3", "-subj", f"/CN={name}")

    def certificate(self, name, names, of="ca", days=3):
        """`names` as in subjectAltName."""
        self.openssl("req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        with open(self.path("names"), "w", encoding="utf-8") as f:
            f.write(f"subjectAltName={names}\n")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{of}.pem", "-CAkey", f"{of}.key", "-CAcreateserial", "-days", str(days),
                     "-extfile", "names", "-out", f"{name}.pem")
