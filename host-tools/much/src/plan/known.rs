//! Plans that the planner's own searches found, kept so that nobody has to wait for them again. Made by
//! `cargo run --release -p cloison-much --example known_plans`; every plan is checked when it is taken from here.

use super::geometry::Blocks;
use super::verify;
use std::fmt::Write;

/// One line a plan: events, counters, and the blocks, each event a letter.
const KNOWN: &str = include_str!("known.txt");
/// The letter of an event.
const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";

/// Whether a search of this size has been made; what is then not here, constructions make as small.
pub fn searched(points: usize, size: usize) -> bool {
    !KNOWN.is_empty() && points <= LETTERS.len() && size <= 8
}

/// The plan that was found for so many events and counters, if it is one.
pub fn plan(points: usize, size: usize) -> Option<Blocks> {
    let start = format!("{points} {size} ");
    let line = KNOWN.lines().find_map(|line| line.strip_prefix(&start))?;
    let number = |letter: u8| LETTERS.iter().position(|&known| known == letter);
    let blocks: Blocks = line.split(' ').map(|block| block.bytes().map(number).collect()).collect::<Option<_>>()?;
    verify(points, size, &blocks).ok().map(|()| blocks)
}

/// A plan as it is kept.
pub fn line(points: usize, size: usize, blocks: &Blocks) -> String {
    let mut line = format!("{points} {size}");
    for block in blocks {
        line.push(' ');
        for &point in block {
            // Writing into a text does not fail.
            let _ = line.write_char(LETTERS.get(point).map_or('?', |&letter| char::from(letter)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_that_is_kept_is_one() {
        let mut count = 0;
        for kept in KNOWN.lines() {
            let mut fields = kept.split(' ').map(str::parse::<usize>);
            let (points, size) = (fields.next().unwrap().unwrap(), fields.next().unwrap().unwrap());
            let blocks = plan(points, size).unwrap_or_else(|| panic!("{points} events on {size} counters"));
            assert_eq!(line(points, size, &blocks), kept);
            count += 1;
        }
        assert!(count > 100, "{count} plans");
    }

    #[test]
    fn what_is_not_kept_is_none() {
        assert_eq!(plan(5, 5), None);
        assert!(!searched(65, 6) && !searched(64, 9));
    }
}
