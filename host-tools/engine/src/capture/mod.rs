//! Reads what a board sends: its console and its telemetry, from two ports.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`port`] | opens and reads a port |
//! | [`content`] | finds out what a line carries |
//! | [`hello`] | one capture of the hello image |
//! | [`session`] | one capture, from opened ports to what was received |
//! | [`stream`] | decodes the telemetry while it arrives, and names each damaged record |
//!
//! A [`Listener`] reads ports in threads. A port that is gone (a cable, a hub, a server) is opened
//! again when it returns; what was lost meanwhile is missed by the CRC of the next message.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod content;
pub mod hello;
pub mod port;
pub mod session;
pub mod stream;

use port::{Baud, Line, Port, PortError, Reading};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a port that is gone is tried.
const RETRY: Duration = Duration::from_millis(200);

/// Something that happened on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It sent these bytes.
    Bytes(Vec<u8>),
    /// It is gone.
    Gone,
    /// It is there again, after this time.
    Back(Duration),
    /// It is a log, and this is its end.
    End,
}

/// What a listener waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An event on the port with this index.
    Event(usize, Event),
    /// Nothing happened for a moment.
    Quiet,
    /// The user ends the capture.
    Interrupted,
    /// All ports are logs that have ended.
    End,
}

/// Threads that read ports.
#[derive(Debug)]
pub struct Listener {
    events: Receiver<(usize, Event)>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Opens the ports and starts to read them. From then on, SIGINT and SIGTERM end the capture
    /// and not the program.
    ///
    /// # Errors
    ///
    /// Returns why a port cannot be opened.
    pub fn start(ports: &[Port], baud: Baud) -> Result<Self, PortError> {
        if let [one, other] = ports {
            Port::keep_apart(one, other)?;
        }
        let lines: Vec<Line> = ports
            .iter()
            .map(|port| port.open(baud))
            .collect::<Result<_, _>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Without a handler the program ends all the same.
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        let (sender, events) = mpsc::channel();
        let threads = (0..)
            .zip(lines)
            .zip(ports)
            .map(|((index, line), port)| {
                let reader = Reader {
                    index,
                    port: port.clone(),
                    baud,
                    sender: sender.clone(),
                    stop: Arc::clone(&stop),
                };
                std::thread::spawn(move || reader.read(line))
            })
            .collect();
        Ok(Self {
            events,
            stop,
            threads,
        })
    }

    /// Forgets the bytes that have arrived and nobody has asked for.
    pub fn discard(&self) {
        while self.events.try_recv().is_ok() {}
    }

    /// Waits for the next event, at most this long.
    pub fn next(&self, patience: Duration) -> Heard {
        // What has arrived is not lost by an interruption.
        if let Ok((port, event)) = self.events.try_recv() {
            return Heard::Event(port, event);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Heard::Interrupted;
        }
        match self.events.recv_timeout(patience) {
            Ok((port, event)) => Heard::Event(port, event),
            Err(RecvTimeoutError::Timeout) => Heard::Quiet,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The reader of one port.
struct Reader {
    index: usize,
    port: Port,
    baud: Baud,
    sender: Sender<(usize, Event)>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    fn read(&self, mut line: Line) {
        let mut buffer = [0; 4096];
        while !self.stop.load(Ordering::Relaxed) {
            let event = match line.read(&mut buffer) {
                Reading::Bytes(length) => Event::Bytes(buffer[..length].to_vec()),
                Reading::Quiet => continue,
                Reading::End => {
                    // The listener may be gone.
                    let _ = self.sender.send((self.index, Event::End));
                    return;
                }
                Reading::Gone => {
                    if self.sender.send((self.index, Event::Gone)).is_err() {
                        return;
                    }
                    let since = Instant::now();
                    // Closed first: its name is free for the port that returns.
                    drop(line);
                    let Some(again) = self.wait() else { return };
                    line = again;
                    Event::Back(since.elapsed())
                }
            };
            if self.sender.send((self.index, event)).is_err() {
                return;
            }
        }
    }

    /// Waits until the port is there again.
    fn wait(&self) -> Option<Line> {
        loop {
            std::thread::sleep(RETRY);
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Ok(line) = self.port.open(self.baud) {
                return Some(line);
            }
        }
    }
}
