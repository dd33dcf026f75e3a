//! Frames that the caches may not hold, and frames in the private pool: as long as a value lives.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_client::Services;
use cloison_profile::layout::PAGE;

/// Returns ranges of consecutive frames: the first address and the number of pages of each.
pub fn ranges(frames: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut frames: Vec<u64> = frames.into_iter().collect();
    frames.sort_unstable();
    frames.dedup();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for frame in frames {
        match ranges.last_mut() {
            Some((first, pages)) if *first + *pages * PAGE == frame => *pages += 1,
            _ => ranges.push((frame, 1)),
        }
    }
    ranges
}

/// Frames that the caches may not hold. They may again when this value is dropped.
pub struct Uncached<'a> {
    services: &'a mut Services,
    ranges: Vec<(u64, u64)>,
    /// Calls to the hypervisor.
    pub calls: u64,
}

impl<'a> Uncached<'a> {
    /// Keeps frames from the caches.
    pub fn new(services: &'a mut Services, frames: impl IntoIterator<Item = u64>) -> Result<Self, Error> {
        let mut uncached = Self { services, ranges: Vec::new(), calls: 0 };
        for (first, pages) in ranges(frames) {
            // Noted before the call: what fails halfway is undone, too.
            uncached.ranges.push((first, pages));
            uncached.services.set_cacheability(first, pages, false)?;
            uncached.calls += 1;
        }
        Ok(uncached)
    }

    /// Returns the services.
    pub fn services(&mut self) -> &mut Services {
        self.services
    }
}

impl Drop for Uncached<'_> {
    fn drop(&mut self) {
        for (first, pages) in self.ranges.drain(..) {
            if let Err(error) = self.services.set_cacheability(first, pages, true) {
                eprintln!("warning: {pages} pages at {first:#x} stay non-cacheable: {error}; run `bbprof restore`");
            }
        }
    }
}

/// Frames in the private pool. All migrated pages of the VM go back when this value is dropped.
pub struct Moved<'a> {
    services: &'a mut Services,
    /// Calls to the hypervisor.
    pub calls: u64,
}

impl<'a> Moved<'a> {
    /// Moves frames to the private pool, if all fit.
    pub fn new(services: &'a mut Services, frames: &[u64]) -> Result<Self, Error> {
        let wanted = frames.len() as u64;
        if wanted > 0 {
            let pool = services.private_pool()?;
            let free = pool.pages.saturating_sub(pool.taken);
            if free < wanted {
                return Err(Error::Pool { free, wanted });
            }
        }
        let mut moved = Self { services, calls: 0 };
        for &frame in frames {
            moved.services.migrate_page(frame)?;
            moved.calls += 1;
        }
        Ok(moved)
    }

    /// Returns the services.
    pub fn services(&mut self) -> &mut Services {
        self.services
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        if self.calls > 0
            && let Err(error) = self.services.restore()
        {
            eprintln!("warning: pages stay in the private pool: {error}; run `bbprof restore`");
        }
    }
}

/// Makes all memory of the VM cacheable, and moves all pages back: what a killed profiler has left. Returns how many moved.
pub fn restore(services: &mut Services) -> Result<u64, Error> {
    for region in services.regions()? {
        // A region without colors is a device.
        if region.colors.0 != 0 {
            services.set_cacheability(region.ipa, region.pages, true)?;
        }
    }
    // A VM without a private pool has nothing to move back.
    Ok(services.restore().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_one_range() {
        let frames = [0x7000, 0x5000, 0x6000, 0x9000, 0x6000];
        assert_eq!(ranges(frames), [(0x5000, 3), (0x9000, 1)]);
        assert_eq!(ranges([]), []);
    }
}
