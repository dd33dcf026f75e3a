//! The terms of an event code on a CPU: native events that are added and subtracted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::{Closeness, Cpu, Definition, Term};
use crate::error::Error;
use crate::preset::{self, PAPI_NATIVE_MASK, PAPI_PRESET_MASK};
use cloison_events::EventId;

/// Returns whether a code has the form of a preset's; such a preset need not exist.
pub fn is_preset(code: i32) -> bool {
    code & PAPI_PRESET_MASK != 0 && code & PAPI_NATIVE_MASK == 0
}

/// Returns whether a code has the form of a native event's; such an event need not exist.
pub fn is_native(code: i32) -> bool {
    code & PAPI_PRESET_MASK == 0 && code & PAPI_NATIVE_MASK != 0
}

/// Returns the code of a native event.
pub fn native_code(event: EventId) -> i32 {
    PAPI_NATIVE_MASK | i32::from(event.0)
}

/// Returns the native event that a code stands for, whether a CPU has it or not.
pub fn native_event(code: i32) -> Option<EventId> {
    u16::try_from(code ^ PAPI_NATIVE_MASK).ok().map(EventId)
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

    /// Returns the terms.
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
/// [`Error::NotPreset`] for a preset that PAPI does not have, [`Error::NoEvent`] for what the CPU
/// does not have.
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
    let event = native_event(code)
        .filter(|event| cpu.native(*event).is_some())
        .ok_or(Error::NoEvent)?;
    Ok(Terms {
        native: Some([Term {
            event,
            minus: false,
        }]),
        preset: &[],
        closeness: Closeness::Exact,
    })
}
