//! Commands that write and claim files at the same time: all orders of their steps on a real
//! directory. Beside each model is one with a bug that the search must find.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use std::fs;
use std::panic::catch_unwind;

/// Returns all orders of the steps of several parties, given the number of each one's steps: the
/// parties by number, in turn.
pub fn orders(steps: &[usize]) -> Vec<Vec<usize>> {
    if steps.iter().all(|&left| left == 0) {
        return vec![vec![]];
    }
    let mut all = vec![];
    for party in (0..steps.len()).filter(|&party| steps[party] > 0) {
        let mut rest = steps.to_vec();
        rest[party] -= 1;
        for mut order in orders(&rest) {
            order.insert(0, party);
            all.push(order);
        }
    }
    all
}

/// Checks that a planted bug makes a model fail as expected.
pub fn finds(expected: &str, model: impl FnOnce() + std::panic::UnwindSafe) {
    let panic = catch_unwind(model).expect_err("the planted bug was not found");
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    assert!(text.contains(expected), "{text}");
}

/// What happens in the middle of a write.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// Another command writes the file, and is done.
    Writes,
    /// Another command writes a part of it, and fails.
    Fails,
    /// The file is removed.
    Removes,
}

const MEANWHILE: [Meanwhile; 4] = [
    Meanwhile::Nothing,
    Meanwhile::Writes,
    Meanwhile::Fails,
    Meanwhile::Removes,
];
const OLD: &[u8] = b"old contents";
const NEW: &[u8] = b"new contents, which are longer";
const OTHER: &[u8] = b"others";

/// Something that writes a file and calls back in the middle.
type Writing = fn(&Path, &[u8], &mut dyn FnMut(usize) -> io::Result<()>) -> Result<()>;

/// Writes in two parts, with a call before, between and after them.
fn in_parts(
    file: &mut File,
    bytes: &[u8],
    at: &mut dyn FnMut(usize) -> io::Result<()>,
) -> io::Result<()> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    at(0)?;
    file.write_all(first)?;
    at(1)?;
    file.write_all(second)?;
    at(2)
}

/// A command writes a file while others write it, fail to, remove it and read it at each of three
/// places: a reader finds nothing, or the whole of what one of them wrote, and no file is left
/// beside it.
fn every_reader_finds_a_whole_file(write: Writing) -> usize {
    let mut count = 0;
    for before in [None, Some(OLD)] {
        for choice in 0..MEANWHILE.len().pow(3) {
            let scratch = tempfile::tempdir().expect("a directory");
            let path = scratch.path().join("file");
            if let Some(old) = before {
                fs::write(&path, old).expect("a file");
            }
            let read = |place: &dyn std::fmt::Debug| {
                let found = fs::read(&path).ok();
                let is_whole = found
                    .as_deref()
                    .is_none_or(|found| [OLD, NEW, OTHER].contains(&found));
                assert!(is_whole, "half a file at {place:?}: {found:?}");
            };
            let mut step = |place: usize| {
                read(&place);
                let what = MEANWHILE[choice / MEANWHILE.len().pow(place as u32) % MEANWHILE.len()];
                match what {
                    Meanwhile::Nothing => {}
                    Meanwhile::Writes => write(&path, OTHER, &mut |_| Ok(())).expect("it writes"),
                    Meanwhile::Fails => {
                        let full = |at| match at {
                            1 => Err(io::Error::other("the disk is full")),
                            _ => Ok(()),
                        };
                        write(&path, OTHER, &mut { full }).expect_err("it fails");
                    }
                    Meanwhile::Removes => _ = fs::remove_file(&path),
                }
                read(&what);
                Ok(())
            };
            write(&path, NEW, &mut step).expect("it writes");
            let found = fs::read(&path).expect("it was written last");
            assert_eq!(found, NEW, "the last writer's file");
            assert_eq!(
                fs::read_dir(scratch.path()).expect("a directory").count(),
                1
            );
            count += 1;
        }
    }
    count
}

#[test]
fn every_reader_finds_a_whole_file_whoever_writes() {
    let count = every_reader_finds_a_whole_file(|path, bytes, at| {
        stream_atomic(path, |file| in_parts(file, bytes, at))
    });
    println!("writes: {count} interleavings");
    finds("half a file", || {
        every_reader_finds_a_whole_file(|path, bytes, at| {
            let mut file = File::create(path).into_diagnostic()?;
            in_parts(&mut file, bytes, at).into_diagnostic()
        });
    });
}

/// How a command claims a directory.
type Free = fn(&Path, &str) -> Result<Claim>;

/// Three commands, two of them for the same results, claim a directory, write there and are done:
/// no two have one directory at a time, and none has the results of two owners.
fn each_directory_is_of_one_command(free: Free) -> usize {
    const OWNERS: [&str; 3] = ["one", "one", "two"];
    // The last one does not give its directory back.
    let all = orders(&[3, 3, 2]);
    for order in &all {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut claims: [Option<Claim>; 3] = Default::default();
        let mut done = [0; 3];
        for &party in order {
            match done[party] {
                0 => {
                    let claim = free(scratch.path(), OWNERS[party]).expect("a directory");
                    let is_taken = claims
                        .iter()
                        .flatten()
                        .any(|other| other.directory() == claim.directory());
                    assert!(
                        !is_taken,
                        "two commands at once in one directory: {order:?}"
                    );
                    claims[party] = Some(claim);
                }
                1 => {
                    let claim = claims[party].as_ref().expect("claimed");
                    let file = claim.directory().join("figures.json");
                    let found = fs::read_to_string(&file).unwrap_or_default();
                    let is_own = found.is_empty() || found == OWNERS[party];
                    assert!(is_own, "results of two owners: {order:?}");
                    if found.is_empty() {
                        fs::write(&file, OWNERS[party]).expect("it writes");
                    }
                }
                _ => claims[party] = None,
            }
            done[party] += 1;
        }
    }
    all.len()
}

#[test]
fn each_directory_is_of_one_command_in_all_orders() {
    let count = each_directory_is_of_one_command(|parent, owner| Claim::free(parent, "out", owner));
    println!("claims: {count} interleavings");
    finds("two commands at once in one directory", || {
        each_directory_is_of_one_command(|parent, owner| {
            let Claim { directory, .. } = Claim::free(parent, "out", owner)?;
            // The lock that is kept is another file's.
            let _lock = tempfile::tempfile().into_diagnostic()?;
            Ok(Claim { directory, _lock })
        });
    });
}
