//! The results of a run: the same tables on the terminal and in one self-contained HTML file.
//!
//! | module | contents |
//! | --- | --- |
//! | [`section`] | one table |
//! | [`summary`] | the tables of a run |
//! | [`shell`] | the HTML shell of all reports |
//! | [`page`], `drawing` | the report of a run, with its drawings |
// SPDX-License-Identifier: MIT OR Apache-2.0

mod drawing;
pub mod page;
pub mod section;
pub mod shell;
pub mod summary;

pub use drawing::PALETTE;
pub use page::{Page, html};
pub use section::Section;
pub use shell::{all_figures, prose, provenance, standalone};
pub use summary::Summary;
