//! The target correlations of merged vectors: several estimates, weighted by how well each predicts
//! runs that it has not seen.
//!
//! Three kinds of estimates. *Pairwise* (section 4.3, step 2): each pair from the runs that count
//! both. *Pooled*: the Gaussian model with uncounted events as missing data ([`em`]), with weaker
//! and stronger priors; the counts of an event in all sub-experiments enter each of its
//! correlations. *Implied*: Pearson's correlations that follow from the estimates of Spearman's,
//! with a Gaussian copula and the counts' own distributions ([`crate::copula`]). Skewed counts have
//! outliers that make every direct estimate of Pearson's correlations uncertain; ranks have none.
//!
//! None suits all counts. The weights are those with which the estimates from nine tenths of the
//! runs best predict the last tenth (L. Breiman, "Stacked regressions", Machine Learning 24, 1996).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::copula::Copula;
use crate::data::Measurements;
use crate::em::{self, Fit, Moments};
use crate::estimate::{Kind, Scored};
use crate::matrix::pairs;
use crate::parallel;
use nalgebra::{DMatrix, DVector};

/// Parts of the runs that are predicted from the others, at most: with fewer runs, each run is a
/// part.
const MOST_PARTS: usize = 10;
/// The runs that a prior of the pooled estimates is worth: strong ones first, whose optimum is near
/// that of the next.
const PRIORS: [f64; 2] = [20.0, 2.0];
/// With so many runs of each sub-experiment, chance in the weights is small with few parts, and
/// both priors are worth next to nothing beside the runs.
const MANY_RUNS: usize = 1000;
const PARTS_OF_MANY: usize = 4;

/// An estimate and its ingredients.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The estimate, not repaired: it may be indefinite.
    pub matrix: DMatrix<f64>,
    /// The weight of every ingredient; they sum to 1.
    pub weights: Vec<(String, f64)>,
    /// Steps of the longest fit of the pooled model, and whether all reached their optimum.
    pub steps: usize,
    /// Whether all fits reached their optimum.
    pub converged: bool,
}

/// Sums of scores and their products over a part of a sub-experiment's runs; scores begin with a 1.
struct Block {
    events: Vec<usize>,
    parts: Vec<DMatrix<f64>>,
}

/// All sub-experiments as sums over parts of their runs.
struct Parts {
    events: usize,
    count: usize,
    blocks: Vec<Block>,
}

impl Parts {
    fn new(scored: &Scored<'_>, count: usize) -> Self {
        let of_block = |&(block, events): &(usize, &[usize])| {
            let chosen: Vec<_> = (0..events.len())
                .filter(|&at| scored.varies[events[at]])
                .collect();
            let columns: Vec<Vec<f64>> =
                chosen.iter().map(|&at| scored.column(block, at)).collect();
            let width = chosen.len() + 1;
            let mut parts = vec![DMatrix::zeros(width, width); count];
            let runs = columns.first().map_or(0, Vec::len);
            let mut scores = vec![1.0; width];
            for run in 0..runs {
                for (score, column) in scores[1..].iter_mut().zip(&columns) {
                    *score = column[run];
                }
                let sums: &mut DMatrix<f64> = &mut parts[run % count];
                for (i, a) in scores.iter().enumerate() {
                    for (j, b) in scores[..=i].iter().enumerate() {
                        sums[(i, j)] += a * b;
                    }
                }
            }
            for sums in &mut parts {
                sums.fill_upper_triangle_with_lower_triangle();
            }
            Block {
                events: chosen.into_iter().map(|at| events[at]).collect(),
                parts,
            }
        };
        let blocks: Vec<_> = scored.blocks().enumerate().collect();
        let mut blocks = parallel::of_all(&blocks, of_block);
        blocks.retain(|block| !block.events.is_empty());
        Self {
            events: scored.varies.len(),
            count,
            blocks,
        }
    }

    /// The sums of a block without those of a part.
    fn sums(&self, block: &Block, without: Option<usize>) -> DMatrix<f64> {
        let width = block.events.len() + 1;
        let kept = (0..self.count).filter(|part| Some(*part) != without);
        kept.fold(DMatrix::zeros(width, width), |sum, part| {
            sum + &block.parts[part]
        })
    }

    fn moments(&self, without: Option<usize>) -> Vec<Moments> {
        let of_block = |block: &Block| {
            let sums = self.sums(block, without);
            let runs = sums[(0, 0)];
            let moments = sums.view((1, 1), (block.events.len(), block.events.len())) / runs;
            Moments {
                events: block.events.clone(),
                runs,
                moments,
            }
        };
        self.blocks
            .iter()
            .map(of_block)
            .filter(|moments| moments.runs > 0.0)
            .collect()
    }

    /// Each pair's correlation from all runs that count both; 0 where there are none.
    fn pairwise(&self, without: Option<usize>) -> DMatrix<f64> {
        // For each ordered pair (a, b): runs, Σa, Σa², Σab.
        let mut all = vec![[0.0_f64; 4]; self.events * self.events];
        for block in &self.blocks {
            let sums = self.sums(block, without);
            for (i, &a) in block.events.iter().enumerate() {
                for (j, &b) in block.events.iter().enumerate() {
                    let of = &mut all[a * self.events + b];
                    of[0] += sums[(0, 0)];
                    of[1] += sums[(0, i + 1)];
                    of[2] += sums[(i + 1, i + 1)];
                    of[3] += sums[(i + 1, j + 1)];
                }
            }
        }
        DMatrix::from_fn(self.events, self.events, |a, b| {
            let (one, other) = (all[a * self.events + b], all[b * self.events + a]);
            let runs = one[0];
            if a == b || runs == 0.0 {
                return f64::from(u8::from(a == b));
            }
            let spread = |of: [f64; 4]| of[2] - of[1] * of[1] / runs;
            let product = spread(one) * spread(other);
            // Rounding leaves something of two runs that are alike.
            if spread(one) <= 1e-12 * one[2] || spread(other) <= 1e-12 * other[2] {
                return 0.0;
            }
            ((one[3] - one[1] * other[1] / runs) / product.sqrt()).clamp(-1.0, 1.0)
        })
    }
}

/// One ingredient: its name, the estimate from all runs, and the estimates without each part.
struct Ingredient {
    name: String,
    whole: DMatrix<f64>,
    without: Vec<DMatrix<f64>>,
}

fn ingredients(parts: &Parts, priors: &[f64]) -> (Vec<Ingredient>, usize, bool) {
    let all: Vec<Option<usize>> = std::iter::once(None)
        .chain((0..parts.count).map(Some))
        .collect();
    let mut pairwise = parallel::of_all(&all, |&without| parts.pairwise(without));
    let whole = pairwise.remove(0);
    let mut found = vec![Ingredient {
        name: "pairwise".to_owned(),
        whole,
        without: pairwise,
    }];
    let moments: Vec<_> = all.iter().map(|&without| parts.moments(without)).collect();
    let (mut steps, mut converged) = (0, true);
    let mut start = DMatrix::identity(parts.events, parts.events);
    for &prior in priors {
        let whole: Fit = em::fit(&moments[0], prior, &start);
        start.clone_from(&whole.matrix);
        // Nearly the same runs have nearly the same optimum.
        let without: Vec<Fit> = parallel::of_all(&moments[1..], |moments| {
            em::fit(moments, prior, &whole.matrix)
        });
        for fit in std::iter::once(&whole).chain(&without) {
            steps = steps.max(fit.steps);
            converged &= fit.converged;
        }
        let without = without.into_iter().map(|fit| fit.matrix).collect();
        found.push(Ingredient {
            name: format!("pooled, prior of {prior} runs"),
            whole: whole.matrix,
            without,
        });
    }
    (found, steps, converged)
}

/// The ingredients' weights: those that predict best what a part of the runs says. What it says of
/// a pair is the jackknife's pseudo-value of the pairwise estimate.
fn weights(ingredients: &[Ingredient], known: &[(usize, usize)]) -> Vec<f64> {
    let pairwise = &ingredients[0];
    let count = pairwise.without.len();
    let mut squares = DMatrix::zeros(ingredients.len(), ingredients.len());
    let mut errors = DVector::zeros(ingredients.len());
    for &pair in known {
        for part in 0..count {
            let said = count as f64 * pairwise.whole[pair]
                - (count as f64 - 1.0) * pairwise.without[part][pair];
            for (error, ingredient) in errors.iter_mut().zip(ingredients) {
                *error = ingredient.without[part][pair] - said;
            }
            squares.ger(1.0, &errors, &errors, 1.0);
        }
    }
    least(&squares)
}

/// The weights w ≥ 0 with the sum 1 for which w'Aw is least: of all sets of positive weights, the
/// best that is one.
fn least(squares: &DMatrix<f64>) -> Vec<f64> {
    let size = squares.nrows();
    let mut best = (f64::INFINITY, vec![]);
    let scale = squares.trace().max(f64::MIN_POSITIVE);
    for set in 1_u32..1 << size {
        let chosen: Vec<_> = (0..size).filter(|at| set >> at & 1 == 1).collect();
        let part = DMatrix::from_fn(chosen.len(), chosen.len(), |i, j| {
            squares[(chosen[i], chosen[j])] / scale + if i == j { 1e-12 } else { 0.0 }
        });
        let Some(solved) = part
            .clone()
            .cholesky()
            .map(|factor| factor.solve(&DVector::repeat(chosen.len(), 1.0)))
        else {
            continue;
        };
        let weights = &solved / solved.sum();
        let value = weights.dot(&(&part * &weights));
        if weights.iter().all(|&weight| weight >= 0.0) && value < best.0 {
            let mut all = vec![0.0; size];
            chosen
                .iter()
                .zip(weights.iter())
                .for_each(|(&at, &weight)| all[at] = weight);
            best = (value, all);
        }
    }
    best.1
}

fn mixed(
    ingredients: &[Ingredient],
    weights: &[f64],
    of: impl Fn(&Ingredient) -> &DMatrix<f64>,
) -> DMatrix<f64> {
    let size = of(&ingredients[0]).nrows();
    ingredients
        .iter()
        .zip(weights)
        .fold(DMatrix::zeros(size, size), |sum, (one, weight)| {
            sum + of(one) * *weight
        })
}

/// The Gaussian copula with the counts as they are distributed.
fn copula(data: &Measurements) -> Copula {
    let of_event = |event: usize| {
        let counts = data.sorted(event);
        let ranks = counts
            .doubled_ranks()
            .into_iter()
            .map(f64::from)
            .collect::<Vec<_>>();
        crate::copula::Marginal::new(&counts.to_vec(), &ranks)
    };
    Copula::new(parallel::of_each(data.events.len(), of_event))
}

/// Returns Pearson's and Spearman's estimates from all sub-experiments together, and the copula
/// that maps Spearman's to Pearson's.
pub fn estimates(data: &Measurements) -> ([Estimate; 2], Copula) {
    let fewest = data
        .sub_experiments
        .iter()
        .map(crate::data::SubExperiment::runs)
        .min()
        .unwrap_or(0);
    let is_many = fewest >= MANY_RUNS;
    let count = fewest.clamp(2, if is_many { PARTS_OF_MANY } else { MOST_PARTS });
    let priors = if is_many { &PRIORS[..1] } else { &PRIORS[..] };
    // One kind after the other: ranks take as much memory as the counts.
    let scored = [Kind::Counts, Kind::Ranks].map(|kind| {
        let scored = Scored::new(data, kind);
        (Parts::new(&scored, count), scored.varies)
    });
    let runs = crate::estimate::runs_of_pairs(data);
    let known: Vec<_> = pairs(data.events.len())
        .into_iter()
        .filter(|&(a, b)| runs[(a, b)] > 0.0 && scored[0].1[a] && scored[0].1[b])
        .collect();
    let [(of_counts, _), (of_ranks, _)] = &scored;
    let ((mut counts, steps, converged), (ranks, rank_steps, rank_converged)) = rayon::join(
        || ingredients(of_counts, priors),
        || ingredients(of_ranks, priors),
    );
    let rank_weights = weights(&ranks, &known);
    let spearman = mixed(&ranks, &rank_weights, |one| &one.whole);
    let copula = copula(data);
    let imply = |spearman: &DMatrix<f64>| copula.of_counts(&copula.of_ranks(spearman));
    let without = (0..count)
        .map(|part| imply(&mixed(&ranks, &rank_weights, |one| &one.without[part])))
        .collect();
    counts.push(Ingredient {
        name: "implied by the ranks".to_owned(),
        whole: imply(&spearman),
        without,
    });
    let count_weights = weights(&counts, &known);
    let pearson = mixed(&counts, &count_weights, |one| &one.whole);
    let named = |ingredients: Vec<Ingredient>, weights: Vec<f64>| {
        ingredients
            .into_iter()
            .map(|one| one.name)
            .zip(weights)
            .collect::<Vec<_>>()
    };
    let estimates = [
        Estimate {
            matrix: pearson,
            weights: named(counts, count_weights),
            steps,
            converged,
        },
        Estimate {
            matrix: spearman,
            weights: named(ranks, rank_weights),
            steps: rank_steps,
            converged: rank_converged,
        },
    ];
    (estimates, copula)
}
