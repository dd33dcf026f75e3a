//! The frames of a pool that VMs share: their cores move pages there and back at the same time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::pool::{FrameAllocator, PoolError, PoolState};
use crate::power::tests::models::check;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::color::ColorSet;
use cloison_formats::image::{Pool, PoolKind};
use loom::sync::atomic::AtomicU8;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::string::String;
use std::vec::Vec;

/// Frames of the pool's color: as many as one of two VMs wants.
const FRAMES: u32 = 2;
/// Pages that each VM moves.
const WANTED: usize = 2;

/// The memory, and the VM that uses each frame; 0 is none.
struct Memory {
    pool: Mutex<(FrameAllocator, PoolState)>,
    users: [AtomicU8; FRAMES as usize],
}

impl Memory {
    fn new() -> Self {
        let ram = PhysRange {
            start: PhysAddr(0),
            len: u64::from(FRAMES) * PAGE_SIZE,
        };
        let spec = Pool {
            name: String::from("shared"),
            kind: PoolKind::Sh,
            colors: ColorSet(1),
            limit: None,
        };
        Self {
            pool: Mutex::new((FrameAllocator::new(1, &[ram], &[]), PoolState::new(spec))),
            users: core::array::from_fn(|_| AtomicU8::new(0)),
        }
    }

    /// Takes a frame: the lock is held for one, as in `vm::migrate::Work::place`.
    fn take(&self) -> Result<PhysAddr, PoolError> {
        let mut pool = self.pool.lock().expect("no thread panics with it");
        let (frames, pool) = &mut *pool;
        pool.allocate(frames)
    }

    fn free(&self, frame: PhysAddr) {
        let mut pool = self.pool.lock().expect("no thread panics with it");
        let (frames, pool) = &mut *pool;
        pool.free(frame, frames).expect("its own frame");
    }

    /// Maps a frame for a VM, or unmaps it.
    fn map(&self, frame: PhysAddr, vm: u8, maps: bool) {
        let (before, after) = if maps { (0, vm) } else { (vm, 0) };
        let user = self.users[frame.page_number() as usize].swap(after, Relaxed);
        assert_eq!(user, before, "a frame of two VMs");
    }
}

/// Moves a VM's pages, all or none, as `vm::migrate::Work::move_all` does. Returns their frames.
fn move_all(memory: &Memory, vm: u8, come_back: fn(&Memory, u8, PhysAddr)) -> Vec<PhysAddr> {
    let mut away = Vec::new();
    while away.len() < WANTED {
        match memory.take() {
            Ok(frame) => {
                memory.map(frame, vm, true);
                away.push(frame);
            }
            Err(error) => {
                assert_eq!(error, PoolError::Exhausted);
                for frame in away.drain(..).rev() {
                    come_back(memory, vm, frame);
                }
                break;
            }
        }
    }
    away
}

/// Two VMs want more pages together than there are: each gets all or none, no frame has two users,
/// and the pool's account holds.
fn each_gets_all_or_none(come_back: fn(&Memory, u8, PhysAddr)) {
    let memory = Arc::new(Memory::new());
    let other = {
        let memory = memory.clone();
        thread::spawn(move || move_all(&memory, 2, come_back).len())
    };
    let ours = move_all(&memory, 1, come_back).len();
    let theirs = other.join().expect("its assertions");
    assert!([ours, theirs].iter().all(|len| [0, WANTED].contains(len)));
    let pool = memory.pool.lock().expect("no thread panics with it");
    assert_eq!(pool.1.taken as usize, ours + theirs);
}

#[test]
fn loom_two_vms_that_fill_a_pool_get_all_or_none() {
    check("frames", || {
        each_gets_all_or_none(|memory, vm, frame| {
            memory.map(frame, vm, false);
            memory.free(frame);
        });
    });
}

#[test]
#[should_panic(expected = "a frame of two VMs")]
fn loom_finds_a_frame_that_is_freed_before_it_is_unmapped() {
    check("planted: free, then unmap", || {
        each_gets_all_or_none(|memory, vm, frame| {
            memory.free(frame);
            memory.map(frame, vm, false);
        });
    });
}
