//! Merges event counts of many runs into vectors that keep every pairwise correlation.
//!
//! A PMU counts a few events at a time; the runs of a program differ. MUCH (S. Vilardell, I. Serra,
//! E. Mezzetti, J. Abella, F. J. Cazorla: "MUCH: Exploiting Pairwise Hardware Event Monitor
//! Correlations for Improved Timing Analysis of Complex MPSoCs", SAC 2021) measures every pair of
//! events together in some sub-experiment and merges the counts of all sub-experiments into vectors
//! with those correlations. HRM, its predecessor, links sub-experiments by one anchor
//! event. Section numbers in this crate are those of the MUCH paper.
//!
//! | module | contents |
//! | --- | --- |
//! | [`plan`] | which events to count together |
//! | [`counts`] | a column of counts in few bytes |
//! | `parallel` | work that all cores share |
//! | [`data`] | measured counts and their problems |
//! | [`scores`] | ranks, normal scores, correlations of two columns |
//! | [`em`] | fits the Gaussian model in which uncounted events are missing data |
//! | [`target`] | the correlations that merged vectors get: estimates weighted by how well they predict |
//! | [`matrix`] | repair and factors of correlation matrices |
//! | [`estimate`] | correlations of all events from sub-experiments that count a few |
//! | [`copula`] | what a Gaussian copula with the observed counts implies for correlations |
//! | [`draw`] | a sample of the Gaussian model |
//! | [`swap`] | exchanges of values to approach Pearson's and Spearman's correlations |
//! | `store` | a temporary file for columns that are too many for memory |
//! | [`table`] | merged vectors |
//! | [`merge`] | MUCH, HRM and the blind merge from end to end |
//! | [`evaluate`] | accuracy of the merged correlations |
//! | [`regroup`] | runs of which all events are known, as if others had been counted together |
//! | [`quality`] | counts that no run can have, and runs of other programs |
//! | [`read`] | measurements from CSV, Parquet, and what perf and PAPI write |
//! | `warnings` | warnings about measurements that can be merged nevertheless |
//! | [`write`](mod@write) | merged vectors as CSV and Parquet |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod copula;
pub mod counts;
pub mod data;
pub mod draw;
pub mod em;
pub mod estimate;
pub mod evaluate;
pub mod matrix;
pub mod merge;
mod parallel;
pub mod plan;
pub mod quality;
pub mod read;
pub mod regroup;
pub mod scores;
mod store;
pub mod swap;
pub mod table;
pub mod target;
mod warnings;
pub mod write;
