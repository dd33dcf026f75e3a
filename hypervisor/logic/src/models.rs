//! Protocols of the hypervisor under loom: what cores do at the same time with doorbells, links,
//! console, the telemetry, leases, frames and the services page, in all interleavings up to a bound
//! of preemptions. Beside each model is one with a bug that the search must find.
//!
//! The state is this crate's. The order of locks and steps is that of the functions in
//! `hypervisor/src` that each model names: they touch hardware, so their steps are written again
//! here.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod doorbell;
mod frames;
mod leases;
mod links;
mod output;
mod services_page;

use core::ops::{Deref, DerefMut};
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard};

/// A lock that cores try to take, as the hypervisor's is: one atomic word. To loom's own mutex, an
/// attempt is not a step whose order with the other core's release it tries.
#[derive(Debug)]
struct Lock<T> {
    is_held: AtomicBool,
    /// Only the thread that holds the lock takes this one too.
    value: Mutex<T>,
}

/// What a [`Lock`] protects, until this is dropped.
struct Held<'a, T> {
    /// `None` only while it is dropped.
    value: Option<MutexGuard<'a, T>>,
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    fn new(value: T) -> Self {
        Self {
            is_held: AtomicBool::new(false),
            value: Mutex::new(value),
        }
    }

    /// Takes the lock if it is free. There is no form that waits: a model has to end in all
    /// interleavings.
    fn try_lock(&self) -> Option<Held<'_, T>> {
        // A failed attempt must not write: loom could take that for the newer word.
        let taken = self.is_held.compare_exchange(false, true, Acquire, Relaxed);
        taken.ok().map(|_| Held {
            value: Some(self.value.lock().expect("no thread panics with it")),
            lock: self,
        })
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("not dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("not dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.lock.is_held.store(false, Release);
    }
}
