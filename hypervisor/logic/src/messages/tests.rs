//! Tests of the ring of messages, step by step and, under `--cfg loom`, in all interleavings.

#[cfg(loom)]
mod models;
#[cfg(not(loom))]
mod steps;
