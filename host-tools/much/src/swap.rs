//! Moves drawn vectors toward two targets at once: Pearson's and Spearman's correlations.
//!
//! Counts are not normally distributed, so a Gaussian draw with the right rank correlations has
//! different correlations of the counts themselves. If two vectors exchange their values of one
//! event, both kinds of correlation change, but every event's distribution stays the same. An
//! exchange is made if it reduces the sum of squared errors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draw::stream;
use crate::parallel;
use crate::table::{Column, Scale, Vectors};
use nalgebra::{DMatrix, DMatrixView};
use rand::Rng;

/// Number of vectors among which values are exchanged: as many as fit in a core's cache with 64
/// events.
const SHARD: usize = 2048;
/// The number of events is padded to a multiple of this, for the CPU's vector registers.
const LANES: usize = 8;
/// Root mean square error below which further exchanges are not worthwhile.
const ENOUGH: f64 = 2e-5;
/// A few vectors with extreme counts, such as those of a first run after a boot, make correlations
/// by themselves, and it takes many rounds until their values have met. Exchanges end when this
/// many rounds in a row have not brought the root of the mean square error down to [`GAIN`] of what
/// it was.
const PATIENCE: usize = 32;
const GAIN: f64 = 0.95;
/// One vector in so many is taken for extreme; every other exchange is tried with one of these.
const EXTREME: usize = 32;
/// Products that the rounds may take. The first few rounds are made with any number of vectors.
const WORK: u64 = 2_000_000_000;
const FEWEST_ROUNDS: u64 = 5;

/// Which errors are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Pearson's correlations.
    pub pearson: bool,
    /// Spearman's correlations.
    pub spearman: bool,
}

/// Why exchanges ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The targets are met.
    Met,
    /// Nothing was left to gain.
    Settled,
    /// There are so many vectors that more rounds would take too long.
    Work,
}

/// The exchanges that were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanges {
    /// Rounds in which every vector was tried.
    pub rounds: u64,
    /// Why there were no more.
    pub end: End,
}

/// The scores of one kind, vector by vector, and how far their correlations are from the target.
struct Scores {
    /// 0 for Pearson's, 1 for Spearman's.
    which: usize,
    values: Vec<f32>,
    target: DMatrix<f64>,
}

/// Exchanges values within columns until the correlations are those of the targets, or as near as
/// exchanges can bring them.
pub fn swap(
    vectors: &mut Vectors,
    pearson: &DMatrix<f64>,
    spearman: &DMatrix<f64>,
    weights: Weights,
    seed: u64,
) -> Exchanges {
    let (events, count) = (vectors.columns.len(), vectors.len());
    if count < 2 || events < 2 {
        return Exchanges {
            rounds: 0,
            end: End::Settled,
        };
    }
    let width = events.next_multiple_of(LANES);
    let mut kinds: Vec<Scores> = [(pearson, weights.pearson), (spearman, weights.spearman)]
        .into_iter()
        .enumerate()
        .filter(|(_, (_, wanted))| *wanted)
        .map(|(which, (target, _))| Scores {
            which,
            values: vec![0.0_f32; count * width],
            target: target.clone(),
        })
        .collect();
    let mut chosen = take(vectors, &mut kinds, width);
    let made = exchange_until_the_end(&mut kinds, &mut chosen, width, events, seed);
    drop(kinds);
    give(vectors, &chosen);
    made
}

/// Takes what is chosen out of the columns, vector by vector, and writes their scores.
fn take(vectors: &mut Vectors, kinds: &mut [Scores], width: usize) -> Vec<u32> {
    let (events, count) = (vectors.columns.len(), vectors.len());
    let mut chosen = vec![0_u32; count * events];
    // A few events at a time: their tables fit in a core's cache, and what of a vector is written
    // is in one line.
    for first in (0..events).step_by(LANES) {
        let columns = &mut vectors.columns[first..(first + LANES).min(events)];
        let scales = parallel::of_all(columns, Column::scales);
        for kind in &mut *kinds {
            kind.write(columns, &scales, first, width);
        }
        let taken: Vec<Vec<u32>> = columns.iter_mut().map(Column::take_chosen).collect();
        let parts = chosen.chunks_mut(SHARD * events).collect();
        parallel::of_owned(parts, |shard, part: &mut [u32]| {
            for (row, part) in part.chunks_mut(events).enumerate() {
                for (at, taken) in taken.iter().enumerate() {
                    part[first + at] = taken[shard * SHARD + row];
                }
            }
        });
    }
    chosen
}

impl Scores {
    /// Writes the scores of some columns, of which the first is event `first`.
    fn write(&mut self, columns: &[Column], scales: &[[Scale; 2]], first: usize, width: usize) {
        let which = self.which;
        let scale = |at: usize| &scales[at][which];
        let parts = self.values.chunks_mut(width * SHARD).collect();
        parallel::of_owned(parts, |shard, values: &mut [f32]| {
            for (row, values) in values.chunks_mut(width).enumerate() {
                for (at, column) in columns.iter().enumerate() {
                    let observation = column.chosen()[shard * SHARD + row] as usize;
                    values[first + at] = scale(at).score(column, observation) as f32;
                }
            }
        });
        // A pair in which one event does not vary has correlation 0, whatever is exchanged.
        for event in (0..columns.len()).filter(|&at| !scale(at).varies()) {
            self.target.row_mut(first + event).fill(0.0);
            self.target.column_mut(first + event).fill(0.0);
        }
    }
}

/// Exchanges in rounds until the targets are met, nothing is gained, or it has been enough work.
fn exchange_until_the_end(
    kinds: &mut [Scores],
    chosen: &mut [u32],
    width: usize,
    events: usize,
    seed: u64,
) -> Exchanges {
    let most = (WORK / (chosen.len() * events) as u64).max(FEWEST_ROUNDS);
    let mut history: Vec<f64> = vec![];
    let mut rounds = 0;
    let end = loop {
        let errors: Vec<DMatrix<f64>> = kinds.iter().map(|kind| error(kind, width)).collect();
        let square = errors.iter().map(|error| error.norm_squared()).sum::<f64>();
        let mean = (square / (kinds.len() * events * (events - 1)) as f64).sqrt();
        let before = history
            .len()
            .checked_sub(PATIENCE)
            .map_or(f64::INFINITY, |at| history[at]);
        history.push(mean);
        if mean < ENOUGH {
            break End::Met;
        }
        if mean > before * GAIN {
            break End::Settled;
        }
        if rounds == most {
            break End::Work;
        }
        exchange_all(kinds, &errors, chosen, width, events, |shard| {
            stream(seed, rounds << 32 | 1 << 24 | shard)
        });
        rounds += 1;
    };
    Exchanges { rounds, end }
}

/// Gives the columns what is chosen after the exchanges.
fn give(vectors: &mut Vectors, chosen: &[u32]) {
    let events = vectors.columns.len();
    let count = chosen.len() / events;
    // Some events at a time, whose numbers are in one line of the cache.
    let firsts: Vec<usize> = (0..events).step_by(2 * LANES).collect();
    let some = |&first: &usize| {
        let mut columns = vec![Vec::with_capacity(count); (2 * LANES).min(events - first)];
        for row in chosen.chunks_exact(events) {
            columns
                .iter_mut()
                .zip(&row[first..])
                .for_each(|(column, &at)| column.push(at));
        }
        columns
    };
    let columns = parallel::of_all(&firsts, some).into_iter().flatten();
    for (column, chosen) in vectors.columns.iter_mut().zip(columns) {
        *column = Column::new(std::sync::Arc::clone(column.observed()), chosen);
    }
}

/// Returns the correlations minus the target, 0 on the diagonal.
fn error(kind: &Scores, width: usize) -> DMatrix<f64> {
    let product = |part: &&[f32]| {
        let part = DMatrixView::from_slice(part, width, part.len() / width);
        part * part.transpose()
    };
    let parts: Vec<&[f32]> = kind.values.chunks(SHARD * width).collect();
    let parts = parallel::of_all(&parts, product);
    let sum = parts
        .into_iter()
        .fold(DMatrix::<f64>::zeros(width, width), |sum, part| {
            sum + part.cast::<f64>()
        });
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
        exchange(
            parts,
            &mut open,
            chosen,
            width,
            events,
            &mut rng(shard as u64),
        );
    };
    let chosen = chosen.chunks_mut(SHARD * events);
    match kinds {
        [only] => {
            let parts = only.values.chunks_mut(SHARD * width).zip(chosen).collect();
            parallel::of_owned(parts, |shard, (part, chosen)| {
                work(shard, &mut [part], chosen);
            });
        }
        [one, other] => {
            let values = one.values.chunks_mut(SHARD * width);
            let values = values.zip(other.values.chunks_mut(SHARD * width));
            parallel::of_owned(
                values.zip(chosen).collect(),
                |shard, ((one, other), chosen)| {
                    work(shard, &mut [one, other], chosen);
                },
            );
        }
        _ => {}
    }
}

/// The vectors that are farthest out.
fn extreme(values: &[f32], width: usize, rows: usize) -> Vec<usize> {
    let mut order: Vec<(f32, usize)> = values
        .chunks(width)
        .enumerate()
        .map(|(row, scores)| (dot(scores, scores), row))
        .collect();
    let count = rows.div_ceil(EXTREME);
    order.select_nth_unstable_by(count - 1, |one, other| {
        other.0.total_cmp(&one.0).then(one.1.cmp(&other.1))
    });
    order[..count].iter().map(|&(_, row)| row).collect()
}

/// Tries exchanges between random pairs of a shard's vectors. `open` is, for each kind, by how much
/// every sum of products is too large.
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
    let extreme = extreme(kinds[0], width, rows);
    let mut differences = vec![vec![0.0_f32; width]; kinds.len()];
    let mut squares = vec![0.0_f32; kinds.len()];
    for attempt in 0..rows {
        let random = rng.next_u64();
        let below =
            |random: u64, limit: usize| (((random & 0xFFFF_FFFF) * limit as u64) >> 32) as usize;
        let a = if attempt % 2 == 0 {
            below(random, rows)
        } else {
            extreme[below(random, extreme.len())]
        };
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
            for ((kind, open), difference) in
                kinds.iter_mut().zip(open.iter_mut()).zip(&mut differences)
            {
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
