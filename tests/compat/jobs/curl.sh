# SPDX-License-Identifier: Apache-2.0
# A web server of Python's on loopback, by IPv4, IPv6 and name; a range, an upload that is refused, no server at all.
serve() {
    python3 -uc 'import http.server as h, socket, sys
h.ThreadingHTTPServer.address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = h.ThreadingHTTPServer((sys.argv[1], 0), h.SimpleHTTPRequestHandler)
print(s.server_port)
s.serve_forever()' "$1" >port 2>/dev/null &
    until [ -s port ]; do sleep 0.05; done
}
seq 100000 >f
for address in 127.0.0.1 ::1; do
    serve $address && url="http://[$address]:$(cat port)" && [ $address = ::1 ] || url="http://$address:$(cat port)"
    curl -gsS "$url/f" | md5sum && curl -gsS -r 100-199 "$url/f" | wc -c && curl -gsS -o /dev/null -w '%{http_code}\n' "$url/none"
    curl -gsSI "$url/f" | grep -i length && curl -gsS -o /dev/null -w '%{http_code}\n' -T f "$url/g"
    curl -gsS --parallel --parallel-max 8 $(printf "$url/f?%d " $(seq 20)) | wc -c
    kill %% && rm port && wait || true
done
curl -s http://127.0.0.1:9/ || echo "nobody there: $?"; curl -s file://"$PWD"/f | tail -1
