//! A small system for tests: 16 colors, one VM with two pages at home and one allowed away.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::map;
use cloison_formats::addr::{Ipa, PhysAddr, PhysRange};
use cloison_formats::blank::blank;
use cloison_formats::channel::{Channel, Member, Rights};
use cloison_formats::color::{CacheGeometry, ColorSet};
use cloison_formats::ids::{Core, Intid, VcpuIndex, VmId};
use cloison_formats::image::*;
use cloison_formats::units::{EventId, Events, Nanos};

/// RAM with color 0, the hypervisor's.
pub const OWN: u64 = 0x4010_0000;
/// RAM with color 1, the VM's pool.
pub const HOME: u64 = 0x4010_1000;
/// RAM with color 2, the pool for what moves.
pub const AWAY: u64 = 0x4010_2000;
/// RAM with color 3, nobody's.
pub const OTHER: u64 = 0x4010_3000;
/// A memory on the chip, whose last page is reserved.
pub const CHIP: u64 = 0xfffc_0000;
/// The virtual CPU interface.
pub const GICV: u64 = 0x0804_0000;

fn pool(color: u64) -> Pool {
    Pool {
        name: format!("color {color}"),
        kind: PoolKind::Pvt,
        colors: ColorSet(1 << color),
        limit: None,
    }
}

fn uart() -> Uart {
    Uart {
        kind: UartKind::Pl011,
        base: PhysAddr(0x0900_0000),
        irq: Intid(33),
    }
}

fn board() -> Board {
    Board {
        name: "test".into(),
        cores: vec![0, 1],
        console: uart(),
        gic: Gic {
            gicd: PhysAddr(0x0800_0000),
            gicr: None,
            gicc: PhysAddr(0x0801_0000),
            gicc_dir: PhysAddr(0x0801_1000),
            gich: PhysAddr(0x0803_0000),
            gicv: PhysAddr(GICV),
            gicv_dir: PhysAddr(GICV + 0x1000),
            mediated_timer: true,
            interrupts: 256,
        },
        pmu_irqs: vec![Intid(23), Intid(23)],
        llc: CacheGeometry {
            size: 1 << 20,
            ways: 16,
            line: 64,
        },
        ram: vec![PhysRange {
            start: PhysAddr(0x4000_0000),
            len: 1 << 30,
        }],
        memories: vec![Memory {
            name: "ocm".into(),
            range: PhysRange {
                start: PhysAddr(CHIP),
                len: 0x4000,
            },
        }],
        reserved: vec![PhysRange {
            start: PhysAddr(CHIP + 0x3000),
            len: 0x1000,
        }],
        ..blank()
    }
}

fn vm() -> Vm {
    Vm {
        name: "a".into(),
        cores: vec![Core(0), Core(1)],
        map: cloison_formats::guest_map::GuestMap::CLOISON,
        regions: vec![Region {
            name: "ram".into(),
            ipa: Ipa(map::RAM),
            pages: 2,
            backing: Backing::Pool(0),
            executable: true,
        }],
        image: Image {
            offset: 0,
            len: 0,
            load: Ipa(map::RAM),
            entry: Ipa(map::RAM + 0x80),
        },
        args: [7, 8, 9, 10],
        services: cloison_abi::services::MIGRATE,
        irqs: vec![Intid(40)],
        quotas: vec![quota()],
        target: Some(1),
        away: 1,
        ..blank()
    }
}

/// A budget of 1,000 instructions in 10 us.
pub fn quota() -> Quota {
    Quota {
        vcpu: VcpuIndex(0),
        counted: Counted {
            event: EventId(8),
            weight: 1,
            allowed: true,
        },
        also: None,
        budget: Events(1000),
        ceiling: Events(1000),
        period: Nanos(10_000),
        poll: Nanos(0),
        backstop: false,
        trace: false,
        exact: true,
        work_cost: WorkCost::default(),
        when_spent: WhenSpent::Throttle,
        reclaim: None,
    }
}

/// Returns the system.
pub fn system() -> System {
    System {
        name: "test".into(),
        board: board(),
        log_level: LogLevel::Info,
        hypervisor_colors: ColorSet(1),
        pools: vec![pool(1), pool(2)],
        vms: vec![vm()],
        ..blank()
    }
}

/// Two VMs with a channel of two pages: the first may write, the second read.
pub fn connected() -> System {
    let mut system = system();
    system.vms.push(system.vms[0].clone());
    let member = |vm, rights| Member {
        vm: VmId(vm),
        rights,
        ipa: Ipa(0x6000_0000),
    };
    system.channels.push(Channel {
        name: "link".into(),
        pool: 0,
        pages: 2,
        members: vec![member(0, Rights::Write), member(1, Rights::Read)],
        is_cleared: true,
    });
    system
}
