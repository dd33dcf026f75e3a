//! Blocks of pages: a profile of blocks first, then of single pages in the blocks that matter
//! (BBProf, limitation vi).
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::layout::PageName;

/// Consecutive pages of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first page.
    pub first: PageName,
    /// Number of pages.
    pub pages: u32,
}

impl Span {
    /// Returns its pages.
    pub fn names(self) -> impl Iterator<Item = PageName> {
        let PageName { vma, offset } = self.first;
        (offset..offset + self.pages).map(move |offset| PageName { vma, offset })
    }
}

/// Divides pages, which are in order, into blocks of at most `size` consecutive pages of one
/// mapping.
pub fn blocks(pages: &[PageName], size: u32) -> Vec<Span> {
    let mut blocks: Vec<Span> = Vec::new();
    for &page in pages {
        match blocks.last_mut() {
            Some(last)
                if last.first.vma == page.vma
                    && last.first.offset + last.pages == page.offset
                    && last.pages < size.max(1) =>
            {
                last.pages += 1;
            }
            _ => blocks.push(Span {
                first: page,
                pages: 1,
            }),
        }
    }
    blocks
}

/// Returns for each block whether to refine it. The blocks to refine have more than one page, and
/// their importances, from the greatest down, add up to the part `covered` of the sum. Importances
/// that are not positive add nothing.
pub fn refined(blocks: &[(Span, f64)], covered: f64) -> Vec<bool> {
    let total: f64 = blocks
        .iter()
        .map(|(_, importance)| importance.max(0.0))
        .sum();
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by(|&a, &b| blocks[b].1.total_cmp(&blocks[a].1).then(a.cmp(&b)));
    let mut refined = vec![false; blocks.len()];
    let mut sum = 0.0;
    for index in order {
        let (span, importance) = blocks[index];
        if importance <= 0.0 || sum >= covered * total {
            break;
        }
        sum += importance;
        refined[index] = span.pages > 1;
    }
    refined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(vma: u32, offset: u32) -> PageName {
        PageName { vma, offset }
    }

    #[test]
    fn blocks_are_consecutive_pages_of_one_mapping() {
        let pages: Vec<PageName> = [(1, 0), (1, 1), (1, 2), (1, 4), (2, 5), (2, 6)]
            .map(|(v, o)| page(v, o))
            .to_vec();
        let found: Vec<(String, u32)> = blocks(&pages, 2)
            .iter()
            .map(|it| (it.first.to_string(), it.pages))
            .collect();
        let expected = [("1:0", 2), ("1:2", 1), ("1:4", 1), ("2:5", 2)]
            .map(|(name, pages)| (name.to_owned(), pages));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_blocks_that_matter_are_refined() {
        let block = |offset, pages, importance| {
            (
                Span {
                    first: page(1, offset),
                    pages,
                },
                importance,
            )
        };
        let all = [
            block(0, 4, 10.0),
            block(4, 4, 80.0),
            block(8, 1, 9.0),
            block(9, 4, 1.0),
            block(13, 4, -3.0),
        ];
        assert_eq!(refined(&all, 0.75), [false, true, false, false, false]);
        assert_eq!(
            refined(&all, 0.95),
            [true, true, false, false, false],
            "a single page cannot be refined"
        );
        assert_eq!(refined(&all, 1.0), [true, true, false, true, false]);
        assert_eq!(refined(&all, 0.0), [false; 5]);
    }

    proptest! {
        #[test]
        fn blocks_have_every_page_once(
            offsets in proptest::collection::btree_set((0..3_u32, 0..60_u32), 0..100), size in 0..10_u32
        ) {
            let pages: Vec<PageName> = offsets
                .into_iter()
                .map(|(vma, offset)| page(vma, offset))
                .collect();
            let blocks = blocks(&pages, size);
            let again: Vec<PageName> = blocks.iter().flat_map(|span| span.names()).collect();
            prop_assert_eq!(again, pages);
            prop_assert!(
                blocks
                    .iter()
                    .all(|span| (1..=size.max(1)).contains(&span.pages))
            );
        }

        #[test]
        fn what_is_not_refined_matters_less(
            importances in proptest::collection::vec(-10.0..100.0_f64, 0..40),
            covered in 0.0..1.0_f64,
        ) {
            let blocks: Vec<(Span, f64)> = (0..)
                .zip(&importances)
                .map(|(at, &it)| {
                    (
                        Span {
                            first: page(0, 4 * at),
                            pages: 4,
                        },
                        it,
                    )
                })
                .collect();
            let refined = refined(&blocks, covered);
            let positive = |importance: &f64| importance.max(0.0);
            let total: f64 = importances.iter().map(positive).sum();
            let got: f64 = importances
                .iter()
                .zip(&refined)
                .filter(|(_, refined)| **refined)
                .map(|(it, _)| positive(it))
                .sum();
            prop_assert!(got >= covered * total - 1e-9);
        }
    }
}
