//! Stores that share a pool: two commands keep, read and discard files in all orders of their steps.
//! Beside the model is one with a bug that the search must find.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::files::interleavings::{finds, orders};

/// A step of a command with its store.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Keeps the contents with this number, as a run does.
    Add(u8),
    /// Keeps no others than those.
    Discard(&'static [u8]),
    /// Starts again: it remembers nothing of what it has checked.
    Again,
}

/// The steps of two commands, and of what happens to the pool.
const FIRST: [Step; 3] = [Step::Add(1), Step::Discard(&[]), Step::Add(1)];
const SECOND: [Step; 3] = [Step::Add(1), Step::Again, Step::Add(1)];
/// The pool is removed; then a file in it is replaced by half a file.
const POOL: usize = 2;

fn contents(number: u8) -> Vec<u8> {
    vec![number; 100]
}

/// Each store has exactly what its command keeps, whatever the other one does, and the pool has no
/// file that no store has.
fn each_store_has_what_it_keeps(discard: fn(&Store, &BTreeSet<String>)) -> usize {
    let scratch = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..2)
        .map(|number| {
            let store = Store::at(&scratch.path().join("names"));
            store.add(&contents(number), "so").unwrap()
        })
        .collect();
    let all = orders(&[FIRST.len(), SECOND.len(), POOL]);
    for (number, order) in all.iter().enumerate() {
        let place = scratch.path().join(number.to_string());
        let pool = place.join("pool");
        let open = |party: usize| Store {
            pool: Some(pool.clone()),
            ..Store::at(&place.join(party.to_string()))
        };
        let mut stores = [open(0), open(1)];
        let mut kept = [BTreeSet::new(), BTreeSet::new()];
        let mut done = [0; 3];
        for &party in order {
            let at = done[party];
            done[party] += 1;
            if party == 2 {
                if at == 0 {
                    let _ = fs::remove_dir_all(&pool);
                } else {
                    // A new file, as an editor or a copy makes it: links stay whole.
                    let _ = fs::remove_file(pool.join(&names[1]));
                    let _ = fs::create_dir_all(&pool);
                    fs::write(pool.join(&names[1]), "half").unwrap();
                }
                continue;
            }
            match [FIRST, SECOND][party][at] {
                Step::Add(number) => {
                    let name = stores[party].add(&contents(number), "so").unwrap();
                    assert_eq!(name, names[usize::from(number)]);
                    kept[party].insert(number);
                }
                Step::Discard(numbers) => {
                    let wanted = numbers.iter().map(|&n| names[usize::from(n)].clone());
                    discard(&stores[party], &wanted.collect());
                    // What is kept next is checked again, as by the next command.
                    stores[party] = open(party);
                    kept[party].retain(|number| numbers.contains(number));
                }
                Step::Again => stores[party] = open(party),
            }
            for (store, kept) in stores.iter().zip(&kept) {
                for number in 0..2 {
                    let found = Store::at(store.directory()).read(&names[usize::from(number)]);
                    let expected = kept.contains(&number).then(|| contents(number));
                    assert_eq!(found.ok(), expected, "a store lost {number}: {order:?}");
                }
            }
        }
        open(0).keep_only(&BTreeSet::new());
        open(1).keep_only(&BTreeSet::new());
        let left = fs::read_dir(&pool).into_iter().flatten().count();
        assert_eq!(left, 0, "the pool keeps what no store has: {order:?}");
        fs::remove_dir_all(&place).unwrap();
    }
    all.len()
}

#[test]
fn each_store_has_what_its_command_keeps_in_all_orders() {
    let count = each_store_has_what_it_keeps(Store::keep_only);
    println!("stores: {count} interleavings");
    finds("a store lost", || {
        each_store_has_what_it_keeps(|store, names| {
            // Empties what it does not need instead of removing its name.
            for entry in fs::read_dir(store.directory())
                .into_iter()
                .flatten()
                .flatten()
            {
                if !names.contains(&*entry.file_name().to_string_lossy()) {
                    fs::write(entry.path(), "").unwrap();
                }
            }
            store.keep_only(names);
        });
    });
}
