//! Work that all of the machine's cores share.
//!
//! Rayon's iterators are compiled once for each closure and each kind of result, which took half of
//! the time in which this crate was built. Here they are compiled once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Returns the results of `work` for the numbers below `count`, in their order.
pub fn of_each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    shared(count, &|at| Some(work(at)))
}

/// Returns the results of `work` for the elements of a list, in their order.
pub fn of_all<'a, A: Sync, T: Send>(all: &'a [A], work: impl Fn(&'a A) -> T + Sync) -> Vec<T> {
    shared(all.len(), &|at| Some(work(&all[at])))
}

/// The same of elements that `work` takes, with their places.
pub fn of_owned<A: Send, T: Send>(all: Vec<A>, work: impl Fn(usize, A) -> T + Sync) -> Vec<T> {
    let all: Vec<_> = all.into_iter().map(Some).map(Mutex::new).collect();
    shared(all.len(), &|at| {
        let element = all[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        element.map(|element| work(at, element))
    })
}

/// Returns the results that there are, in the numbers' order.
fn shared<T: Send>(count: usize, work: &(dyn Fn(usize) -> Option<T> + Sync)) -> Vec<T> {
    let places: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    for_each(count, &|at| {
        let result = work(at);
        *places[at].lock().unwrap_or_else(PoisonError::into_inner) = result;
    });
    let taken =
        |place: Mutex<Option<T>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
    places.into_iter().filter_map(taken).collect()
}

fn for_each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(work);
}
