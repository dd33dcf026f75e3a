//! Calls with a list of pages, and the leases under which they are made.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{Error, Registers, Services};
use cloison_abi::reply::{self, Moved};
use cloison_abi::{Call, lease, list};
use std::time::Duration;

/// A program's hold on pages of its VM, until the program ends the lease or no longer renews it.
///
/// Dropping it changes nothing: [`Services::end_lease`] ends it now, and the hypervisor when it
/// runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease(u64);

impl Lease {
    /// Returns its number, by which another process of the VM can renew or end it.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the lease with a number. The hypervisor refuses one that has ended, and never gives
    /// a number twice.
    pub fn with_number(number: u64) -> Self {
        Self(number)
    }
}

fn nanos(length: Duration) -> Result<u64, Error> {
    let nanos = u64::try_from(length.as_nanos()).ok();
    nanos
        .filter(|nanos| (1..=lease::LONGEST_NANOS).contains(nanos))
        .ok_or(Error::Length)
}

impl<R: Registers> Services<R> {
    /// Takes the VM's lease, which lasts for `length` from now, at most an hour.
    ///
    /// # Errors
    /// [`CallError::Taken`](cloison_abi::CallError::Taken) while another program has it.
    pub fn take_lease(&mut self, length: Duration) -> Result<Lease, Error> {
        self.call(Call::Lease, [0, nanos(length)?, 0])
            .map(|reply::Lease { number }| Lease(number))
    }

    /// Renews a lease for `length` from now, at most an hour.
    ///
    /// # Errors
    ///
    /// [`CallError::Expired`](cloison_abi::CallError::Expired) if it has ended: its pages are back,
    /// and cacheable.
    pub fn renew_lease(&mut self, lease: Lease, length: Duration) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::Lease, [lease.0, nanos(length)?, 0])
            .map(drop)
    }

    /// Ends a lease: its pages move back, and all pages of the VM are cacheable again.
    ///
    /// # Errors
    /// [`CallError::Expired`](cloison_abi::CallError::Expired) if it has ended.
    pub fn end_lease(&mut self, lease: Lease) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::Lease, [lease.0, 0, 0])
            .map(drop)
    }

    /// Moves pages, given by their first addresses in any order, to the VM's private pool, all or
    /// none. Returns how many moved; the others were there already. Without the lease, they
    /// stay there until they are returned or restored.
    ///
    /// # Errors
    /// [`Error::Page`] names the page that cannot move. No page of the list is then in the pool
    /// with this lease.
    pub fn move_pages(&mut self, pages: &[u64], lease: Option<Lease>) -> Result<u64, Error> {
        let (entries, number) = (ascending(pages), lease.map_or(0, |lease| lease.0));
        let mut moved = 0;
        for (part, entries) in chunks(&entries) {
            match self.listed(Call::MovePages, entries, number) {
                Ok(more) => moved += more,
                Err(error) => {
                    // What fails now too is tried again when the lease ends, and then the first
                    // error is the one to fix.
                    let _ = self.return_sorted(&pages_before(pages, part), number);
                    return Err(error);
                }
            }
        }
        Ok(moved)
    }

    /// Moves pages back that were moved with this lease, or without one. Returns how many moved;
    /// others stay where they are.
    pub fn return_pages(&mut self, pages: &[u64], lease: Option<Lease>) -> Result<u64, Error> {
        self.return_sorted(&ascending(pages), lease.map_or(0, |lease| lease.0))
    }

    fn return_sorted(&mut self, entries: &[u64], lease: u64) -> Result<u64, Error> {
        chunks(entries)
            .map(|(_, entries)| self.listed(Call::ReturnPages, entries, lease))
            .sum()
    }

    /// Makes pages, given by their first addresses in any order, cacheable (`true`) or
    /// non-cacheable. Returns how many changed. Each 512 of them change all or none.
    ///
    /// # Errors
    /// [`Error::Page`] names a page that is not in the VM's RAM.
    pub fn cache_pages(&mut self, pages: &[(u64, bool)], lease: Lease) -> Result<u64, Error> {
        let entry = |&(page, cached): &(u64, bool)| page | if cached { list::CACHED } else { 0 };
        let entries = ascending(&pages.iter().map(entry).collect::<Vec<_>>());
        chunks(&entries)
            .map(|(_, entries)| self.listed(Call::CachePages, entries, lease.0))
            .sum()
    }

    /// Makes a call with one list.
    fn listed(&mut self, call: Call, entries: &[u64], lease: u64) -> Result<u64, Error> {
        let at = self.registers.put_list(entries)?;
        let (status, registers) = self.exchange(call, [at, entries.len() as u64, lease])?;
        // Where the kernel has moved the list, the hypervisor may have read another page's
        // contents.
        if self.registers.list_ipa()? != at {
            return Err(Error::List {
                what: "keep",
                source: std::io::ErrorKind::Interrupted.into(),
            });
        }
        let entry = usize::try_from(registers[0])
            .ok()
            .and_then(|index| entries.get(index));
        match (status, entry) {
            (Ok(()), _) => Ok(Moved::from(registers).pages),
            (Err(error), Some(&entry)) => Err(Error::Page {
                call,
                error,
                page: entry & !list::CACHED,
            }),
            (Err(error), None) => Err(Error::Refused { call, error }),
        }
    }
}

/// Returns entries as the hypervisor wants them, each once.
fn ascending(entries: &[u64]) -> Vec<u64> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Returns the lists that make up a longer one, each with its number.
fn chunks(entries: &[u64]) -> impl Iterator<Item = (usize, &[u64])> {
    entries.chunks(list::LONGEST as usize).enumerate()
}

/// Returns the pages of the first `parts` lists.
fn pages_before(pages: &[u64], parts: usize) -> Vec<u64> {
    let mut entries = ascending(pages);
    entries.truncate(parts * list::LONGEST as usize);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{LIST, with_list};
    use cloison_abi::CallError;
    use cloison_logic::services_page::Request;
    use std::sync::{Arc, Mutex};

    /// Calls, each with its list.
    type Calls = Arc<Mutex<Vec<(Request, Vec<u64>)>>>;

    /// Services that note each call, and answer with `answer`.
    fn noted(answer: impl Fn(usize, &Request) -> [u64; 4]) -> (Services<impl Registers>, Calls) {
        let (calls, list) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::<Mutex<Vec<u64>>>::default(),
        );
        let (noted, read) = (calls.clone(), list.clone());
        let services = with_list(list, move |request| {
            let mut noted = noted.lock().unwrap();
            noted.push((request, read.lock().unwrap().clone()));
            answer(noted.len() - 1, &request)
        });
        (services, calls)
    }

    #[test]
    fn lists_ascend_and_name_each_page_once() {
        let (mut services, calls) = noted(|_, _| [0, 2, 0, 0]);
        let moved = services
            .move_pages(&[0x5000, 0x3000, 0x5000], Some(Lease(7)))
            .unwrap();
        let cached = services
            .cache_pages(&[(0x9000, false), (0x1000, true)], Lease(7))
            .unwrap();
        assert_eq!((moved, cached), (2, 2));
        let request = |call: Call, arguments| Request {
            function: call as u32,
            arguments,
        };
        let expected = [
            (request(Call::MovePages, [LIST, 2, 7]), vec![0x3000, 0x5000]),
            (
                request(Call::CachePages, [LIST, 2, 7]),
                vec![0x1001, 0x9000],
            ),
        ];
        assert_eq!(*calls.lock().unwrap(), expected);
    }

    #[test]
    fn a_thousand_pages_move_all_or_none() {
        let pages: Vec<u64> = (0..1000).map(|page| 0x4000_0000 + page * 0x1000).collect();
        let full = CallError::PoolFull as i64 as u64;
        let (mut services, calls) = noted(move |call, _| {
            if call == 1 {
                [full, 3, 0, 0]
            } else {
                [0, 512, 0, 0]
            }
        });
        let error = services.move_pages(&pages, None).unwrap_err();
        assert!(
            matches!(error, Error::Page { error: CallError::PoolFull, page, .. } if page == pages[515]),
            "{error}"
        );
        let calls = calls.lock().unwrap();
        let made: Vec<_> = calls
            .iter()
            .map(|(request, list)| (request.function, list.len()))
            .collect();
        let (there, back) = (Call::MovePages as u32, Call::ReturnPages as u32);
        assert_eq!(made, [(there, 512), (there, 488), (back, 512)]);
        assert_eq!(calls[2].1, pages[..512]);
    }

    #[test]
    fn what_is_wrong_with_no_page_is_said_of_the_call() {
        let taken = CallError::Taken as i64 as u64;
        let (mut services, _) = noted(move |_, _| [taken, list::NO_ENTRY, 0, 0]);
        let error = services
            .cache_pages(&[(0x1000, false)], Lease(1))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "another program has the lease of this VM's pages"
        );
        assert!(error.help().unwrap().contains("lease"));
    }

    #[test]
    fn leases_last_from_a_nanosecond_to_an_hour() {
        let (mut services, calls) = noted(|_, _| [0, 9, 0, 0]);
        for length in [Duration::ZERO, Duration::from_secs(3601), Duration::MAX] {
            assert!(matches!(services.take_lease(length), Err(Error::Length)));
        }
        let lease = services.take_lease(Duration::from_secs(3600)).unwrap();
        services
            .renew_lease(lease, Duration::from_nanos(1))
            .unwrap();
        services.end_lease(lease).unwrap();
        let arguments: Vec<_> = calls
            .lock()
            .unwrap()
            .iter()
            .map(|(request, _)| request.arguments)
            .collect();
        assert_eq!(
            arguments,
            [[0, lease::LONGEST_NANOS, 0], [9, 1, 0], [9, 0, 0]]
        );
    }
}
