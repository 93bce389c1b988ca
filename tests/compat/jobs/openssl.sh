# SPDX-License-Identifier: Apache-2.0
# Keys, a certificate authority, a server and a client over TLS on loopback, digests, encryption.
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=ca -days 2 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout s.key -out s.csr -subj /CN=localhost 2>/dev/null
openssl x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out s.crt -days 2 2>/dev/null && openssl verify -CAfile ca.crt s.crt
openssl s_server -accept 127.0.0.1:0 -cert s.crt -key s.key -www >log 2>/dev/null &
until grep -q ACCEPT log; do sleep 0.05; done
port=$(grep -o 'ACCEPT .*' log | head -1 | sed 's/.*://')
printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -quiet -verify_return_error -CAfile ca.crt -verify_hostname localhost -connect "127.0.0.1:$port" 2>/dev/null | grep -o 'HTTP/1.0 200 ok'
kill %1
echo text | openssl enc -aes-256-cbc -pbkdf2 -k pw -out e && openssl enc -d -aes-256-cbc -pbkdf2 -k pw -in e && echo text | openssl dgst -sha3-256
openssl genpkey -algorithm ed25519 -out e.key && echo x >t && openssl pkeyutl -sign -rawin -inkey e.key -in t -out s && openssl pkeyutl -verify -rawin -inkey e.key -in t -sigfile s
