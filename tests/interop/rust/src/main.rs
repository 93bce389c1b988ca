// SPDX-License-Identifier: Apache-2.0
//! A stock REQ socket of the nng crate: one request from stdin, one reply to stdout.
use nng::options::{Options, ReconnectMinTime, RecvTimeout, SendTimeout};
use nng::{Protocol, Socket};
use std::io::{self, Read, Write};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: req ADDRESS < body > body")?;
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body)?;
    let socket = Socket::new(Protocol::Req0)?;
    socket.set_opt::<RecvTimeout>(Some(Duration::from_secs(20)))?;
    socket.set_opt::<SendTimeout>(Some(Duration::from_secs(20)))?;
    socket.set_opt::<ReconnectMinTime>(Some(Duration::from_millis(20)))?;
    socket.dial(&address)?;
    socket.send(&body[..]).map_err(|(_, error)| error)?;
    io::stdout().write_all(&socket.recv()?)?;
    Ok(())
}
