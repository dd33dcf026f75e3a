//! Checks plans independently of their construction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::geometry::Blocks;
use std::collections::BTreeSet;

/// Checks that every pair of points is in a block, and that no block is too large or contains a
/// nonexistent point. Independent of the planner.
pub fn verify(points: usize, size: usize, blocks: &Blocks) -> Result<(), String> {
    let mut met = BTreeSet::new();
    for (number, block) in blocks.iter().enumerate() {
        let distinct: BTreeSet<_> = block.iter().copied().collect();
        if distinct.len() != block.len() {
            return Err(format!("sub-experiment {number} names an event twice"));
        }
        if block.len() > size {
            return Err(format!(
                "sub-experiment {number} has {} events for {size} counters",
                block.len()
            ));
        }
        if let Some(point) = block.iter().find(|&&point| point >= points) {
            return Err(format!(
                "sub-experiment {number} names event {point} of {points}"
            ));
        }
        for &a in &distinct {
            met.extend(distinct.range(a + 1..).map(|&b| (a, b)));
        }
    }
    for a in 0..points {
        for b in a + 1..points {
            if !met.contains(&(a, b)) {
                return Err(format!("events {a} and {b} are never counted together"));
            }
        }
    }
    Ok(())
}
