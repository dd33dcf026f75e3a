//! System tests: the promises of a booted system, one module per promise.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod audit;
mod bbprof;
mod bench;
mod boards;
mod budgets;
mod cacheability;
mod console;
mod counting;
mod damaged;
mod demo;
mod devices;
mod fatal;
mod instructions;
mod interrupts;
mod isolation;
mod kernels;
mod leases;
mod libpapi;
mod linux;
mod migration;
mod mmio;
mod modelled;
mod papi;
mod payer;
mod perf;
mod pinned;
mod pmu;
mod profile;
mod quota;
mod ram_disk;
mod registers;
mod running;
mod services;
mod visits;
mod vm_life;
