# SPDX-License-Identifier: Apache-2.0
# Keys of each type, a change of passphrase, a certificate, a signature that is verified.
for t in ed25519 ecdsa rsa; do
    ssh-keygen -q -t $t -N '' -C "me@$t" -f k-$t && ssh-keygen -lf k-$t.pub | awk '{print $1, $3, $4}' && stat -c '%a %n' k-$t k-$t.pub
done
ssh-keygen -q -p -P '' -N secret -f k-rsa && { ssh-keygen -y -P wrong -f k-rsa >/dev/null 2>&1 || echo "refused with $?"; }
ssh-keygen -q -s k-ed25519 -I id -n root -V -1d:+1d k-ecdsa.pub && ssh-keygen -Lf k-ecdsa-cert.pub | grep -E 'Key ID|root'
echo text >t && ssh-keygen -q -Y sign -f k-ed25519 -n file t && echo "me $(cat k-ed25519.pub)" >allowed
ssh-keygen -Y verify -f allowed -I me -n file -s t.sig <t | cut -d' ' -f1-5
eval "$(ssh-agent)" >/dev/null && ssh-add -q k-ed25519 && ssh-add -l | awk '{print $1, $3}' && ssh-agent -k >/dev/null
