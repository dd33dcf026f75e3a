//! Correlation matrices: repair to the nearest one, and factors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use nalgebra::{Cholesky, DMatrix, Dyn};

/// The smallest eigenvalue that a repaired matrix may have.
const LEAST_EIGENVALUE: f64 = 1e-8;

/// A matrix after its repair.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The repaired correlation matrix.
    pub matrix: DMatrix<f64>,
    /// Its Frobenius distance from the original.
    pub distance: f64,
    /// The smallest eigenvalue of the original.
    pub least_eigenvalue: f64,
}

/// Returns the correlation matrix nearest to a symmetric matrix in the Frobenius norm: N. J.
/// Higham, "Computing the nearest correlation matrix", IMA J. Numer. Anal. 22 (2002), alternating
/// projections with Dykstra's correction. Stops when a step changes no element by more than
/// `tolerance`.
pub fn nearest_correlation(matrix: &DMatrix<f64>, tolerance: f64) -> Repaired {
    let size = matrix.nrows();
    let least_eigenvalue = matrix.clone().symmetric_eigenvalues().min();
    let unit_diagonal = (0..size).all(|at| (matrix[(at, at)] - 1.0).abs() < 1e-12);
    if least_eigenvalue >= 0.0 && unit_diagonal {
        return Repaired {
            matrix: matrix.clone(),
            distance: 0.0,
            least_eigenvalue,
        };
    }
    let mut current = matrix.clone();
    let mut correction = DMatrix::zeros(size, size);
    for _ in 0..2000 {
        let shifted = &current - &correction;
        let projected = positive_part(&shifted);
        correction = &projected - &shifted;
        let mut next = projected;
        next.fill_diagonal(1.0);
        let change = (&next - &current).amax();
        current = next;
        if change <= tolerance {
            break;
        }
    }
    let distance = (&current - matrix).norm();
    Repaired {
        matrix: current,
        distance,
        least_eigenvalue,
    }
}

/// Returns the positive semidefinite matrix nearest to a symmetric one.
fn positive_part(matrix: &DMatrix<f64>) -> DMatrix<f64> {
    let eigen = matrix.clone().symmetric_eigen();
    let mut scaled = eigen.eigenvectors.clone();
    for (mut column, value) in scaled.column_iter_mut().zip(eigen.eigenvalues.iter()) {
        column *= value.max(0.0);
    }
    let mut positive = scaled * eigen.eigenvectors.transpose();
    symmetrize(&mut positive);
    positive
}

/// Replaces a matrix by the mean of itself and its transpose.
pub fn symmetrize(matrix: &mut DMatrix<f64>) {
    for a in 0..matrix.nrows() {
        for b in 0..a {
            let mean = f64::midpoint(matrix[(a, b)], matrix[(b, a)]);
            matrix[(a, b)] = mean;
            matrix[(b, a)] = mean;
        }
    }
}

/// Returns the lower Cholesky factor of a correlation matrix; if that is singular, of one slightly
/// nearer to the unit matrix.
pub fn factor(matrix: &DMatrix<f64>) -> DMatrix<f64> {
    let size = matrix.nrows();
    let mut weight = 0.0;
    loop {
        let mixed = matrix * (1.0 - weight) + DMatrix::<f64>::identity(size, size) * weight;
        let factor: Option<Cholesky<f64, Dyn>> = Cholesky::new(mixed);
        if let Some(factor) = factor {
            return factor.unpack();
        }
        // At weight 1 this is the unit matrix, which has a factor.
        weight = if weight == 0.0 {
            LEAST_EIGENVALUE
        } else {
            (weight * 10.0).min(1.0)
        };
    }
}

/// Returns the mean square of the differences above the diagonal.
pub fn mean_square_error(one: &DMatrix<f64>, other: &DMatrix<f64>) -> f64 {
    let pairs = pairs(one.nrows());
    let count = pairs.len();
    let sum: f64 = pairs
        .into_iter()
        .map(|(a, b)| (one[(a, b)] - other[(a, b)]).powi(2))
        .sum();
    sum / count.max(1) as f64
}

/// Returns all pairs of events, in the order of rows.
pub fn pairs(events: usize) -> Vec<(usize, usize)> {
    (0..events)
        .flat_map(|a| (a + 1..events).map(move |b| (a, b)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highams_example() {
        let given = DMatrix::from_row_slice(3, 3, &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        let repaired = nearest_correlation(&given, 1e-12);
        assert!(
            (repaired.matrix[(0, 1)] - 0.760_690).abs() < 1e-6,
            "{}",
            repaired.matrix
        );
        assert!(
            (repaired.matrix[(0, 2)] - 0.157_298).abs() < 1e-6,
            "{}",
            repaired.matrix
        );
        assert!(repaired.least_eigenvalue < -0.4 && repaired.distance > 0.5);
        assert!(repaired.matrix.symmetric_eigenvalues().min() > -1e-9);
    }

    #[test]
    fn a_correlation_matrix_is_left_alone() {
        let given = DMatrix::from_row_slice(2, 2, &[1.0, 0.3, 0.3, 1.0]);
        let repaired = nearest_correlation(&given, 1e-9);
        assert_eq!((repaired.matrix, repaired.distance), (given, 0.0));
    }

    #[test]
    fn a_singular_matrix_has_a_factor_too() {
        let given = DMatrix::from_element(3, 3, 1.0);
        let factor = factor(&given);
        assert!((&factor * factor.transpose() - given).amax() < 1e-6);
    }
}
