//! Cloison's pure logic: everything that needs no hardware, so that it runs and is tested on the host.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`addr`] | physical and intermediate physical addresses as types |
//! | [`color`] | page colours, colour sets, cache geometry |
//! | [`units`] | events, cycles, periods |
//! | [`pool`] | frame allocation per colour; PVT and SH pools |
//! | [`quota`] | the state machine behind a budget per period |
//! | [`migrate`] | which pages of a profile move, and where to |
//! | [`blob`] | the system image: header, configuration, payload |
//! | [`services_page`] | the registers through which programs at EL0 make calls |
//! | [`vgic`] | a VM's GICv2 distributor and the list registers |
//! | [`vpmu`] | a vCPU's PMU |
//! | [`vuart`] | a VM's PL011 |
//! | [`console`] | guests' lines on the console, and who gets its input |
//! | [`wire`] | the telemetry stream of the second UART: HEM records and the rest |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod blob;
pub mod color;
pub mod console;
pub mod migrate;
pub mod pool;
pub mod quota;
pub mod services_page;
pub mod units;
pub mod vgic;
pub mod vpmu;
pub mod vuart;
pub mod wire;
