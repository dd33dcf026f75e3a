//! Sends its input to another VM, and prints what it receives, until both sides have ended.
//!
//! ```text
//! sockets listen PORT
//! sockets connect CID PORT
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{copy, stdin, stdout};
use std::net::Shutdown;
use std::process::ExitCode;
use std::thread;
use vsock::{VMADDR_CID_ANY, VsockListener, VsockStream, get_local_cid};

fn main() -> ExitCode {
    match talk() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sockets: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a connection, and what is to be known of it.
fn open() -> Result<VsockStream, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["listen", port] => {
            let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port.parse()?)?;
            let (stream, peer) = listener.accept()?;
            eprintln!("sockets: {} from {}", get_local_cid()?, peer.cid());
            Ok(stream)
        }
        ["connect", cid, port] => Ok(VsockStream::connect_with_cid_port(
            cid.parse()?,
            port.parse()?,
        )?),
        _ => Err("listen PORT, or connect CID PORT".into()),
    }
}

fn talk() -> Result<(), Box<dyn Error>> {
    let mut stream = open()?;
    let mut output = stream.try_clone()?;
    let sender = thread::spawn(move || {
        copy(&mut stdin(), &mut output)?;
        output.shutdown(Shutdown::Write)
    });
    copy(&mut stream, &mut stdout())?;
    sender.join().expect("it does not panic")?;
    Ok(())
}
