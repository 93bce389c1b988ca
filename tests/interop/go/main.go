// SPDX-License-Identifier: Apache-2.0
// A stock REQ socket of mangos: one request from stdin, one reply to stdout.
package main

import (
	"io"
	"log"
	"os"
	"time"

	"go.nanomsg.org/mangos/v3"
	"go.nanomsg.org/mangos/v3/protocol/req"
	_ "go.nanomsg.org/mangos/v3/transport/ipc"
	_ "go.nanomsg.org/mangos/v3/transport/tcp"
)

func check(err error, what string) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func main() {
	body, err := io.ReadAll(os.Stdin)
	check(err, "read")
	socket, err := req.NewSocket()
	check(err, "open")
	check(socket.SetOption(mangos.OptionRecvDeadline, 20*time.Second), "set the timeout")
	check(socket.SetOption(mangos.OptionSendDeadline, 20*time.Second), "set the timeout")
	check(socket.SetOption(mangos.OptionReconnectTime, 20*time.Millisecond), "set the reconnect time")
	check(socket.Dial(os.Args[1]), "dial")
	check(socket.Send(body), "send")
	reply, err := socket.Recv()
	check(err, "receive")
	_, err = os.Stdout.Write(reply)
	check(err, "write")
	check(socket.Close(), "close")
}
