//! Moves drawn vectors toward two targets at once: Pearson's and Spearman's correlations.
//!
//! Counts are not normally distributed, so a Gaussian draw with the right rank correlations has different correlations
//! of the counts themselves. If two vectors exchange their values of one event, both kinds of correlation change, but
//! every event's distribution stays the same. An exchange is made if it reduces the sum of squared errors.

use crate::draw::stream;
use crate::table::Vectors;
use nalgebra::{DMatrix, DMatrixView};
use rand::Rng;
use rayon::prelude::*;

/// Number of vectors among which values are exchanged: as many as fit in a core's cache with 64 events.
const SHARD: usize = 2048;
/// The number of events is padded to a multiple of this, for the CPU's vector registers.
const LANES: usize = 8;
/// Root mean square error below which further exchanges are not worthwhile.
const ENOUGH: f64 = 2e-5;
/// Upper and lower limit of the number of rounds, and the number of products that determines it in between.
const ROUNDS: u64 = 24;
const FEWEST_ROUNDS: u64 = 5;
const WORK: u64 = 2_000_000_000;

/// Which errors are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Pearson's correlations.
    pub pearson: bool,
    /// Spearman's correlations.
    pub spearman: bool,
}

/// The scores of one kind, vector by vector, and the distance of their correlations from the target.
struct Scores {
    values: Vec<f32>,
    target: DMatrix<f64>,
}

/// Exchanges values within columns until the correlations match the targets, or as closely as exchanges allow.
pub fn swap(vectors: &mut Vectors, pearson: &DMatrix<f64>, spearman: &DMatrix<f64>, weights: Weights, seed: u64) {
    let (events, count) = (vectors.columns.len(), vectors.len());
    if count < 2 || events < 2 {
        return;
    }
    let width = events.next_multiple_of(LANES);
    let tables: Vec<[Vec<f64>; 2]> = vectors.columns.par_iter().map(|column| column.score_tables()).collect();
    let mut chosen = vec![0_u32; count * events];
    chosen.par_chunks_mut(SHARD * events).enumerate().for_each(|(shard, part)| {
        for (row, part) in part.chunks_mut(events).enumerate() {
            for (event, at) in part.iter_mut().enumerate() {
                *at = vectors.columns[event].chosen()[shard * SHARD + row];
            }
        }
    });
    let wanted = [(pearson, weights.pearson), (spearman, weights.spearman)];
    let mut kinds: Vec<Scores> = vec![];
    for (which, (target, _)) in wanted.into_iter().enumerate().filter(|(_, (_, wanted))| *wanted) {
        let mut values = vec![0.0_f32; count * width];
        values.par_chunks_mut(width).zip(chosen.par_chunks(events)).for_each(|(values, chosen)| {
            for (event, (value, &at)) in values.iter_mut().zip(chosen).enumerate() {
                *value = tables[event][which][at as usize] as f32;
            }
        });
        // A pair in which one event does not vary has correlation 0, whatever is exchanged.
        let varies = |event: usize| tables[event][which].iter().any(|&score| score != 0.0);
        let target = DMatrix::from_fn(events, events, |a, b| if varies(a) && varies(b) { target[(a, b)] } else { 0.0 });
        kinds.push(Scores { values, target });
    }
    drop(tables);
    let mut before = f64::INFINITY;
    let rounds = (WORK / (count * events * events) as u64).clamp(FEWEST_ROUNDS, ROUNDS);
    for round in 0..rounds {
        let errors: Vec<DMatrix<f64>> = kinds.iter().map(|kind| error(kind, width)).collect();
        let square = errors.iter().map(|error| error.norm_squared()).sum::<f64>();
        let mean = (square / (kinds.len() * events * (events - 1)) as f64).sqrt();
        if mean < ENOUGH || mean > before * 0.98 {
            break;
        }
        before = mean;
        exchange_all(&mut kinds, &errors, &mut chosen, width, events, |shard| {
            stream(seed, round << 32 | 1 << 24 | shard)
        });
    }
    drop(kinds);
    let columns: Vec<Vec<u32>> =
        (0..events).into_par_iter().map(|event| chosen.iter().skip(event).step_by(events).copied().collect()).collect();
    for (column, chosen) in vectors.columns.iter_mut().zip(columns) {
        *column = crate::table::Column::new(column.observed().to_vec(), chosen);
    }
}

/// Returns the correlations minus the target, 0 on the diagonal.
fn error(kind: &Scores, width: usize) -> DMatrix<f64> {
    let product = |part: &[f32]| {
        let part = DMatrixView::from_slice(part, width, part.len() / width);
        part * part.transpose()
    };
    let parts: Vec<DMatrix<f32>> = kind.values.par_chunks(SHARD * width).map(product).collect();
    let sum = parts.into_iter().fold(DMatrix::<f64>::zeros(width, width), |sum, part| sum + part.cast::<f64>());
    let events = kind.target.nrows();
    let count = (kind.values.len() / width) as f64;
    let mut error = sum.view((0, 0), (events, events)) / count - &kind.target;
    error.fill_diagonal(0.0);
    error
}

/// Processes all shards; each tries to remove its share of the errors.
fn exchange_all<R: Rng>(
    kinds: &mut [Scores],
    errors: &[DMatrix<f64>],
    chosen: &mut [u32],
    width: usize,
    events: usize,
    rng: impl Fn(u64) -> R + Sync,
) {
    let work = |shard: usize, parts: &mut [&mut [f32]], chosen: &mut [u32]| {
        let rows = chosen.len() / events;
        let mut open: Vec<Vec<f32>> = vec![];
        for error in errors {
            let mut lines = vec![0.0; events * width];
            for a in 0..events {
                for b in 0..events {
                    lines[a * width + b] = (error[(a, b)] * rows as f64) as f32;
                }
            }
            open.push(lines);
        }
        exchange(parts, &mut open, chosen, width, events, &mut rng(shard as u64));
    };
    let chosen = chosen.par_chunks_mut(SHARD * events).enumerate();
    match kinds {
        [only] => only
            .values
            .par_chunks_mut(SHARD * width)
            .zip(chosen)
            .for_each(|(part, (shard, chosen))| work(shard, &mut [part], chosen)),
        [one, other] => one
            .values
            .par_chunks_mut(SHARD * width)
            .zip(other.values.par_chunks_mut(SHARD * width))
            .zip(chosen)
            .for_each(|((one, other), (shard, chosen))| work(shard, &mut [one, other], chosen)),
        _ => {}
    }
}

/// Tries exchanges between random pairs of a shard's vectors. For each kind, `open` is the excess of every sum of
/// products.
fn exchange(
    kinds: &mut [&mut [f32]],
    open: &mut [Vec<f32>],
    chosen: &mut [u32],
    width: usize,
    events: usize,
    rng: &mut impl Rng,
) {
    let rows = chosen.len() / events;
    if rows < 2 {
        return;
    }
    let mut differences = vec![vec![0.0_f32; width]; kinds.len()];
    let mut squares = vec![0.0_f32; kinds.len()];
    for _ in 0..rows {
        let random = rng.next_u64();
        let below = |random: u64, limit: usize| (((random & 0xFFFF_FFFF) * limit as u64) >> 32) as usize;
        let a = below(random, rows);
        let b = below(random >> 32, rows - 1);
        let b = b + usize::from(b >= a);
        for ((kind, difference), square) in kinds.iter().zip(&mut differences).zip(&mut squares) {
            let (of_a, of_b) = (&kind[a * width..][..width], &kind[b * width..][..width]);
            for ((difference, a), b) in difference.iter_mut().zip(of_a).zip(of_b) {
                *difference = b - a;
            }
            *square = dot(difference, difference);
        }
        for event in 0..events {
            let mut change = 0.0;
            for ((open, difference), square) in open.iter().zip(&differences).zip(&squares) {
                // The sums of products with this event change by `by` times the differences.
                let by = -difference[event];
                let line = &open[event * width..][..width];
                change += 2.0 * by * dot(line, difference) + by * by * (square - by * by);
            }
            if change >= 0.0 {
                continue;
            }
            for ((kind, open), difference) in kinds.iter_mut().zip(open.iter_mut()).zip(&mut differences) {
                let by = -difference[event];
                let line = &mut open[event * width..][..width];
                for (open, difference) in line.iter_mut().zip(difference.iter()) {
                    *open += by * difference;
                }
                line[event] = 0.0;
                for (line, &difference) in open.chunks_exact_mut(width).zip(difference.iter()) {
                    line[event] += by * difference;
                }
                open[event * width + event] = 0.0;
                kind.swap(a * width + event, b * width + event);
                difference[event] = by;
            }
            chosen.swap(a * events + event, b * events + event);
        }
    }
}

/// Returns the sum of products, in lanes that the compiler can put into a vector register.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for (one, other) in one.chunks_exact(LANES).zip(other.chunks_exact(LANES)) {
        for lane in 0..LANES {
            lanes[lane] += one[lane] * other[lane];
        }
    }
    lanes.iter().sum()
}
