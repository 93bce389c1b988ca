# SPDX-License-Identifier: Apache-2.0
# A key, a signature, a message to itself, export and import; the agent behind it.
export GNUPGHOME=$PWD/g && mkdir -m 700 g
gpg --batch --quiet --passphrase '' --quick-gen-key 'A <a@example.com>' ed25519 sign 2>/dev/null
gpg --batch --quiet --passphrase '' --quick-add-key "$(gpg --list-keys --with-colons | awk -F: '/^fpr/ {print $10; exit}')" cv25519 encr 2>/dev/null
echo text >t && gpg --batch --quiet --detach-sign t 2>/dev/null && gpg --verify t.sig t 2>&1 | grep -o 'Good signature from.*'
gpg --batch --quiet --trust-model always -r a@example.com -e t 2>/dev/null && gpg --batch --quiet -d t.gpg
echo more >>t; gpg --verify t.sig t >/dev/null 2>&1 || echo "refused with $?"
gpg --armor --export >pub && mkdir -m 700 h && gpg --homedir h --import pub 2>&1 | grep -o 'imported: .*'
gpg --batch --quiet --passphrase pw --pinentry-mode loopback -c -o s.gpg t && gpg --batch --quiet --passphrase pw --pinentry-mode loopback -d s.gpg
gpgconf --kill gpg-agent; gpgconf --homedir h --kill gpg-agent
