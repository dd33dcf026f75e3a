//! Each rule that an image must keep: what breaks it by one is refused, what just keeps it is not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::blank::blank;
use crate::channel::{Member, Rights, Trigger};
use crate::link::{LinkEnd, LinkKind};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use cloison_abi::irq;

#[test]
fn the_sub_experiments_of_a_campaign_take_turns() {
    let campaign = Campaign {
        sub_experiments: vec![vec![], vec![]],
        runs: 3,
        vary: None,
    };
    let all: Vec<_> = (0..8).map(|done| campaign.next(done)).collect();
    let expected = [
        Some((0, 0)),
        Some((1, 0)),
        Some((0, 1)),
        Some((1, 1)),
        Some((0, 2)),
        Some((1, 2)),
        None,
        None,
    ];
    assert_eq!(all, expected);
    assert_eq!(
        Campaign {
            runs: 0,
            ..campaign.clone()
        }
        .next(0),
        None
    );
    assert_eq!(
        Campaign {
            sub_experiments: vec![],
            ..campaign
        }
        .next(0),
        None
    );
}

const PAGE: u64 = PAGE_SIZE;

/// A machine of two cores with 16 colors, and its system: a private and a shared pool; a VM with a
/// device and a quota, and one with nothing of that.
fn system() -> System {
    let uart = |base, irq| Uart {
        kind: UartKind::Pl011,
        base: PhysAddr(base),
        irq: Intid(irq),
    };
    let board = Board {
        name: "board".into(),
        cores: vec![0, 1],
        console: uart(0x900_0000, 33),
        telemetry: Some(uart(0x904_0000, 40)),
        gic: Gic {
            gicd: PhysAddr(0x800_0000),
            gicr: None,
            gicc: PhysAddr(0x801_0000),
            gicc_dir: PhysAddr(0x801_1000),
            gich: PhysAddr(0x803_0000),
            gicv: PhysAddr(0x804_0000),
            gicv_dir: PhysAddr(0x804_1000),
            mediated_timer: true,
            interrupts: 256,
        },
        pmu_irqs: vec![Intid(23); 2],
        llc: CacheGeometry {
            size: 1 << 20,
            ways: 16,
            line: 64,
        },
        ram: vec![PhysRange {
            start: PhysAddr(0x4000_0000),
            len: 1 << 30,
        }],
        reserved: vec![PhysRange {
            start: PhysAddr(0x4000_0000),
            len: 0x1000,
        }],
        ..blank()
    };
    let pool = |kind, colors| Pool {
        name: "pool".into(),
        kind,
        colors: ColorSet(colors),
        limit: None,
    };
    let mut first = vm(0, 0);
    first.regions.push(Region {
        name: "clock".into(),
        ipa: Ipa(0x5000_0000),
        pages: 1,
        backing: Backing::Device(PhysAddr(0x901_0000)),
        executable: false,
    });
    first.irqs = vec![Intid(34)];
    first.quotas = vec![quota()];
    first.target = Some(0);
    first.profile = Some(Profile {
        pages: vec![Ipa(0x4000_1000)],
        top: 0,
        after: None,
    });
    System {
        name: "system".into(),
        board,
        log_level: LogLevel::Info,
        hypervisor_colors: ColorSet(1),
        pools: vec![pool(PoolKind::Pvt, 0b110), pool(PoolKind::Sh, 0xff00)],
        vms: vec![first, vm(1, 1)],
        console_manages: 0b11,
        trusted: vec![EventId(0x17)],
        ..blank()
    }
}

fn vm(core: u8, pool: u8) -> Vm {
    Vm {
        name: "vm".into(),
        cores: vec![Core(core)],
        map: GuestMap::CLOISON,
        regions: vec![Region {
            name: "ram".into(),
            ipa: Ipa(0x4000_0000),
            pages: 4,
            backing: Backing::Pool(pool),
            executable: true,
        }],
        image: Image {
            offset: 0,
            len: 0x3000,
            load: Ipa(0x4000_1000),
            entry: Ipa(0x4000_1000),
        },
        ..blank()
    }
}

fn quota() -> Quota {
    Quota {
        vcpu: VcpuIndex(0),
        counted: Counted {
            event: EventId(0x17),
            weight: 1,
            allowed: false,
        },
        also: None,
        budget: Events(100),
        ceiling: Events(100),
        period: Nanos(1000),
        poll: Nanos(0),
        backstop: false,
        trace: false,
        exact: true,
        work_cost: WorkCost::default(),
        when_spent: WhenSpent::Throttle,
        reclaim: Some(Reclaim {
            pool: 0,
            guarantee: Events(100),
        }),
    }
}

const PAYLOAD: u32 = 0x3000;

/// Returns the verdict on the system after a change.
fn said(change: impl FnOnce(&mut System)) -> Result<(), Invalid> {
    let mut system = system();
    change(&mut system);
    system.validate(PAYLOAD)
}

/// Checks that the change is accepted.
#[track_caller]
fn keeps(change: impl FnOnce(&mut System)) {
    assert_eq!(said(change), Ok(()));
}

/// Checks that the change breaks this rule, in this part, with this number.
#[track_caller]
fn breaks(part: Part, rule: Rule, number: u64, change: impl FnOnce(&mut System)) {
    assert_eq!(said(change), Err(Invalid { part, rule, number }));
}

const FIRST: Part = Part::Vm(VmId(0));
const SECOND: Part = Part::Vm(VmId(1));
const RAM: Part = Part::Region {
    vm: VmId(0),
    region: 0,
};
const DEVICE: Part = Part::Region {
    vm: VmId(0),
    region: 1,
};

#[test]
fn each_rule_of_a_board_is_kept_to_the_unit() {
    let part = Part::System;
    keeps(|_| ());
    breaks(part, Rule::BoardCores, 0, |system| {
        system.board.cores.clear()
    });
    breaks(part, Rule::BoardCores, 9, |system| {
        system.board.cores = vec![0; 9]
    });
    keeps(|system| {
        system.board.cores = vec![0; 8];
        system.board.pmu_irqs = vec![Intid(23); 8];
    });
    keeps(|system| {
        system.board.gic.gicr = Some(PhysAddr(0x80a_0000));
        system.board.cores = vec![0; 16];
        system.board.pmu_irqs = vec![Intid(23); 16];
    });
    keeps(|system| system.board.gic.interrupts = 1020);
    breaks(part, Rule::Interrupts, 1021, |system| {
        system.board.gic.interrupts = 1021;
    });
    // An interrupt of a VM is one of the board's.
    keeps(|system| {
        system.board.gic.interrupts = 288;
        system.vms[0].irqs = vec![Intid(287)];
    });
    breaks(FIRST, Rule::Interrupt, 288, |system| {
        system.board.gic.interrupts = 288;
        system.vms[0].irqs = vec![Intid(288)];
    });
    breaks(part, Rule::BoardCores, 17, |system| {
        system.board.gic.gicr = Some(PhysAddr(0x80a_0000));
        system.board.cores = vec![0; 17];
    });
    let words = |words: [u64; 2]| Some(words.map(PhysAddr).to_vec());
    keeps(|system| system.board.spin_table = words([0x4000_0000, 0x4000_0ff8]));
    for wrong in [0x3fff_fff8, 0x4000_1000, 0x4000_0004] {
        breaks(part, Rule::SpinTable, 2, |system| {
            system.board.spin_table = words([0x4000_0000, wrong]);
        });
    }
    breaks(part, Rule::SpinTable, 1, |system| {
        system.board.spin_table = Some(vec![PhysAddr(0x4000_0000)]);
    });
    let off = |offset| {
        Some(PowerOff {
            page: PhysAddr(0xa00_0000),
            writes: vec![(offset, 1)],
        })
    };
    keeps(|system| system.board.power_off = off(0xffc));
    for wrong in [0x1000, 0xffe] {
        breaks(part, Rule::PowerOff, wrong.into(), |system| {
            system.board.power_off = off(wrong);
        });
    }
    breaks(part, Rule::Cache, 3 << 20, |system| {
        system.board.llc.size = 3 << 20
    });
}

#[test]
fn each_rule_of_the_boards_interrupts_is_kept_to_the_unit() {
    let part = Part::System;
    keeps(|system| system.board.pmu_irqs.clear());
    breaks(part, Rule::PmuInterrupts, 2, |system| {
        system.board.pmu_irqs = vec![Intid(23)];
    });
    for good in [16, 24, 28, 31] {
        keeps(|system| system.board.pmu_irqs = vec![Intid(good); 2]);
    }
    // 25 to 27 are those of EL2 and of the timers; below 16, there are no wires.
    for wrong in [15, 25, 26, 27, 32, 256] {
        breaks(part, Rule::PmuInterrupt, wrong.into(), |system| {
            system.board.pmu_irqs = vec![Intid(wrong); 2];
        });
    }
    for good in [[32, 255], [41, 42]] {
        keeps(|system| system.board.pmu_irqs = good.map(Intid).to_vec());
    }
    for wrong in [33, 40, 256, 23] {
        breaks(part, Rule::PmuInterrupt, wrong.into(), |system| {
            system.board.pmu_irqs = vec![Intid(wrong), Intid(50)];
        });
    }
}

#[test]
fn each_rule_of_a_system_is_kept_to_the_unit() {
    let part = Part::System;
    breaks(part, Rule::OwnColors, 0, |system| {
        system.hypervisor_colors = ColorSet(0)
    });
    breaks(part, Rule::OwnColors, 2, |system| {
        system.hypervisor_colors = ColorSet(0x1_0001)
    });
    breaks(part, Rule::Vms, 0, |system| system.vms.clear());
    keeps(|system| {
        system.board.cores = vec![0; 8];
        system.board.pmu_irqs = vec![];
        system.vms = (0..8).map(|core| vm(core, 1)).collect();
        system.console_manages = 0xff;
    });
    breaks(part, Rule::Vms, 9, |system| system.vms = vec![vm(0, 1); 9]);
    keeps(|system| system.ends_with = Some(VmId(1)));
    breaks(part, Rule::EndsWith, 2, |system| {
        system.ends_with = Some(VmId(2))
    });
    breaks(part, Rule::Manages, 0b100, |system| {
        system.console_manages = 0b100
    });
    keeps(|system| {
        system.vms[0].manages = 0b10;
        system.vms[1].regulates = 0b01;
    });
    breaks(SECOND, Rule::Manages, 0b10, |system| {
        system.vms[1].manages = 0b10;
    });
    for wrong in [0b01, 0b100] {
        breaks(FIRST, Rule::Manages, wrong, |system| {
            system.vms[0].manages = wrong as u8
        });
        breaks(FIRST, Rule::Regulates, wrong, |system| {
            system.vms[0].regulates = wrong as u8
        });
    }
}

#[test]
fn a_broken_rule_is_a_line_with_its_part_and_its_number() {
    let line = |part| {
        let (rule, number) = (Rule::NoPool, 3);
        Invalid { part, rule, number }.to_string()
    };
    let says = "names pool 3, which does not exist";
    assert_eq!(line(Part::System), format!("system: {says}"));
    assert_eq!(line(Part::Pool(1)), format!("pool 1: {says}"));
    assert_eq!(line(SECOND), format!("VM 1: {says}"));
    assert_eq!(line(DEVICE), format!("VM 0, region 1: {says}"));
}

#[test]
fn a_device_is_as_long_as_its_pages() {
    let mut system = system();
    system.vms[0].regions[1].pages = 3;
    let range = PhysRange {
        start: PhysAddr(0x901_0000),
        len: 0x3000,
    };
    assert!(system.vms[0].devices().eq([range]));
}

#[test]
fn each_rule_of_a_pool_is_kept_to_the_unit() {
    let (first, second) = (Part::Pool(0), Part::Pool(1));
    let colors = |pool: usize, colors| {
        move |system: &mut System| system.pools[pool].colors = ColorSet(colors)
    };
    breaks(first, Rule::Colors, 0, colors(0, 0));
    keeps(colors(1, 0x8000));
    breaks(second, Rule::Colors, 1, colors(1, 0x1_0000));
    breaks(first, Rule::HypervisorColor, 0, colors(0, 0b11));
    breaks(second, Rule::PrivateColor, 0, colors(1, 0b1100));
    breaks(second, Rule::PrivateColor, 0, |system| {
        system.pools[0].kind = PoolKind::Sh;
        system.pools[1].kind = PoolKind::Pvt;
        system.pools[1].colors = ColorSet(0b100);
    });
    keeps(|system| {
        system.pools[0].kind = PoolKind::Sh;
        system.pools[1].colors = ColorSet(0b100);
    });
    // A private pool has one VM: as the backing of a region, or for pages that move.
    breaks(first, Rule::PrivatePool, 2, |system| {
        system.vms[1].regions[0].backing = Backing::Pool(0);
    });
    breaks(first, Rule::PrivatePool, 2, |system| {
        system.vms[1].target = Some(0)
    });
    keeps(|system| system.vms[0].target = Some(1));
    keeps(|system| {
        system.pools[0].kind = PoolKind::Sh;
        system.vms[1].target = Some(0);
    });
}

#[test]
fn each_rule_of_a_region_is_kept_to_the_unit() {
    let ram = |change: fn(&mut Region)| {
        move |system: &mut System| {
            system.vms[0].profile = None;
            change(&mut system.vms[0].regions[0]);
        }
    };
    breaks(
        RAM,
        Rule::Empty,
        0x4000_0800,
        ram(|ram| ram.ipa = Ipa(0x4000_0800)),
    );
    breaks(RAM, Rule::Empty, 0x4000_0000, ram(|ram| ram.pages = 0));
    breaks(
        RAM,
        Rule::NoPool,
        2,
        ram(|ram| ram.backing = Backing::Pool(2)),
    );
    keeps(ram(|ram| ram.backing = Backing::Contiguous));
    // The last page of 2^39 bytes is usable, and no more.
    let high = |pages: u32| {
        move |system: &mut System| {
            let mut region = vm(0, 0).regions.remove(0);
            region.ipa = Ipa((1 << IPA_BITS) - PAGE);
            region.pages = pages;
            system.vms[0].regions[1] = region;
        }
    };
    keeps(high(1));
    breaks(DEVICE, Rule::IpaSpace, (1 << 39) - PAGE, high(2));
    breaks(DEVICE, Rule::IpaSpace, u64::MAX - 0xfff, |system| {
        high(1)(system);
        system.vms[0].regions[1].ipa = Ipa(u64::MAX - 0xfff);
    });
    let second = |ipa| move |system: &mut System| system.vms[0].regions[1].ipa = Ipa(ipa);
    keeps(second(0x4000_4000));
    keeps(second(0x3fff_f000));
    breaks(DEVICE, Rule::Overlap, 0, second(0x4000_3000));
    breaks(DEVICE, Rule::Overlap, 0, second(0x4000_0000));
    for (_, page) in GuestMap::CLOISON.devices() {
        breaks(DEVICE, Rule::Emulated, page.0, second(page.0));
    }
    let gicd = GuestMap::CLOISON.gicd.0;
    for ipa in [gicd - PAGE, gicd + PAGE] {
        keeps(second(ipa));
    }
}

/// Gives the system a channel that the first VM writes and the second reads.
fn connect(system: &mut System) {
    let member = |vm, rights| Member {
        vm: VmId(vm),
        rights,
        ipa: Ipa(0x6000_0000),
    };
    system.channels = vec![Channel {
        name: "channel".into(),
        pool: 1,
        pages: 2,
        members: vec![member(0, Rights::Write), member(1, Rights::Read)],
        is_cleared: true,
    }];
    let bell = |vm| Doorbell {
        vm: VmId(vm),
        trigger: Trigger::Edge,
        burst: 1,
        interval: Nanos(1),
    };
    system.doorbells = vec![bell(0), bell(1)];
}

#[test]
fn each_rule_of_a_channel_is_kept_to_the_unit() {
    let part = Part::Channel(0);
    let channel = |change: fn(&mut Channel)| {
        move |system: &mut System| {
            connect(system);
            change(&mut system.channels[0]);
        }
    };
    keeps(connect);
    breaks(part, Rule::ChannelPool, 0, channel(|it| it.pool = 0));
    breaks(part, Rule::ChannelPool, 2, channel(|it| it.pool = 2));
    for rights in [Rights::Read, Rights::None] {
        breaks(part, Rule::ChannelWriter, 2, |system| {
            connect(system);
            system.channels[0].members[0].rights = rights;
        });
    }
    let alone = channel(|it| it.members.clear());
    breaks(part, Rule::ChannelWriter, 0, alone);
    keeps(channel(|it| it.members[1].rights = Rights::Write));
    for (vm, wrong) in [(1, 1), (2, 2)] {
        breaks(part, Rule::ChannelMember, wrong, |system| {
            connect(system);
            let other = Member {
                vm: VmId(vm),
                ..system.channels[0].members[1].clone()
            };
            system.channels[0].members.push(other);
        });
    }
    let place = channel(|it| it.pages = 0);
    breaks(part, Rule::Empty, 0x6000_0000, place);
    let place = channel(|it| it.members[0].ipa = Ipa(0x6000_0800));
    breaks(part, Rule::Empty, 0x6000_0800, place);
    let place = channel(|it| it.members[0].ipa = Ipa((1 << IPA_BITS) - PAGE));
    breaks(part, Rule::IpaSpace, (1 << IPA_BITS) - PAGE, place);
    let place = channel(|it| it.members[1].ipa = Ipa(0x900_0000));
    breaks(part, Rule::Emulated, 0x900_0000, place);
    // The RAM ends at 0x4000_4000, and the channel's two pages may come after it.
    keeps(channel(|it| it.members[0].ipa = Ipa(0x4000_4000)));
    let place = channel(|it| it.members[0].ipa = Ipa(0x4000_3000));
    breaks(part, Rule::Overlap, 0, place);
    // A VM that does not see the memory has no place for it.
    keeps(channel(|it| {
        it.members[1].rights = Rights::None;
        it.members[1].ipa = Ipa(1);
    }));
    // The second channel comes after the regions of the first VM, of which there are two.
    breaks(Part::Channel(1), Rule::Overlap, 2, |system| {
        connect(system);
        system.channels.push(system.channels[0].clone());
        system.channels[1].members[0].ipa = Ipa(0x6000_1000);
    });
    keeps(|system| {
        connect(system);
        system.channels.push(system.channels[0].clone());
        for member in &mut system.channels[1].members {
            member.ipa = Ipa(0x6000_2000);
        }
    });
}

#[test]
fn each_rule_of_a_doorbell_is_kept_to_the_unit() {
    let bells = |change: fn(&mut System)| {
        move |system: &mut System| {
            connect(system);
            change(system);
        }
    };
    let part = Part::Channel(0);
    let wrong: [fn(&mut System); 5] = [
        |system| system.doorbells[1].burst = 0,
        |system| system.doorbells[1].interval = Nanos(0),
        |system| system.doorbells.truncate(1),
        |system| system.vms[1].irqs = vec![Intid(irq::DOORBELL)],
        |system| system.vms[1].map.uart.irq = Intid(irq::DOORBELL),
    ];
    for change in wrong {
        breaks(part, Rule::Doorbell, 1, bells(change));
    }
    // A VM without a channel needs no doorbell, and may have a device with its interrupt.
    keeps(|system| system.vms[1].irqs = vec![Intid(irq::DOORBELL)]);
}

#[test]
fn each_rule_of_a_link_is_kept_to_the_unit() {
    let part = Part::Link(0);
    let links = |change: fn(&mut System)| {
        move |system: &mut System| {
            connect(system);
            let end = |vm| LinkEnd {
                vm: VmId(vm),
                ipa: Ipa(0xa00_0000),
                irq: Intid(48),
            };
            system.links = vec![Link {
                name: "link".into(),
                kind: LinkKind::Net,
                ends: [end(0), end(1)],
            }];
            change(system);
        }
    };
    let first = |change: fn(&mut LinkEnd)| {
        let with = links(|_| {});
        move |system: &mut System| {
            with(system);
            change(&mut system.links[0].ends[0]);
        }
    };
    keeps(links(|_| {}));
    breaks(part, Rule::LinkVm, 1, first(|end| end.vm = VmId(1)));
    breaks(part, Rule::LinkVm, 2, first(|end| end.vm = VmId(2)));
    keeps(first(|end| end.ipa = Ipa((1 << IPA_BITS) - PAGE)));
    // The RAM ends at 0x4000_4000, and the channel has two pages.
    let wrong = [
        1 << IPA_BITS,
        0xa00_0004,
        0x900_0000,
        0x4000_3000,
        0x6000_1000,
    ];
    for ipa in wrong {
        breaks(part, Rule::LinkPlace, ipa, move |system| {
            links(|_| {})(system);
            system.links[0].ends[0].ipa = Ipa(ipa);
        });
    }
    keeps(first(|end| end.ipa = Ipa(0x4000_4000)));
    keeps(first(|end| end.ipa = Ipa(0x6000_2000)));
    for irq in [32, 1019] {
        keeps(move |system| {
            links(|_| {})(system);
            system.links[0].ends[1].irq = Intid(irq);
        });
    }
    let own = system().vms[0].irqs[0].0;
    for irq in [31, 1020, own, cloison_abi::irq::UART, irq::DOORBELL] {
        breaks(part, Rule::LinkInterrupt, irq.into(), move |system| {
            links(|_| {})(system);
            system.links[0].ends[0].irq = Intid(irq);
        });
    }
    // A second link of the same VMs.
    let second = |change: fn(&mut Link)| {
        let with = links(|_| {});
        move |system: &mut System| {
            with(system);
            let mut link = system.links[0].clone();
            change(&mut link);
            system.links.push(link);
        }
    };
    breaks(Part::Link(1), Rule::LinkPlace, 0xa00_0000, second(|_| {}));
    let irq = second(|link| {
        for end in &mut link.ends {
            end.ipa = Ipa(0xa00_1000);
        }
    });
    breaks(Part::Link(1), Rule::LinkInterrupt, 48, irq);
    keeps(second(|link| {
        for end in &mut link.ends {
            end.ipa = Ipa(0xa00_1000);
            end.irq = Intid(49);
        }
    }));
}

#[test]
fn each_device_of_a_map_has_its_own_page_and_the_uart_its_own_interrupt() {
    let map = |change: fn(&mut GuestMap)| move |system: &mut System| change(&mut system.vms[0].map);
    let part = FIRST;
    keeps(map(|map| map.uart.base = Ipa((1 << IPA_BITS) - PAGE)));
    breaks(
        part,
        Rule::Map,
        1 << IPA_BITS,
        map(|map| map.gicd = Ipa(1 << IPA_BITS)),
    );
    breaks(
        part,
        Rule::Map,
        0x0800_0800,
        map(|map| map.gicd = Ipa(0x0800_0800)),
    );
    breaks(
        part,
        Rule::Map,
        0x0800_0000,
        map(|map| map.services = map.gicd),
    );
    breaks(
        part,
        Rule::Map,
        0x0900_0000,
        map(|map| map.gicc_dir = map.uart.base),
    );
    keeps(map(|map| map.uart.irq = Intid(1019)));
    for irq in [31, 1020] {
        let change = move |system: &mut System| system.vms[0].map.uart.irq = Intid(irq);
        breaks(part, Rule::UartInterrupt, irq.into(), change);
    }
    let own = system().vms[0].irqs[0];
    let change = move |system: &mut System| system.vms[0].map.uart.irq = own;
    breaks(part, Rule::UartInterrupt, own.0.into(), change);
}

#[test]
fn no_device_is_ram_or_the_hypervisors_or_anothers() {
    let device = |at| {
        move |system: &mut System| {
            system.vms[0].regions[1].backing = Backing::Device(PhysAddr(at));
        }
    };
    keeps(device(0x8000_0000));
    keeps(device(0x3fff_f000));
    let mut taken = vec![0x4000_0000, 0x7fff_f000, 0x901_0800];
    taken.extend([0x900_0000, 0x904_0000]);
    taken.extend([
        0x800_0000, 0x801_0000, 0x801_1000, 0x803_0000, 0x804_0000, 0x804_1000,
    ]);
    // GICH has a second page, with a part for each core.
    taken.push(0x803_1000);
    for at in taken {
        breaks(DEVICE, Rule::Device, at, device(at));
    }
    for free in [0x8ff_f000, 0x900_1000, 0x802_0000, 0x803_2000, 0x802_f000] {
        keeps(device(free));
    }
    breaks(DEVICE, Rule::Device, 0xa00_0000, |system| {
        system.board.power_off = Some(PowerOff {
            page: PhysAddr(0xa00_0000),
            writes: vec![],
        });
        device(0xa00_0000)(system);
    });
    // Where the pages of a GIC are 64 KiB apart, all 64 KiB are the hypervisor's.
    let apart = |at| {
        move |system: &mut System| {
            system.board.gic.gicc_dir = PhysAddr(0x802_0000);
            system.board.gic.gicv_dir = PhysAddr(0x805_0000);
            device(at)(system);
        }
    };
    for at in [0x802_f000, 0x803_f000, 0x804_f000, 0x80f_0000] {
        if at == 0x80f_0000 {
            keeps(apart(at));
        } else {
            breaks(DEVICE, Rule::Device, at, apart(at));
        }
    }
    breaks(DEVICE, Rule::DeviceTwice, 0x901_0000, |system| {
        let clock = system.vms[0].regions[1].clone();
        system.vms[1].regions.push(clock);
    });
}

#[test]
fn memory_at_its_own_addresses_is_free_ram() {
    let memory = |ipa, pages| Region {
        name: "buffers".into(),
        ipa: Ipa(ipa),
        pages,
        backing: Backing::Direct,
        executable: true,
    };
    let has = |ipa, pages| move |system: &mut System| system.vms[0].regions[1] = memory(ipa, pages);
    // What the first VM's image needs, the device's region has.
    for (ipa, pages) in [(0x7fff_f000, 1), (0x6000_0000, 0x2_0000), (0x5000_1000, 2)] {
        keeps(has(ipa, pages));
    }
    // Across an end of the bank, and outside.
    for (ipa, pages) in [(0x7fff_f000, 2), (0x3fff_f000, 1), (0x8000_0000, 1)] {
        breaks(DEVICE, Rule::Direct, ipa, has(ipa, pages));
    }
    breaks(DEVICE, Rule::Direct, 0x7000_0000, |system| {
        system.board.reserved[0].start = PhysAddr(0x7000_1000);
        has(0x7000_0000, 2)(system);
    });
    breaks(DEVICE, Rule::Direct, 0x7000_0000, |system| {
        has(0x7000_0000, 2)(system);
        system.vms[1].regions.push(memory(0x7000_1000, 1));
    });
}

#[test]
fn a_vm_asks_the_firmware_about_64_things_of_a_kind_at_most() {
    for kind in 0..3 {
        let asks = |count: usize| {
            move |system: &mut System| {
                let mut lists = [const { vec![] }; 3];
                lists[kind] = vec![1; count];
                let [nodes, clocks, resets] = lists;
                system.vms[0].firmware = Some(FirmwareAccess {
                    nodes,
                    clocks,
                    resets,
                });
            }
        };
        keeps(asks(MAX_FIRMWARE_NUMBERS));
        breaks(FIRST, Rule::Firmware, 65, asks(MAX_FIRMWARE_NUMBERS + 1));
    }
}

#[test]
fn streams_are_one_vms_and_its_pages_stay() {
    let smmu = Smmu {
        base: PhysAddr(0x905_0000),
        irq: Intid(106),
    };
    let streams = |vm: usize| {
        move |system: &mut System| {
            system.board.smmu = Some(smmu);
            system.vms[vm].streams = Streams(1 << 8);
        }
    };
    keeps(streams(1));
    breaks(SECOND, Rule::Streams, 1 << 8, |system| {
        streams(1)(system);
        system.board.smmu = None;
    });
    breaks(FIRST, Rule::Streams, 1 << 8, |system| {
        streams(0)(system);
        streams(1)(system);
    });
    // The first VM has a pool to which its pages can move.
    breaks(FIRST, Rule::StreamsMove, 1 << 8, streams(0));
    breaks(SECOND, Rule::StreamsMove, 1 << 8, |system| {
        streams(1)(system);
        system.vms[1].services = services::PROFILE;
    });
    // The SMMU's registers and interrupt are the hypervisor's, to the last page.
    for page in [0x905_0000, 0x906_f000] {
        breaks(DEVICE, Rule::Device, page, |system| {
            streams(1)(system);
            system.vms[0].regions[1].backing = Backing::Device(PhysAddr(page));
        });
    }
    breaks(FIRST, Rule::Interrupt, 106, |system| {
        streams(1)(system);
        system.vms[0].irqs = vec![Intid(106)];
    });
    assert!(Streams(1 << 63).contains(63) && !Streams(u64::MAX).contains(64));
}

#[test]
fn what_stops_a_device_is_a_word_of_the_vms_own() {
    let stops = |at, count| {
        move |system: &mut System| {
            let stop = Stop {
                at: PhysAddr(at),
                value: 1,
            };
            system.vms[0].stops = vec![stop; count];
        }
    };
    keeps(stops(0x901_0000, MAX_STOPS));
    keeps(stops(0x901_0ffc, 1));
    breaks(
        FIRST,
        Rule::Stop,
        0x901_0000,
        stops(0x901_0000, MAX_STOPS + 1),
    );
    for at in [0x901_0002, 0x901_1000, 0x900_fffc, 0x4000_0000] {
        breaks(FIRST, Rule::Stop, at, stops(at, 1));
    }
    // Another VM's device is no better.
    breaks(SECOND, Rule::Stop, 0x901_0000, |system| {
        stops(0x901_0000, 1)(system);
        system.vms[1].stops = core::mem::take(&mut system.vms[0].stops);
    });
}

#[test]
fn each_rule_of_cores_and_interrupts_is_kept_to_the_unit() {
    breaks(FIRST, Rule::VmCores, 0, |system| {
        system.vms[0].cores.clear()
    });
    breaks(SECOND, Rule::Core, 2, |system| {
        system.vms[1].cores = vec![Core(2)]
    });
    breaks(FIRST, Rule::Core, 0, |system| {
        system.vms[1].cores = vec![Core(0)]
    });
    let granted = |irq| move |system: &mut System| system.vms[0].irqs = vec![Intid(irq)];
    for good in [32, 255] {
        keeps(granted(good));
    }
    for wrong in [31, 256, 33, 40] {
        breaks(FIRST, Rule::Interrupt, wrong.into(), granted(wrong));
    }
    breaks(FIRST, Rule::Interrupt, 60, |system| {
        system.board.pmu_irqs = vec![Intid(60), Intid(61)];
        granted(60)(system);
    });
    breaks(FIRST, Rule::InterruptTwice, 34, |system| {
        system.vms[1].irqs = vec![Intid(34)]
    });
}

#[test]
fn each_rule_of_a_quota_is_kept_to_the_unit() {
    let quota =
        |change: fn(&mut Quota)| move |system: &mut System| change(&mut system.vms[0].quotas[0]);
    breaks(
        FIRST,
        Rule::Quota,
        1,
        quota(|quota| quota.vcpu = VcpuIndex(1)),
    );
    let wrong: [fn(&mut Quota); 6] = [
        |quota| quota.period = Nanos(0),
        |quota| (quota.budget, quota.ceiling) = (Events(0), Events(0)),
        |quota| quota.ceiling = Events(99),
        |quota| quota.ceiling = Events(1 << 32),
        |quota| quota.counted.weight = 0,
        |quota| {
            quota.also = Some(Counted {
                weight: 0,
                ..quota.counted
            });
        },
    ];
    for change in wrong {
        breaks(FIRST, Rule::Quota, 0, quota(change));
    }
    keeps(quota(|quota| quota.ceiling = Events(u32::MAX.into())));
    breaks(
        FIRST,
        Rule::Untrusted,
        0x18,
        quota(|quota| quota.counted.event = EventId(0x18)),
    );
    keeps(quota(|quota| {
        quota.counted.event = EventId(0x18);
        quota.counted.allowed = true;
    }));
    breaks(
        FIRST,
        Rule::Untrusted,
        0x19,
        quota(|quota| {
            quota.also = Some(Counted {
                event: EventId(0x19),
                ..quota.counted
            });
        }),
    );
}

#[test]
fn each_rule_of_a_shared_budget_is_kept_to_the_unit() {
    let shared = |pool, guarantee| {
        move |system: &mut System| {
            system.vms[0].quotas[0].reclaim = Some(Reclaim {
                pool,
                guarantee: Events(guarantee),
            });
        }
    };
    keeps(|system| system.vms[0].quotas[0].reclaim = None);
    keeps(shared(7, 1));
    for (pool, guarantee) in [(8, 1), (0, 0), (0, 101)] {
        breaks(FIRST, Rule::Reclaim, pool.into(), shared(pool, guarantee));
    }
    breaks(FIRST, Rule::Reclaim, 0, |system| {
        system.vms[0].quotas[0].exact = false
    });
    let mate = |pool, period| {
        move |system: &mut System| {
            let mut mate = quota();
            mate.period = Nanos(period);
            mate.reclaim = Some(Reclaim {
                pool,
                guarantee: Events(1),
            });
            system.vms[1].quotas = vec![mate];
        }
    };
    keeps(mate(0, 1000));
    keeps(mate(1, 2000));
    breaks(FIRST, Rule::Reclaim, 0, mate(0, 2000));
}

#[test]
fn each_rule_of_a_pmu_and_a_profile_is_kept_to_the_unit() {
    let direct = |system: &mut System| system.vms[0].pmu = GuestPmu::Direct;
    breaks(FIRST, Rule::DirectPmu, 1, direct);
    keeps(|system| {
        direct(system);
        system.board.pmu_splits = true;
    });
    keeps(|system| {
        direct(system);
        system.vms[0].quotas.clear();
    });
    breaks(FIRST, Rule::DirectPmu, 0, |system| {
        direct(system);
        system.vms[0].quotas.clear();
        system.vms[0].hems = vec![EventId(1)];
    });
    keeps(|system| system.vms[0].services = services::COUNTERS);
    breaks(
        FIRST,
        Rule::PmuAndCounters,
        services::COUNTERS.into(),
        |system| {
            system.vms[0].pmu = GuestPmu::Emulated;
            system.vms[0].services = services::COUNTERS;
        },
    );
    keeps(|system| {
        system.vms[0].pmu = GuestPmu::Emulated;
        system.vms[0].services = !services::COUNTERS;
    });
    breaks(FIRST, Rule::NoPool, 2, |system| {
        system.vms[0].target = Some(2)
    });
    breaks(FIRST, Rule::ProfilePool, 1, |system| {
        system.vms[0].target = None
    });
    let page = |page| {
        move |system: &mut System| {
            system.vms[0].profile = Some(Profile {
                pages: vec![Ipa(page)],
                top: 1,
                after: None,
            });
        }
    };
    for good in [0x4000_0000, 0x4000_3000, 0x5000_0000] {
        keeps(page(good));
    }
    for wrong in [0x3fff_f000, 0x4000_4000, 0x4000_0800] {
        breaks(FIRST, Rule::ProfilePage, wrong, page(wrong));
    }
}

#[test]
fn each_rule_of_what_is_loaded_is_kept_to_the_unit() {
    let image = |offset, len, load| {
        move |system: &mut System| {
            let image = &mut system.vms[0].image;
            (image.offset, image.len, image.load) = (offset, len, Ipa(load));
        }
    };
    keeps(image(0x1000, 0x2000, 0x4000_2000));
    for (offset, len) in [
        (0x1000, 0x2001),
        (0x800, 1),
        (0x4000, 0),
        (0xffff_f000, 0x1000),
    ] {
        breaks(
            FIRST,
            Rule::Payload,
            offset.into(),
            image(offset, len, 0x4000_0000),
        );
    }
    keeps(image(0, 0, 0));
    keeps(image(0, 0x2001, 0x4000_1000));
    for load in [0x4000_2000, 0x3fff_f000, 0x4000_0800, 0x5000_0000] {
        breaks(FIRST, Rule::LoadAddress, load, image(0, 0x2001, load));
    }
    breaks(FIRST, Rule::LoadAddress, 0x800, image(0, 0, 0x800));
    // A device is no place for it.
    breaks(
        FIRST,
        Rule::LoadAddress,
        0x5000_0000,
        image(0, 1, 0x5000_0000),
    );
    breaks(SECOND, Rule::Payload, 0x3000, |system| {
        system.vms[1].modules = vec![Module {
            offset: 0x3000,
            len: 1,
            load: Ipa(0x4000_0000),
        }];
    });
}

#[test]
fn counters_are_those_of_the_core_that_needs_most() {
    let counters = |change: fn(&mut System)| {
        let mut system = system();
        change(&mut system);
        (system.counters(), system.vms[0].segment_counters())
    };
    assert_eq!(counters(|_| ()), (1, 0));
    assert_eq!(counters(|system| system.board.pmu_shadow = true), (2, 0));
    assert_eq!(
        counters(|system| {
            system.board.pmu_shadow = true;
            system.board.pmu_irqs.clear();
        }),
        (1, 0)
    );
    assert_eq!(
        counters(|system| system.vms[0].quotas[0].also = Some(quota().counted)),
        (2, 0)
    );
    // One of another vCPU is on another core.
    assert_eq!(
        counters(|system| system.vms[0].quotas[0].vcpu = VcpuIndex(1)),
        (0, 0)
    );
    assert_eq!(
        counters(|system| system.vms[0].pmu = GuestPmu::Direct),
        (2, 0)
    );
    assert_eq!(
        counters(|system| system.vms[0].hems = vec![EventId(1); 3]),
        (4, 3)
    );
    let campaign = |system: &mut System| {
        system.vms[0].hems = vec![EventId(1)];
        system.vms[0].campaign = Some(Campaign {
            sub_experiments: vec![vec![EventId(1); 2], vec![EventId(2)]],
            runs: 1,
            vary: None,
        });
    };
    assert_eq!(counters(campaign), (3, 2));
    // Segments of a guest that has the cycle counter count cycles with another one.
    assert_eq!(
        counters(|system| system.vms[0].services = services::HEM),
        (1, 0)
    );
    assert_eq!(
        counters(|system| system.vms[0].services = services::HEM | services::COUNTERS),
        (2, 1)
    );
    assert_eq!(
        counters(|system| {
            system.vms[0].services = services::HEM;
            system.vms[0].pmu = GuestPmu::Emulated;
        }),
        (2, 1)
    );
    assert_eq!(
        counters(|system| system.vms[0].services = services::COUNTERS),
        (1, 0)
    );
    assert_eq!(counters(|system| system.vms[0].quotas.clear()), (0, 0));
}

#[test]
fn a_pmus_interrupt_is_private_and_the_guests_alone() {
    let mut system = system();
    assert_eq!(system.board.guest_pmu_irq(), Some(Intid(23)));
    system.board.pmu_irqs = vec![Intid(31)];
    assert_eq!(system.board.guest_pmu_irq(), Some(Intid(31)));
    system.board.pmu_irqs = vec![Intid(32)];
    assert_eq!(system.board.guest_pmu_irq(), None);
    let vm = &mut system.vms[0];
    let irq = Some(Intid(23));
    assert!(!vm.has_counters() && vm.pmu_irq(irq).is_none());
    vm.services = services::COUNTERS;
    assert!(vm.has_counters());
    vm.services = 0;
    vm.pmu = GuestPmu::Emulated;
    assert!(vm.has_counters());
    assert_eq!((vm.pmu_irq(irq), vm.pmu_irq(None)), (irq, None));
    vm.pmu = GuestPmu::Direct;
    assert_eq!(vm.pmu_irq(irq), None);
    vm.quotas.clear();
    assert_eq!(vm.pmu_irq(irq), irq);
}

/// Returns an image with this configuration and payload, and a checksum of the bytes' sum.
fn image(config: &[u8], payload: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let offset = (HEADER_LEN + config.len()).next_multiple_of(PAGE as usize);
    let mut image = MAGIC.to_vec();
    let words = [
        VERSION,
        config.len() as u32,
        sum(config),
        offset as u32,
        payload.len() as u32,
        sum(payload),
    ];
    image.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    image.resize(HEADER_LEN - 4, 0);
    change(&mut image);
    let own = sum(&image);
    image.extend(own.to_le_bytes());
    image.extend(config);
    image.resize(offset, 0);
    image.extend(payload);
    image.extend(END_MARKER);
    image
}

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(17, |sum, byte| sum * 31 % 65_521 + u32::from(*byte))
}

fn decode(image: &[u8]) -> Result<System, ImageError> {
    let header = Header::parse(image, sum)?;
    assert_eq!(header.total_len(), image.len() as u64);
    header.decode(image, sum)
}

#[test]
fn an_image_is_read_as_it_was_written_and_each_changed_byte_is_noticed() {
    let config = postcard::to_allocvec(&system()).expect("it fits");
    let payload = vec![0xa5; 0x3000];
    let whole = image(&config, &payload, |_| ());
    assert_eq!(decode(&whole), Ok(system()));
    let header = Header::parse(&whole, sum).expect("it is whole");
    let truncated = ImageError::Truncated {
        expected_len: whole.len() as u64,
    };
    assert_eq!(
        header.decode(&whole[..whole.len() - 1], sum),
        Err(truncated.clone())
    );
    let mut changed = whole.clone();
    *changed.last_mut().expect("it is there") ^= 1;
    assert_eq!(header.decode(&changed, sum), Err(truncated));
    for at in 0..HEADER_LEN + config.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        let found = Header::parse(&changed, sum).and_then(|header| header.decode(&changed, sum));
        assert!(found.is_err(), "byte {at}");
    }
    let mut changed = whole.clone();
    changed[header.payload_offset as usize] ^= 1;
    let damaged = |error| match error {
        Err(ImageError::Damaged { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(damaged(header.decode(&changed, sum)), "guest images are");
    let mut changed = whole.clone();
    changed[HEADER_LEN] ^= 1;
    assert_eq!(damaged(header.decode(&changed, sum)), "configuration is");
    let mut broken = system();
    broken.ends_with = Some(VmId(7));
    let broken = postcard::to_allocvec(&broken).expect("it fits");
    let invalid = decode(&image(&broken, &payload, |_| ()));
    assert!(
        matches!(invalid, Err(ImageError::Invalid(_))),
        "{invalid:?}"
    );
    assert_eq!(
        decode(&image(b"\xff", &payload, |_| ())),
        Err(ImageError::Decode)
    );
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let parse = |change: fn(&mut Vec<u8>)| {
        let image = image(&[0; 100], &[0; 16], change);
        Header::parse(&image, sum).err()
    };
    let put = |image: &mut Vec<u8>, at: usize, word: u32| {
        image[at..at + 4].copy_from_slice(&word.to_le_bytes());
    };
    assert_eq!(parse(|_| ()), None);
    assert_eq!(parse(|image| image[0] ^= 1), Some(ImageError::NoImage));
    assert_eq!(
        parse(|image| image[8] = 99),
        Some(ImageError::Version { found: 99 })
    );
    let with = |at: usize, word: u32| {
        let image = image(&[0; 100], &[0; 16], |image| put(image, at, word));
        Header::parse(&image, sum).err()
    };
    // The payload starts on a page, and after the configuration.
    assert_eq!(with(20, 0x1800), Some(ImageError::Layout));
    assert_eq!(with(20, 0), Some(ImageError::Layout));
    assert_eq!(with(12, 0x1000 - 64), None);
    assert_eq!(with(12, 0x1000 - 63), Some(ImageError::Layout));
    let whole = image(&[0; 100], &[0; 16], |_| ());
    assert_eq!(Header::parse(&whole[..63], sum), Err(ImageError::NoImage));
    assert!(Header::parse(&whole[..64], sum).is_ok());
    assert_eq!(Header::parse(&[], sum), Err(ImageError::NoImage));
    let header = Header::parse(&whole, sum).expect("it is whole");
    assert_eq!(
        (header.config_len, header.payload_offset, header.payload_len),
        (100, 0x1000, 16)
    );
}
