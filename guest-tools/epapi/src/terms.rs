//! What an event code stands for on a CPU: native events that are added and subtracted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::{Closeness, Cpu, Definition, Term};
use crate::error::Error;
use crate::preset::{self, PAPI_NATIVE_MASK, PAPI_PRESET_MASK};

/// Returns whether a code is a preset's, whether that exists or not.
pub fn is_preset(code: i32) -> bool {
    code & PAPI_PRESET_MASK != 0 && code & PAPI_NATIVE_MASK == 0
}

/// Returns whether a code is a native event's, whether that exists or not.
pub fn is_native(code: i32) -> bool {
    code & PAPI_PRESET_MASK == 0 && code & PAPI_NATIVE_MASK != 0
}

/// An event's terms, and how close their sum is to what its name promises.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    native: Option<[Term; 1]>,
    preset: &'static [Term],
    /// How good the sum is.
    pub closeness: Closeness,
}

impl Terms {
    /// No event.
    pub(crate) const NONE: Self = Self {
        native: None,
        preset: &[],
        closeness: Closeness::Exact,
    };

    /// Returns what is added and subtracted.
    pub fn as_slice(&self) -> &[Term] {
        self.native.as_ref().map_or(self.preset, |one| one)
    }

    /// Returns whether the event is a sum or difference of several.
    pub fn is_derived(&self) -> bool {
        self.preset.len() > 1
    }
}

/// Returns the terms of an event that the CPU has.
///
/// # Errors
/// [`Error::NotPreset`] for a preset that PAPI does not have, [`Error::NoEvent`] for what the CPU does not have.
pub fn of(cpu: &Cpu, code: i32) -> Result<Terms, Error> {
    if is_preset(code) {
        preset::by_code(code).ok_or(Error::NotPreset)?;
        let Definition {
            terms, closeness, ..
        } = cpu.preset(code).ok_or(Error::NoEvent)?;
        return Ok(Terms {
            native: None,
            preset: terms,
            closeness: *closeness,
        });
    }
    let number = u16::try_from(code ^ PAPI_NATIVE_MASK)
        .ok()
        .filter(|number| cpu.native(*number).is_some());
    let number = number.ok_or(Error::NoEvent)?;
    Ok(Terms {
        native: Some([Term {
            number,
            minus: false,
        }]),
        preset: &[],
        closeness: Closeness::Exact,
    })
}
