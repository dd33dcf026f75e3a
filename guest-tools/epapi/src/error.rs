//! PAPI's return codes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::ffi::CStr;
use core::fmt;

macro_rules! errors {
    ($($name:ident $constant:ident $code:literal $text:literal;)*) => {
        /// Why a call failed. The numbers are PAPI's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Error {
            $(#[doc = concat!("`", stringify!($constant), "`: ", $text)] $name = $code,)*
        }

        impl Error {
            /// All of them, with the names of their constants.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, stringify!($constant)),)*];

            const fn text(self) -> &'static CStr {
                match self {
                    $(Self::$name => match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                        Ok(text) => text,
                        Err(_) => c"",
                    },)*
                }
            }
        }
    };
}

errors! {
    Invalid PAPI_EINVAL -1 "Invalid argument";
    NoMemory PAPI_ENOMEM -2 "Insufficient memory";
    System PAPI_ESYS -3 "A System/C library call failed";
    Component PAPI_ECMP -4 "Not supported by component";
    CountersLost PAPI_ECLOST -5 "Access to the counters was lost or interrupted";
    Bug PAPI_EBUG -6 "Internal error, please send mail to the developers";
    NoEvent PAPI_ENOEVNT -7 "Event does not exist";
    Conflict PAPI_ECNFLCT -8 "Event exists, but cannot be counted due to hardware resource limits";
    NotRunning PAPI_ENOTRUN -9 "EventSet is currently not running";
    IsRunning PAPI_EISRUN -10 "EventSet is currently counting";
    NoEventSet PAPI_ENOEVST -11 "No such EventSet available";
    NotPreset PAPI_ENOTPRESET -12 "Event in argument is not a valid preset";
    NoCounters PAPI_ENOCNTR -13 "Hardware does not support performance counters";
    Unknown PAPI_EMISC -14 "Unknown error code";
    Permission PAPI_EPERM -15 "Permission level does not permit operation";
    NotInitialized PAPI_ENOINIT -16 "PAPI hasn't been initialized yet";
    NoComponent PAPI_ENOCMP -17 "Component Index isn't set";
    NotSupported PAPI_ENOSUPP -18 "Not supported";
    NotImplemented PAPI_ENOIMPL -19 "Not implemented";
    Buffer PAPI_EBUF -20 "Buffer size exceeded";
    Domain PAPI_EINVAL_DOM -21 "EventSet domain is not supported for the operation";
    Attribute PAPI_EATTR -22 "Invalid or missing event attributes";
    TooMany PAPI_ECOUNT -23 "Too many events or attributes";
    Combination PAPI_ECOMBO -24 "Bad combination of features";
    Disabled PAPI_ECMP_DISABLED -25 "Component containing event is disabled";
    Delayed PAPI_EDELAY_INIT -26 "Delayed initialization component";
    MultiplePasses PAPI_EMULPASS -27 "Event exists, but cannot be counted due to multiple passes required by hardware";
}

/// The return code of a call that succeeded.
pub const PAPI_OK: i32 = 0;

impl Error {
    /// Returns PAPI's number for it: less than 0.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// Returns PAPI's text on a return code, or `None` if there is no such code.
pub fn strerror(code: i32) -> Option<&'static CStr> {
    match code {
        PAPI_OK => Some(c"No error"),
        code => Error::ALL
            .iter()
            .find(|(error, _)| error.code() == code)
            .map(|(error, _)| error.text()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().to_str().unwrap_or_default())
    }
}

impl core::error::Error for Error {}
