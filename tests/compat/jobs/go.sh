# SPDX-License-Identifier: Apache-2.0
# A module with a test: built, vetted, run under the scheduler, with a server, processes and the network of loopback.
mkdir m && cd m # a go.mod in TMPDIR itself is ignored
export PATH=$PATH:/usr/local/go/bin GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local
cat >go.mod <<'M'
module demo
go 1.18
M
cat >main.go <<'G'
package main

import ("fmt"; "io"; "net"; "net/http"; "os"; "os/exec"; "path/filepath"; "runtime"; "sync")

func Twice(n int) int { return 2 * n }
func main() {
	var wg sync.WaitGroup; var mu sync.Mutex; sum := 0
	for i := 0; i < 10000; i++ { wg.Add(1); go func(i int) { defer wg.Done(); mu.Lock(); sum += i; mu.Unlock() }(i) }
	wg.Wait(); fmt.Println(sum, runtime.GOMAXPROCS(0) > 0)
	l, err := net.Listen("tcp", "127.0.0.1:0"); if err != nil { panic(err) }
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	r, err := http.Get("http://" + l.Addr().String()); if err != nil { panic(err) }
	b, _ := io.ReadAll(r.Body); fmt.Println(string(b))
	out, err := exec.Command("sh", "-c", "echo child; exit 3").Output(); fmt.Print(string(out)); fmt.Println(err)
	d, _ := os.MkdirTemp("", "g"); os.WriteFile(filepath.Join(d, "f"), []byte("text"), 0o600); b, _ = os.ReadFile(filepath.Join(d, "f")); fmt.Println(string(b), os.Remove("/usr/none"))
	_, err = net.Dial("tcp", "127.0.0.1:9"); fmt.Println(err)
}
G
printf 'package main\nimport "testing"\nfunc TestTwice(t *testing.T) { if Twice(2) != 4 { t.Fail() } }\n' >main_test.go
go build -o demo . && ./demo && go vet . && go test . | cut -f1,2 && go run . | head -1
