//! The best accuracy of unbiased estimates of a population's correlations, by the bound of H.
//! Cramér and C. R. Rao.
// SPDX-License-Identifier: MIT OR Apache-2.0

use nalgebra::{DMatrix, DVector};

/// Mean square errors of correlations, for normal counts in sub-experiments of `runs` runs each.
pub struct Bound {
    /// Of the pairwise estimates, with many runs.
    pub pairwise: f64,
    /// The minimum for estimates that know nothing else of the counts.
    pub least: f64,
    /// The minimum for estimates that know the number of the counts' common causes.
    pub with_causes: f64,
}

/// Where an element of a symmetric matrix is in the list of those on and below the diagonal.
fn at(a: usize, b: usize) -> usize {
    a.max(b) * (a.max(b) + 1) / 2 + a.min(b)
}

/// The information that runs have on the elements of the covariance matrix.
fn information(covariance: &DMatrix<f64>, blocks: &[Vec<usize>], runs: f64) -> DMatrix<f64> {
    let size = at(covariance.nrows() - 1, covariance.nrows() - 1) + 1;
    let mut all = DMatrix::zeros(size, size);
    for block in blocks {
        let members = block.len();
        let within = DMatrix::from_fn(members, members, |a, b| covariance[(block[a], block[b])]);
        let inverse = within.try_inverse().expect("no event follows from others");
        let pairs: Vec<_> = (0..members)
            .flat_map(|a| (0..=a).map(move |b| (a, b)))
            .collect();
        let half = |a: usize, b: usize| if a == b { 0.5 } else { 1.0 };
        for &(a, b) in &pairs {
            for &(c, d) in &pairs {
                let both = inverse[(a, d)] * inverse[(b, c)] + inverse[(a, c)] * inverse[(b, d)];
                all[(at(block[a], block[b]), at(block[c], block[d]))] +=
                    runs * both * half(a, b) * half(c, d);
            }
        }
    }
    all
}

/// How each correlation changes with each element of a covariance matrix whose diagonal is 1.
fn gradients(covariance: &DMatrix<f64>) -> Vec<DVector<f64>> {
    let events = covariance.nrows();
    let size = at(events - 1, events - 1) + 1;
    let pairs = (0..events).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs
        .map(|(a, b)| {
            let mut gradient = DVector::zeros(size);
            gradient[at(a, b)] = 1.0;
            gradient[at(a, a)] = -covariance[(a, b)] / 2.0;
            gradient[at(b, b)] = -covariance[(a, b)] / 2.0;
            gradient
        })
        .collect()
}

/// How each element changes with each weight of a cause, and with what each event has alone.
fn directions(weights: &DMatrix<f64>) -> DMatrix<f64> {
    let (events, causes) = weights.shape();
    let mut directions = DMatrix::zeros(at(events - 1, events - 1) + 1, events * (causes + 1));
    for event in 0..events {
        for cause in 0..causes {
            for other in 0..events {
                let twice = if other == event { 2.0 } else { 1.0 };
                directions[(at(event, other), event * causes + cause)] =
                    twice * weights[(other, cause)];
            }
        }
        directions[(at(event, event), events * causes + event)] = 1.0;
    }
    directions
}

/// The inverse of a symmetric matrix, without the directions in which it is 0: causes can be turned
/// with no effect.
fn inverse(matrix: DMatrix<f64>) -> DMatrix<f64> {
    let parts = matrix.symmetric_eigen();
    let most = parts.eigenvalues.max();
    let inverted = parts.eigenvalues.map(|value| {
        if value > 1e-9 * most {
            value.recip()
        } else {
            0.0
        }
    });
    &parts.eigenvectors * DMatrix::from_diagonal(&inverted) * parts.eigenvectors.transpose()
}

/// Returns the bound for events with these weights of common causes and a variance of 1.
pub fn bound(weights: &DMatrix<f64>, blocks: &[Vec<usize>], runs: usize) -> Bound {
    let mut covariance = weights * weights.transpose();
    covariance.fill_diagonal(1.0);
    let information = information(&covariance, blocks, runs as f64);
    let gradients = gradients(&covariance);
    let mean = |variances: DMatrix<f64>| {
        gradients
            .iter()
            .map(|gradient| (gradient.transpose() * &variances * gradient)[0])
            .sum::<f64>()
            / gradients.len() as f64
    };
    let directions = directions(weights);
    let along = inverse(directions.transpose() * &information * &directions);
    let pairs = (0..weights.nrows()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let of_pair = |(a, b): (usize, usize)| {
        let meet = blocks
            .iter()
            .filter(|block| block.contains(&a) && block.contains(&b))
            .count();
        (1.0 - covariance[(a, b)].powi(2)).powi(2) / (meet * runs) as f64
    };
    Bound {
        pairwise: pairs.map(of_pair).sum::<f64>() / gradients.len() as f64,
        least: mean(inverse(information)),
        with_causes: mean(&directions * along * directions.transpose()),
    }
}
