//! Replies of the services page, as Linux guests read them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::target::{Form, Outcome, Target};
use cloison_abi::{ABI_VERSION, page};
use cloison_client::{Error, Registers, Services};
use std::cell::Cell;
use std::time::Duration;

/// All calls of the client, with any replies.
pub const SERVICES: Target = Target {
    name: "services",
    package: "cloison-client",
    rule: "each call ends, with a reply or an error that has a message",
    form: Form::Bytes,
    files: &[],
    made: || vec![vec![0; 64], vec![0xff; 64], (0..=255).collect()],
    check: |input| {
        let replies = Replies {
            values: input
                .as_chunks()
                .0
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect(),
            at: Cell::new(0),
        };
        let mut services = Services::new(replies).expect("magic and version are right");
        let results = [
            services.time().map(|_| ()),
            services.regions().map(|_| ()),
            services.private_pool().map(|_| ()),
            services.page_state(0).map(|_| ()),
            services.migrate_top(1).map(|_| ()),
            services.vms().map(|_| ()),
            services.quota(0).map(|_| ()),
            services.quota_terms(0).map(|_| ()),
            services.counters().map(|_| ()),
            services.hems().map(|_| ()),
            services.segment_end().map(|_| ()),
            services
                .move_pages(&[0x4000_0000, 0x4000_1000], None)
                .map(|_| ()),
            services.take_lease(Duration::from_millis(1)).map(|_| ()),
        ];
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert!(!error.to_string().is_empty());
        }
        match results.iter().any(Result::is_ok) {
            true => Outcome::Accepted,
            false => Outcome::Refused,
        }
    },
};

/// Registers whose values are given, one after the other. After the last one, each call is absent.
struct Replies {
    values: Vec<u64>,
    at: Cell<usize>,
}

impl Registers for Replies {
    fn read(&self, offset: u16) -> u64 {
        match offset {
            page::MAGIC => page::MAGIC_VALUE,
            page::VERSION => ABI_VERSION,
            _ => {
                let at = self.at.get();
                self.at.set(at + 1);
                let absent = cloison_abi::CallError::Absent as i64 as u64;
                self.values.get(at).copied().unwrap_or(absent)
            }
        }
    }
    fn write(&mut self, _: u16, _: u64) {}
    fn put_list(&mut self, _: &[u64]) -> Result<u64, Error> {
        Ok(0x4000_0000)
    }
    fn list_ipa(&self) -> Result<u64, Error> {
        Ok(0x4000_0000)
    }
}
