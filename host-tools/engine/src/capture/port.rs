//! The ports that a board is read from: serial ports, pseudo-terminals, console servers, log files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::Diagnostic;
use serial2::SerialPort;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// How long a read waits for bytes.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// How long a console server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Linux's number of the error that a pipe or a device gives that is no terminal (ENOTTY).
const NOT_A_TERMINAL: i32 = 25;

/// Bits per second of a serial line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baud(pub u32);

/// A port, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// A serial port, a pseudo-terminal, or a file with what was received before.
    Path(PathBuf),
    /// A TCP console server.
    Tcp {
        /// Name or address of the host.
        host: String,
        /// Number of the port.
        port: u16,
    },
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPort {
    /// There is no text.
    #[error("empty; give a serial port such as /dev/ttyUSB0, or tcp:HOST:PORT")]
    Empty,
    /// What follows `tcp:` is not an address.
    #[error("not an address; write tcp:HOST:PORT, such as tcp:lab-console:2001")]
    Address,
}

impl FromStr for Port {
    type Err = BadPort;

    fn from_str(text: &str) -> Result<Self, BadPort> {
        if text.is_empty() {
            return Err(BadPort::Empty);
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            return Ok(Self::Path(text.into()));
        };
        let (host, port) = address.rsplit_once(':').ok_or(BadPort::Address)?;
        let port = port.parse().map_err(|_| BadPort::Address)?;
        if host.is_empty() || port == 0 {
            return Err(BadPort::Address);
        }
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self::Tcp { host, port })
    }
}

/// Why a port cannot be read.
#[derive(Debug, Error, Diagnostic)]
pub enum PortError {
    /// There is no such file.
    #[error("there is no port {port}")]
    #[diagnostic(
        code(capture::no_port),
        help(
            "{known}; is the cable plugged in, and the board's USB bridge powered? `dmesg` names \
             new ports, and names in /dev/serial/by-id do not change"
        )
    )]
    Missing {
        /// The port.
        port: Port,
        /// The ports of this machine, in words.
        known: String,
    },
    /// The user may not read it.
    #[error("no permission to open {port}")]
    #[diagnostic(
        code(capture::no_permission),
        help(
            "add yourself to its group (`ls -l {port}` names it; often `sudo usermod -aG dialout \
              $USER`), and log in again"
        )
    )]
    NoPermission {
        /// The port.
        port: Port,
    },
    /// It is a directory.
    #[error("{port} is a directory")]
    #[diagnostic(
        code(capture::directory),
        help("give one port in it, or a file with what was received")
    )]
    Directory {
        /// The directory.
        port: Port,
    },
    /// It is a device of another kind.
    #[error("{port} is not a serial port")]
    #[diagnostic(code(capture::not_a_port), help("{known}"))]
    NotAPort {
        /// The port.
        port: Port,
        /// The ports of this machine, in words.
        known: String,
    },
    /// The log is empty.
    #[error("{port} is empty")]
    #[diagnostic(
        code(capture::empty),
        help("nothing was received: start the capture before the board, on the right port")
    )]
    Empty {
        /// The file.
        port: Port,
    },
    /// Two options name the same port.
    #[error("{one} and {other} are the same port")]
    #[diagnostic(
        code(capture::same_port),
        help(
            "the console and the telemetry are two UARTs: give each its own port, or leave one \
             option out"
        )
    )]
    Same {
        /// The one.
        one: Port,
        /// The other.
        other: Port,
    },
    /// The port rejects the baud rate, or its other settings.
    #[error("{port} cannot be set to {} baud, 8 data bits, no parity, 1 stop bit", baud.0)]
    #[diagnostic(
        code(capture::settings),
        help("give a rate that this USB bridge has (--baud 115200), and end other programs on it")
    )]
    Settings {
        /// The port.
        port: Port,
        /// The rate.
        baud: Baud,
        /// What the system says.
        source: io::Error,
    },
    /// The console server does not answer.
    #[error("cannot connect to {port}")]
    #[diagnostic(
        code(capture::no_server),
        help(
            "is the console server on, and is this its raw TCP port of this line (not telnet's or \
             ssh's)? `nc HOST PORT` must show the console"
        )
    )]
    NoServer {
        /// The address.
        port: Port,
        /// What the system says.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot open {port}")]
    #[diagnostic(
        code(capture::unreadable),
        help("end other programs that use it (`fuser {port}`), or plug the cable in again")
    )]
    Unreadable {
        /// The port.
        port: Port,
        /// What the system says.
        source: io::Error,
    },
}

/// An open port.
#[derive(Debug)]
pub enum Line {
    /// A serial port or a pseudo-terminal, in raw mode.
    Serial(SerialPort),
    /// A connection to a console server.
    Tcp(TcpStream),
    /// A log, which has an end.
    Log(File),
}

/// What a read found.
#[derive(Debug)]
pub enum Reading {
    /// This many bytes.
    Bytes(usize),
    /// No bytes for a moment.
    Quiet,
    /// The log's end.
    End,
    /// The port is gone: unplugged, closed or disconnected.
    Gone,
}

impl Line {
    /// Reads what has arrived, waiting for a moment.
    pub fn read(&mut self, buffer: &mut [u8]) -> Reading {
        let read = match self {
            Self::Serial(port) => port.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
            Self::Log(file) => {
                return match file.read(buffer) {
                    Ok(length @ 1..) => Reading::Bytes(length),
                    _ => Reading::End,
                };
            }
        };
        match read {
            Ok(0) => Reading::Gone,
            Ok(length) => Reading::Bytes(length),
            Err(error) => match error.kind() {
                ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                    Reading::Quiet
                }
                _ => Reading::Gone,
            },
        }
    }
}

impl Port {
    /// Opens the port; a serial one in raw mode with 8 data bits, no parity and 1 stop bit.
    ///
    /// # Errors
    ///
    /// Says why it cannot be read.
    pub fn open(&self, baud: Baud) -> Result<Line, PortError> {
        match self {
            Self::Path(path) => self.open_path(path, baud),
            Self::Tcp { host, port } => {
                self.connect(host, *port)
                    .map(Line::Tcp)
                    .map_err(|source| PortError::NoServer {
                        port: self.clone(),
                        source,
                    })
            }
        }
    }

    /// Returns what an error of the system means for the user of the port.
    pub fn cannot_open(&self, source: io::Error) -> PortError {
        let port = self.clone();
        match source.kind() {
            ErrorKind::NotFound => PortError::Missing {
                port,
                known: known(),
            },
            ErrorKind::PermissionDenied => PortError::NoPermission { port },
            _ if source.raw_os_error() == Some(NOT_A_TERMINAL) => PortError::NotAPort {
                port,
                known: known(),
            },
            _ => PortError::Unreadable { port, source },
        }
    }

    fn open_path(&self, path: &Path, baud: Baud) -> Result<Line, PortError> {
        let port = || self.clone();
        let failed = |source| self.cannot_open(source);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(PortError::Directory { port: port() });
        }
        if metadata.is_file() {
            if metadata.len() == 0 {
                return Err(PortError::Empty { port: port() });
            }
            return File::open(path).map(Line::Log).map_err(failed);
        }
        if !metadata.file_type().is_char_device() {
            return Err(PortError::NotAPort {
                port: port(),
                known: known(),
            });
        }
        let mut serial = SerialPort::open(path, |mut settings: serial2::Settings| {
            settings.set_raw();
            Ok(settings)
        })
        .map_err(failed)?;
        let set = serial.get_configuration().and_then(|mut settings| {
            settings.set_baud_rate(baud.0)?;
            serial.set_configuration(&settings)?;
            serial.set_read_timeout(PATIENCE)
        });
        set.map(|()| Line::Serial(serial))
            .map_err(|source| PortError::Settings {
                port: port(),
                baud,
                source,
            })
    }

    fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut last = io::Error::from(ErrorKind::NotFound);
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Checks that two options do not name the same port.
    ///
    /// # Errors
    ///
    /// Returns [`PortError::Same`] if they do, also by different names.
    pub fn keep_apart(one: &Self, other: &Self) -> Result<(), PortError> {
        let identity = |port: &Self| match port {
            Self::Path(path) => {
                let metadata = std::fs::metadata(path).ok()?;
                Some((metadata.dev(), metadata.ino()))
            }
            Self::Tcp { .. } => None,
        };
        let is_same = identity(one).is_some_and(|it| Some(it) == identity(other));
        if is_same || one == other {
            let (one, other) = (one.clone(), other.clone());
            return Err(PortError::Same { one, other });
        }
        Ok(())
    }
}

/// Returns the serial ports of this machine in words.
fn known() -> String {
    let mut ports = SerialPort::available_ports().unwrap_or_default();
    ports.sort();
    let names: Vec<String> = ports
        .iter()
        .map(|port| port.display().to_string())
        .collect();
    if names.is_empty() {
        "this machine has no serial ports".to_owned()
    } else {
        format!("the serial ports of this machine: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_path_or_an_address() {
        assert_eq!(
            "/dev/ttyUSB0".parse(),
            Ok(Port::Path("/dev/ttyUSB0".into()))
        );
        let tcp = |host: &str, port| Port::Tcp {
            host: host.into(),
            port,
        };
        assert_eq!("tcp:lab:2001".parse(), Ok(tcp("lab", 2001)));
        assert_eq!("tcp:[::1]:2001".parse(), Ok(tcp("::1", 2001)));
        for bad in ["tcp:", "tcp:lab", "tcp::2001", "tcp:lab:0", "tcp:lab:70000"] {
            assert_eq!(bad.parse::<Port>(), Err(BadPort::Address), "{bad}");
        }
        assert_eq!("".parse::<Port>(), Err(BadPort::Empty));
    }
}
