//! `cloisonctl`: a Linux guest's requests to the hypervisor, from a shell.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod channel;
mod child;
mod failure;
mod list;
mod report;
mod stat;
mod table;
mod ways;

use clap::{Args, Parser, Subcommand, ValueEnum};
use cloison_abi::Call;
use cloison_client::{
    Change, Error, Life, Region, SERVICE_NAMES, Services, VmInfo, ceiling, counting, events, pin,
    vcpus,
};
use cloison_epapi::cpu::Cpu;
use failure::Failure;
use list::List;
use stat::Stat;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;
use table::print_table;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Request services from the Cloison hypervisor, for the VM in which this program runs
#[derive(Debug, Parser)]
// A guest's console is a terminal that logs and programs also read.
#[command(name = "cloisonctl", version, arg_required_else_help = true, color = clap::ColorChoice::Never)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Request(Request),
    /// Run a command on one vCPU, and print what was counted meanwhile, with what can be computed
    /// from it
    Stat(Stat),
    /// List what can be counted
    List(List),
    /// Run a command in a region of interest of the board model; anywhere else, just run it
    Roi {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// What the hypervisor is asked for.
#[derive(Debug, Subcommand)]
enum Request {
    /// Show which VM this is, and what it may do
    Info,
    /// Show the colors of the VM's memory and of its private pool
    Colors(Colors),
    /// Move pages to the VM's private pool, and back
    #[command(subcommand)]
    Migrate(Migrate),
    /// Show the state of the quotas on the vCPUs' cores, or lower one
    Quota(Quota),
    /// Show the budgets of other VMs that this VM regulates, or set one
    Budget(Budget),
    /// List the machine's VMs, or stop, start or restart one that this VM manages
    Vm(Vm),
    /// List the VM's channels, call a VM of one, or take the calls of others
    Channel(channel::Channel),
    /// List the VM's links, and what has passed on them
    Link,
    /// Make pages cacheable or non-cacheable
    Cacheability {
        /// First address of the first page, as the kernel sees it (0x…)
        #[arg(value_parser = number)]
        ipa: u64,
        /// Number of pages
        #[arg(value_parser = number)]
        pages: u64,
        /// Whether the caches may hold them
        wanted: CacheabilityChoice,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CacheabilityChoice {
    /// The caches may hold the pages
    Cached,
    /// The caches may not hold the pages
    Uncached,
}

#[derive(Debug, Args)]
struct Colors {
    /// Show single pages, from this address on (0x…)
    #[arg(long, value_name = "IPA", value_parser = number)]
    from: Option<u64>,
    /// Number of pages
    #[arg(long, value_name = "N", value_parser = number, default_value = "16", requires = "from")]
    pages: u64,
}

#[derive(Debug, Subcommand)]
enum Migrate {
    /// Move the K most important pages of the VM's profile, all or none
    Top {
        /// Number of pages
        #[arg(value_parser = number)]
        k: u64,
    },
    /// Move these pages, given by their first addresses as the kernel sees them, all or none
    Page {
        /// Addresses (0x…)
        #[arg(required = true, value_parser = number)]
        ipa: Vec<u64>,
    },
    /// Move every migrated page back
    Restore,
}

#[derive(Debug, Args)]
struct Quota {
    /// Only the quotas of this vCPU's core
    #[arg(long, value_name = "N")]
    vcpu: Option<usize>,
    /// Lower this quota, by its position in the VM's configuration, to this number of events per
    /// period
    #[arg(long, num_args = 2, value_names = ["INDEX", "EVENTS"], value_parser = number, requires = "vcpu")]
    set: Option<Vec<u64>>,
}

#[derive(Debug, Args)]
struct Budget {
    /// Only the quotas of this VM
    vm: Option<String>,
    /// Set this quota, by its position in the VM's configuration, to this number of events per
    /// period, up to its ceiling
    #[arg(long, num_args = 2, value_names = ["INDEX", "EVENTS"], value_parser = number, requires = "vm")]
    set: Option<Vec<u64>>,
}

#[derive(Debug, Args)]
struct Vm {
    #[command(subcommand)]
    change: Option<VmChange>,
}

#[derive(Debug, Subcommand)]
enum VmChange {
    /// List the VMs: number, name, whether they run, and whether this VM manages them (the default)
    List,
    /// End a VM, and wait until it has
    Stop {
        /// The VM's name
        name: String,
    },
    /// Start a VM that has ended, from its image, and wait until it runs
    Start {
        /// The VM's name
        name: String,
    },
    /// Start a VM from its image, whether it runs or has ended, and wait until it runs
    Restart {
        /// The VM's name
        name: String,
    },
}

/// Parses a decimal or hexadecimal number.
fn number(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let parsed = match plain.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => plain.parse(),
    };
    parsed.map_err(|error| format!("{error}: write 4096 or 0x1000"))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        // These need no hypervisor.
        Verb::Stat(wanted) => stat::stat(&wanted),
        Verb::List(wanted) => list::list(&wanted).map(|()| ExitCode::SUCCESS),
        Verb::Roi { command } => child::in_region(&command),
        Verb::Request(request) => {
            let done = Services::open()
                .map_err(Failure::from)
                .and_then(|mut services| run(&mut services, request));
            done.map(|()| ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|failure| {
        // As clap begins those of the command line.
        eprintln!("error: {}", failure.message);
        if let Some(help) = failure.help {
            eprintln!("  help: {help}");
        }
        ExitCode::FAILURE
    })
}

fn run(services: &mut Services, command: Request) -> Result<(), Failure> {
    match command {
        Request::Info => info(services)?,
        Request::Colors(wanted) => colors(services, &wanted)?,
        Request::Migrate(wanted) => migrate(services, &wanted)?,
        Request::Quota(wanted) => quota(services, &wanted)?,
        Request::Budget(wanted) => budget(services, &wanted)?,
        Request::Vm(Vm {
            change: None | Some(VmChange::List),
        }) => list_vms(services)?,
        Request::Vm(Vm {
            change: Some(VmChange::Stop { name }),
        }) => change_vm(services, &name, Change::Stop)?,
        Request::Vm(Vm {
            change: Some(VmChange::Start { name }),
        }) => change_vm(services, &name, Change::Start)?,
        Request::Vm(Vm {
            change: Some(VmChange::Restart { name }),
        }) => change_vm(services, &name, Change::Restart)?,
        Request::Channel(wanted) => channel::channel(services, &wanted)?,
        Request::Link => channel::links(services)?,
        Request::Cacheability { ipa, pages, wanted } => {
            services.set_cacheable(ipa, pages, matches!(wanted, CacheabilityChoice::Cached))?;
        }
    }
    Ok(())
}

fn line(name: &str, value: impl Display) {
    println!("{name:<12} {value}");
}

fn info(services: &mut Services) -> Result<(), Failure> {
    let identity = services.identify();
    let granted: Vec<&str> = SERVICE_NAMES
        .iter()
        .filter(|(bit, _)| identity.services & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    line("interface", format_args!("version {}", identity.version));
    line("VM", identity.vm);
    line("vCPUs", vcpus().len());
    line(
        "services",
        if granted.is_empty() {
            "none".to_owned()
        } else {
            granted.join(", ")
        },
    );
    let pages: u64 = services
        .regions()?
        .iter()
        .filter(|region| region.colors.0 != 0)
        .map(|region| region.pages)
        .sum();
    line("memory", format_args!("{} KiB", pages * PAGE / 1024));
    let nanos = services.time()?;
    line(
        "up for",
        format_args!(
            "{}.{:03} s since the machine's reset",
            nanos / 1_000_000_000,
            nanos / 1_000_000 % 1000
        ),
    );
    Ok(())
}

fn colors(services: &mut Services, wanted: &Colors) -> Result<(), Failure> {
    if let Some(from) = wanted.from {
        println!("{:<14} {:>5}  where", "page", "color");
        for page in 0..wanted.pages {
            let ipa = (from / PAGE).saturating_add(page).saturating_mul(PAGE);
            let state = services.page_state(ipa)?;
            let home = if state.private {
                "private pool"
            } else {
                "its region"
            };
            let cached = if state.cached { "" } else { ", not cached" };
            println!("{ipa:#014x} {:>5}  {home}{cached}", state.color);
        }
        return Ok(());
    }
    println!("{:<14} {:>10}  colors", "region", "pages");
    for Region { ipa, pages, colors } in services.regions()? {
        let colors = if colors.0 == 0 {
            "none: a device".to_owned()
        } else {
            colors.to_string()
        };
        println!("{ipa:#014x} {pages:>10}  {colors}");
    }
    match services.private_pool() {
        Ok(pool) => {
            println!(
                "{:<14} {:>10}  {}, {} in use",
                "private pool", pool.pages, pool.colors, pool.taken
            )
        }
        Err(Error::Refused { error, .. }) => {
            use cloison_abi::CallError;
            let why = if error == CallError::Denied {
                "not granted (`migrate`)"
            } else {
                "the VM has none"
            };
            println!("{:<14} {:>10}  {why}", "private pool", "-");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn migrate(services: &mut Services, wanted: &Migrate) -> Result<(), Failure> {
    match wanted {
        Migrate::Top { k } => println!(
            "{} pages moved to the private pool",
            services.migrate_top(*k)?
        ),
        Migrate::Page { ipa } => {
            println!(
                "{} pages moved to the private pool",
                services.move_pages(ipa, None)?
            );
        }
        Migrate::Restore => println!("{} pages moved back", services.restore()?),
    }
    Ok(())
}

/// Upper bound on the quotas of a VM on all of its cores.
const MOST: u64 = 64;

fn quota(services: &mut Services, wanted: &Quota) -> Result<(), Failure> {
    use cloison_abi::CallError;
    if let (Some([index, events]), Some(vcpu)) = (wanted.set.as_deref(), wanted.vcpu) {
        pin(vcpu)?;
        services.set_quota(*index, *events)?;
        println!("vCPU {vcpu}, quota {index}: {events} events per period from the next one on");
        return Ok(());
    }
    let mut rows = Vec::new();
    for vcpu in wanted.vcpu.map_or_else(vcpus, |vcpu| vec![vcpu]) {
        pin(vcpu)?;
        let cpu = counting::midr(vcpu).ok().and_then(Cpu::by_midr);
        for index in 0..MOST {
            match services.quota(index) {
                Ok(quota) => {
                    let terms = services.quota_terms(index)?;
                    rows.push(format!(
                        "{vcpu:>4} {index:>5}  {:<22} {:>12} {:>11} {:>12} {:>9} {:>14}",
                        events::name_on(cpu, terms.event),
                        terms.budget,
                        terms.period_nanos / 1000,
                        quota.events,
                        quota.periods,
                        quota.throttled_nanos / 1000
                    ));
                }
                Err(Error::Refused {
                    error: CallError::Absent,
                    ..
                }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let header = format!(
        "{:>4} {:>5}  {:<22} {:>12} {:>11} {:>12} {:>9} {:>14}",
        "vCPU", "quota", "event", "budget", "period (us)", "so far", "periods", "throttled (us)"
    );
    print_table(&header, &rows, "no quotas on these vCPUs' cores");
    Ok(())
}

fn budget(services: &mut Services, wanted: &Budget) -> Result<(), Failure> {
    use cloison_abi::CallError;
    let vms = services.vms()?;
    let chosen = wanted
        .vm
        .as_deref()
        .map(|name| number_of(&vms, name))
        .transpose()?;
    if let (Some(vm), Some([index, events])) = (chosen, wanted.set.as_deref()) {
        services
            .set_budget(vm, *index, *events)
            .map_err(|error| match ceiling(vm, *index) {
                Some(_) => not_set(error, vm, *index),
                None => not_of(services, error, vm),
            })?;
        println!(
            "{}, quota {index}: {events} events per period from its next one on",
            vms[vm as usize].name()
        );
        return Ok(());
    }
    let mut rows = Vec::new();
    for (number, vm) in (0..)
        .zip(&vms)
        .filter(|(number, _)| chosen.is_none_or(|chosen| chosen == *number))
    {
        for index in 0..MOST {
            match services.budget(number, index) {
                Ok(it) => {
                    let ceiling = ceiling(number, index).map_or("-".into(), |it| it.to_string());
                    rows.push(format!(
                        "{:<16} {index:>5} {:>12} {ceiling:>12} {:>12} {:>10}",
                        vm.name(),
                        it.budget,
                        it.events,
                        it.periods
                    ));
                }
                Err(Error::Refused {
                    error: CallError::Absent,
                    ..
                }) => break,
                // Of all VMs, those that it may regulate are shown.
                Err(Error::Refused {
                    error: CallError::Denied,
                    ..
                }) if chosen.is_none() => break,
                Err(error) => return Err(not_of(services, error, number)),
            }
        }
    }
    let header = format!(
        "{:<16} {:>5} {:>12} {:>12} {:>12} {:>10}",
        "VM", "quota", "budget", "ceiling", "last period", "periods"
    );
    print_table(&header, &rows, "no quotas that this VM may set");
    Ok(())
}

/// Adds the ceiling to the reason why a budget was not set.
fn not_set(error: Error, vm: u64, index: u64) -> Failure {
    use cloison_abi::CallError;
    let refused = matches!(
        error,
        Error::Refused {
            error: CallError::Invalid,
            ..
        }
    );
    match ceiling(vm, index) {
        Some(ceiling) if refused => Failure::new(
            format!("a budget of this quota is 1 to {ceiling} events, its ceiling (`up_to`)"),
            "`up_to` in that VM's [[vm.quota]] sets the ceiling; boot the system again",
        ),
        _ => error.into(),
    }
}

/// Gives better advice about a refused call for another VM if it is the VM itself.
fn not_of(services: &Services, error: Error, vm: u64) -> Failure {
    use cloison_abi::CallError::Denied;
    if vm != services.identify().vm {
        return error.into();
    }
    match error {
        Error::Refused {
            call: Call::VmOrder,
            error: Denied,
        } => Failure::new(
            "a VM cannot manage itself",
            "`poweroff` ends it and `reboot` restarts it; other VMs that name it in `manages` can, too",
        ),
        Error::Refused {
            call: Call::BudgetRead | Call::BudgetSet,
            error: Denied,
        } => Failure::new(
            "a VM cannot set its quotas by `budget`",
            "`cloisonctl quota` shows them and lowers them",
        ),
        error => error.into(),
    }
}

/// Returns the number of the VM with a name.
fn number_of(vms: &[VmInfo], name: &str) -> Result<u64, Failure> {
    let found = vms
        .iter()
        .position(|vm| vm.name() == name)
        .ok_or_else(|| Failure {
            message: format!("there is no VM `{name}`"),
            help: Some(format!(
                "this machine has: {}",
                vms.iter().map(VmInfo::name).collect::<Vec<_>>().join(", ")
            )),
        });
    found.map(|number| number as u64)
}

fn list_vms(services: &mut Services) -> Result<(), Failure> {
    println!("{:>2}  {:<16} {:<9} managed", "VM", "name", "state");
    for (number, vm) in services.vms()?.iter().enumerate() {
        println!(
            "{number:>2}  {:<16} {:<9} {}",
            vm.name(),
            vm.life,
            if vm.managed { "yes" } else { "no" }
        );
    }
    Ok(())
}

/// Orders a VM to change, and waits until it has.
fn change_vm(services: &mut Services, name: &str, change: Change) -> Result<(), Failure> {
    /// How often to look, and how long: loading a large VM takes a second or two, and its budgets
    /// may hold it.
    const LOOK: Duration = Duration::from_millis(10);
    const LONGEST: u32 = 6000;
    let number = number_of(&services.vms()?, name)?;
    services
        .order_vm(number, change)
        .map_err(|error| not_of(services, error, number))?;
    for _ in 0..LONGEST {
        let life = services.vm(number)?.life;
        if life != Life::Changing {
            println!("{name}: {life}");
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(Failure {
        message: format!(
            "`{name}` has not changed within {} s",
            (LOOK * LONGEST).as_secs()
        ),
        help: Some(
            "the order is still in force; `cloisonctl vm` shows the state of the VM".to_owned(),
        ),
    })
}
