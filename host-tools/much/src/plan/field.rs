//! Finite fields of up to 64 elements as tables, from which the geometries are built.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The field GF(q). Elements are 0..q; 0 and 1 are the neutral elements.
#[derive(Clone, Debug)]
pub struct Field {
    order: usize,
    sum: Vec<u8>,
    product: Vec<u8>,
}

/// Returns the prime and the exponent of a prime power.
pub fn prime_power(q: usize) -> Option<(usize, u32)> {
    if q < 2 {
        return None;
    }
    let prime = (2..=q).find(|p| q.is_multiple_of(*p))?;
    let exponent = (1..).find(|&e| prime.pow(e) >= q)?;
    (prime.pow(exponent) == q).then_some((prime, exponent))
}

impl Field {
    /// Creates GF(q), where `q` is a prime power of at most 64.
    pub fn new(q: usize) -> Option<Self> {
        let (p, degree) = prime_power(q).filter(|_| q <= 64)?;
        // An element is a polynomial over GF(p); the digits of its number in base p are the
        // coefficients.
        let digits = |mut x: usize| -> Vec<usize> {
            let mut digits = vec![];
            for _ in 0..degree {
                digits.push(x % p);
                x /= p;
            }
            digits
        };
        let number = |digits: &[usize]| digits.iter().rev().fold(0, |x, digit| x * p + digit);
        let mut sum = vec![0; q * q];
        for a in 0..q {
            for b in 0..q {
                let added: Vec<_> = digits(a)
                    .iter()
                    .zip(digits(b))
                    .map(|(x, y)| (x + y) % p)
                    .collect();
                sum[a * q + b] = number(&added) as u8;
            }
        }
        // x^degree is replaced by `low`; the choice is valid if no product of two nonzero elements
        // is 0.
        (0..q).find_map(|low| {
            let low = digits(low);
            let times_x = |a: usize| {
                let a = digits(a);
                let carry = *a.last().expect("the degree is at least 1");
                let mut shifted = vec![0];
                shifted.extend(&a[..a.len() - 1]);
                number(
                    &shifted
                        .iter()
                        .zip(&low)
                        .map(|(s, l)| (s + carry * l) % p)
                        .collect::<Vec<_>>(),
                )
            };
            let mut product = vec![0_u8; q * q];
            for a in 0..q {
                for b in 0..q {
                    let (mut power, mut total) = (a, 0);
                    for digit in digits(b) {
                        for _ in 0..digit {
                            total = usize::from(sum[total * q + power]);
                        }
                        power = if degree == 1 { 0 } else { times_x(power) };
                    }
                    product[a * q + b] = total as u8;
                }
            }
            let is_field = (1..q).all(|a| (1..q).all(|b| product[a * q + b] != 0));
            is_field.then(|| Self {
                order: q,
                sum: sum.clone(),
                product,
            })
        })
    }
    /// Returns the number of elements.
    pub const fn order(&self) -> usize {
        self.order
    }
    /// Returns the sum of two elements.
    pub fn add(&self, a: usize, b: usize) -> usize {
        usize::from(self.sum[a * self.order + b])
    }
    /// Returns the product of two elements.
    pub fn multiply(&self, a: usize, b: usize) -> usize {
        usize::from(self.product[a * self.order + b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prime_power_has_a_field() {
        let orders: Vec<_> = (0..=64).filter(|&q| Field::new(q).is_some()).collect();
        assert_eq!(
            orders,
            [
                2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27, 29, 31, 32, 37, 41, 43, 47,
                49, 53, 59, 61, 64
            ]
        );
        for q in orders {
            let field = Field::new(q).unwrap();
            for a in 0..q {
                assert_eq!((field.add(a, 0), field.multiply(a, 1)), (a, a));
                for b in 0..q {
                    let c = (3 * a + 5 * b + 1) % q;
                    let left = field.multiply(a, field.add(b, c));
                    assert_eq!(
                        left,
                        field.add(field.multiply(a, b), field.multiply(a, c)),
                        "distributive in GF({q})"
                    );
                }
            }
        }
    }
}
