//! Changes of the VM's pages under the VM's lease: the hypervisor undoes them even if this process
//! is killed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::lock::Lock;
use cloison_abi::{Call, CallError, list};
use cloison_client::{Lease, Services};
use std::collections::BTreeSet;
use std::time::Duration;

/// The shortest and the longest time for which the lease is held without being renewed.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);
/// How many times longer than with all its caches a function may take without them.
const SLOWER: u32 = 100;

/// The calls that change pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of calls, each with a list of pages.
    pub calls: u64,
    /// Number of pages in all lists.
    pub changes: u64,
}

impl Cost {
    /// Counts the calls that change this many pages.
    fn count(&mut self, pages: usize) {
        self.calls += (pages as u64).div_ceil(list::LONGEST);
        self.changes += pages as u64;
    }
}

/// The lease of the VM's pages, and the calls that are made under it.
pub struct HeldLease {
    services: Services,
    lease: Lease,
    /// For how long it is renewed.
    length: Duration,
    /// The frames that are kept from the caches.
    uncached: BTreeSet<u64>,
    /// What the changes of pages have cost so far.
    pub cost: Cost,
    lock: Lock,
}

impl HeldLease {
    /// Takes the lease. If a killed profiler left one, waits until that has ended.
    pub fn take() -> Result<Self, Error> {
        let (mut lock, mut services) = (Lock::take()?, Services::open()?);
        end_stale(&mut lock, &mut services)?;
        let lease = services.take_lease(SHORTEST)?;
        let held = Self {
            services,
            lease,
            length: SHORTEST,
            uncached: BTreeSet::new(),
            cost: Cost::default(),
            lock,
        };
        held.lock.write(lease.number())?;
        Ok(held)
    }

    /// Returns the services.
    pub fn services(&mut self) -> &mut Services {
        &mut self.services
    }

    /// Sets the lease's length to the longest time that a segment can take that took `cached` with
    /// all caches.
    pub fn last_for(&mut self, cached: Duration) {
        self.length = cached.saturating_mul(SLOWER).clamp(SHORTEST, LONGEST);
    }

    /// Returns the time after which the lease ends if it is not renewed.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Has a lease for what comes next. Between runs it is no loss if the last one has run out, as
    /// it does while a program takes long to reach its function.
    fn hold(&mut self) -> Result<(), Error> {
        match self.services.renew_lease(self.lease, self.length) {
            Err(error) if is(&error, CallError::Expired) => {
                self.lease = self.services.take_lease(self.length)?;
                // The hypervisor has made all pages as they were.
                self.uncached.clear();
                self.lock.write(self.lease.number())
            }
            renewed => renewed.map_err(Error::from),
        }
    }

    /// Renews the lease.
    pub fn renew(&mut self) -> Result<(), Error> {
        let renewed = self.services.renew_lease(self.lease, self.length);
        renewed.map_err(|error| {
            if is(&error, CallError::Expired) {
                Error::Expired(self.length)
            } else {
                error.into()
            }
        })
    }

    /// Keeps these frames, and no others, from the caches. Changes only those that differ from what
    /// was kept before.
    pub fn keep_uncached(&mut self, frames: &BTreeSet<u64>) -> Result<(), Error> {
        self.hold()?;
        let changes = changes(&self.uncached, frames);
        if changes.is_empty() {
            return Ok(());
        }
        self.cost.count(changes.len());
        let changed = self.services.cache_pages(&changes, self.lease);
        if changed.is_err() {
            // Some lists may have been carried out.
            self.uncached.extend(frames);
        }
        changed?;
        self.uncached.clone_from(frames);
        Ok(())
    }

    /// Calls a function while these frames are in the private pool, if all fit.
    pub fn moved<T>(
        &mut self,
        frames: &[u64],
        what: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.hold()?;
        match self.services.move_pages(frames, Some(self.lease)) {
            Ok(_) => {}
            Err(error) if is(&error, CallError::PoolFull) => {
                let pool = self.services.private_pool()?;
                let free = pool.pages.saturating_sub(pool.taken);
                return Err(Error::Pool {
                    free,
                    wanted: frames.len() as u64,
                });
            }
            Err(error) => return Err(error.into()),
        }
        let done = what(self);
        let undone = self.services.return_pages(frames, Some(self.lease));
        // There and back.
        self.cost.count(frames.len());
        self.cost.count(frames.len());
        self.after(done, undone.map(drop))
    }

    /// What went wrong first is what counts. If the lease ran out, pages came back in the middle.
    fn after<T>(
        &mut self,
        done: Result<T, Error>,
        undone: Result<(), cloison_client::Error>,
    ) -> Result<T, Error> {
        let done = done?;
        match undone {
            Ok(()) => Ok(done),
            Err(error) if is(&error, CallError::Expired) => Err(Error::Expired(self.length)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        // If it has run out, or the call fails, the hypervisor has ended it or will.
        let _ = self.services.end_lease(self.lease);
        let _ = self.lock.clear();
    }
}

/// Returns the changes from one set of non-cacheable frames to another: each frame, and whether it
/// becomes cacheable.
fn changes(now: &BTreeSet<u64>, wanted: &BTreeSet<u64>) -> Vec<(u64, bool)> {
    let cached = now.difference(wanted).map(|&frame| (frame, true));
    let uncached = wanted.difference(now).map(|&frame| (frame, false));
    cached.chain(uncached).collect()
}

/// Returns whether the hypervisor gave this answer.
fn is(error: &cloison_client::Error, answer: CallError) -> bool {
    use cloison_client::Error::{Page, Refused};
    matches!(error, Refused { error, .. } | Page { error, .. } if *error == answer)
}

/// Ends the lease of a profiler that was killed. Returns whether there was one.
fn end_stale(lock: &mut Lock, services: &mut Services) -> Result<bool, Error> {
    let Some(number) = lock.read()? else {
        return Ok(false);
    };
    let ended = match services.end_lease(Lease::with_number(number)) {
        // It has run out by now.
        Err(cloison_client::Error::Refused {
            call: Call::Lease,
            error: CallError::Expired,
        }) => false,
        other => other.map(|()| true)?,
    };
    lock.clear()?;
    Ok(ended)
}

/// Ends the lease of a profiler that was killed, before it runs out. Returns whether there was one.
pub fn restore() -> Result<bool, Error> {
    end_stale(&mut Lock::take()?, &mut Services::open()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_changes() {
        let set = |frames: &[u64]| frames.iter().copied().collect::<BTreeSet<_>>();
        let from_page_to_page = changes(&set(&[0x1000, 0x3000]), &set(&[0x1000, 0x2000]));
        assert_eq!(from_page_to_page, [(0x3000, true), (0x2000, false)]);
        assert_eq!(changes(&set(&[0x1000]), &set(&[0x1000])), []);
        assert_eq!(changes(&set(&[0x1000]), &set(&[])), [(0x1000, true)]);
    }

    /// A profile in mode `c`: none uncached, all, all but each page in turn, none.
    #[test]
    fn the_changes_of_a_profile_grow_with_its_pages_and_not_with_their_square() {
        for pages in [100, 4000] {
            let all: BTreeSet<u64> = (0..pages).map(|page| page << 12).collect();
            let (mut now, mut wanted, mut cost) = (all.clone(), all.clone(), Cost::default());
            cost.count(all.len());
            for page in &all {
                wanted.remove(page);
                let changes = changes(&now, &wanted);
                cost.count(changes.len());
                for (frame, cached) in changes {
                    assert!(if cached {
                        now.remove(&frame)
                    } else {
                        now.insert(frame)
                    });
                }
                wanted.insert(*page);
            }
            cost.count(changes(&now, &BTreeSet::new()).len());
            let lists = |pages: u64| pages.div_ceil(list::LONGEST);
            let expected = Cost {
                calls: lists(pages) + pages + lists(pages - 1),
                changes: 4 * pages - 2,
            };
            assert_eq!(cost, expected);
        }
    }
}
