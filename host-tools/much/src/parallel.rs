//! Work that all of the machine's cores share.
//!
//! Rayon's iterators are compiled once for each closure, which took half of the time in which this
//! crate was built. Here they are compiled once for each kind of result.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rayon::prelude::*;

/// Returns the results of `work` for the numbers below `count`, in their order.
pub fn of_each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    shared(count, &work)
}

/// Returns the results of `work` for the elements of a list, in their order.
pub fn of_all<'a, A: Sync, T: Send>(all: &'a [A], work: impl Fn(&'a A) -> T + Sync) -> Vec<T> {
    shared(all.len(), &|at| work(&all[at]))
}

/// The same of elements that `work` takes, with their places.
pub fn of_owned<A: Send, T: Send>(all: Vec<A>, work: impl Fn(usize, A) -> T + Sync) -> Vec<T> {
    let work: &(dyn Fn((usize, A)) -> T + Sync) = &|(at, element)| work(at, element);
    all.into_par_iter().enumerate().map(work).collect()
}

fn shared<T: Send>(count: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    (0..count).into_par_iter().map(work).collect()
}
