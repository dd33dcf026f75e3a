//! The `[[vm.quota]]` tables: budgets of events, or of bytes per second, per core or shared out over a VM's vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::events::{Bounds, Event, EventTable};
use crate::node::{Field, Table};
use crate::problem::{Problem, count};
use crate::quantity::{Amount, show_duration};
use crate::trust::Budgeted;
use cloison_abi::services;
use cloison_formats::image::{Counted, Quota, Reclaim, Vm, WhenSpent};
use cloison_formats::units::{EventId, Events, Nanos};
use std::ops::Range;

/// Minimum length of a quota's period, so that the EL2 timer and the replenishment have time.
const SHORTEST_PERIOD: Nanos = Nanos(2_000);
/// Maximum length of a period.
const LONGEST_PERIOD: Nanos = Nanos(1_000_000_000);
/// The shortest poll interval.
const SHORTEST_POLL: Nanos = Nanos(5_000);
/// Default number of polls per period.
const POLLS_PER_PERIOD: u64 = 50;
/// Largest budget: an event counter has 32 bits and overflows after the budget.
const LARGEST_BUDGET: u64 = u32::MAX as u64;
/// Largest weight of an event, and of a vCPU.
const LARGEST_WEIGHT: u64 = 1000;

/// A quota of one vCPU with the positions of its table and of its events.
pub(crate) struct QuotaSpec {
    pub quota: Quota,
    pub span: Range<usize>,
    event_path: String,
    event_span: Range<usize>,
    /// The events, but for a part of a budget whose other parts have them.
    pub budgeted: Vec<Budgeted>,
}

/// What all quotas of a VM depend on.
pub(crate) struct Owner<'a> {
    /// Number of its vCPUs, if that is right.
    pub vcpus: Option<usize>,
    pub board: Option<&'a BoardFile>,
    /// What it may ask for.
    pub services: u32,
}

/// Reads the quotas of a VM: one or more for each table.
pub(crate) fn read(table: &Table<'_>, owner: &Owner<'_>) -> Option<Vec<QuotaSpec>> {
    let each: Option<Vec<_>> = table
        .tables("quota")
        .into_iter()
        .map(|quota| read_one(&quota, owner))
        .collect();
    each.map(|quotas| quotas.into_iter().flatten().collect())
}

fn read_one(table: &Table<'_>, owner: &Owner<'_>) -> Option<Vec<QuotaSpec>> {
    let shares = read_shares(table, owner.vcpus);
    let counted = read_counted(table, owner.board);
    let budget_field = table.required(
        "budget",
        "say how much per period: budget = \"20000 events / 1 ms\"",
    );
    let budget = budget_field.as_ref().and_then(|field| field.budget());
    let events = |field: &Field<'_>, amount: Amount, period: Nanos| {
        let (events, _) = counted.as_ref()?;
        in_events(field, amount, period, events)
    };
    let (amount, period) = budget.unzip();
    let total = budget_field
        .as_ref()
        .zip(amount)
        .zip(period)
        .map(|((field, amount), period)| {
            let total = events(field, amount, period);
            check_period(field, period);
            total
        });
    let other = |key: &'static str| {
        let field = table.optional(key);
        let amount = field.as_ref().map(|field| field.amount());
        (field, amount)
    };
    let ((ceiling_field, ceiling), (guarantee_field, guarantee)) =
        (other("up_to"), other("guarantee"));
    let poll_field = table.optional("poll");
    let poll = poll_field.as_ref().map(|field| field.duration());
    if let (Some(field), Some(Some(poll)), Some(period)) = (&poll_field, poll, period) {
        check_poll(field, poll, period);
    }
    let flag = |key: &'static str| {
        table
            .optional(key)
            .map(|field| field.boolean())
            .unwrap_or(Some(false))
    };
    let (trace, exact, reclaims, allowed) = (
        flag("trace"),
        flag("exact"),
        flag("reclaim"),
        flag("allow_untrusted"),
    );
    const ENDS: [(&str, WhenSpent); 4] = [
        ("throttle", WhenSpent::Throttle),
        ("log", WhenSpent::Log),
        ("interrupt", WhenSpent::Interrupt),
        ("stop", WhenSpent::Stop),
    ];
    let when_spent = table
        .optional("when_spent")
        .map(|field| field.one_of("reaction", &ENDS));
    let span = table.span();
    table.finish_ref();

    let (period, total) = (period?, total??);
    let (ceiling, guarantee) = (
        ceiling.map_or(Some(total), |ceiling| {
            events(ceiling_field.as_ref()?, ceiling?, period)
        })?,
        guarantee.map_or(Some(None), |it| {
            Some(Some(events(guarantee_field.as_ref()?, it?, period)?))
        })?,
    );
    if let Some(field) = ceiling_field.filter(|_| ceiling < total) {
        let low = field.error("the budget is above what another VM may set");
        field.push(
            low.label("below `budget`")
                .help("leave it out, or make it at least as much as the budget"),
        );
    }
    let reclaims = reclaims?;
    if let Some(field) = &guarantee_field {
        check_guarantee(field, guarantee.unwrap_or_default(), total, reclaims);
    }
    let (event_fields, (event_path, event_span)) = counted?;
    let allowed = allowed?;
    let [first, second] = [0, 1].map(|at| {
        let (event, weight) = event_fields.get(at)?;
        Some(Counted {
            event: event.id,
            weight: *weight,
            allowed,
        })
    });
    let page_cost = [first, second]
        .into_iter()
        .flatten()
        .try_fold(0, |sum: u64, counted| {
            Some(sum + owner.board?.page_cost(counted.event).0 * u64::from(counted.weight))
        })?;
    let all: u64 = shares.as_ref()?.iter().map(|(_, weight)| weight).sum();
    let default_poll = Nanos((period.0 / POLLS_PER_PERIOD).max(SHORTEST_POLL.0));
    let quota = Quota {
        vcpu: 0,
        counted: first?,
        also: second,
        budget: total,
        ceiling,
        period,
        poll: poll.unwrap_or(Some(default_poll))?,
        backstop: poll_field.is_some(),
        trace: trace?,
        exact: exact? || reclaims || owner.services & services::QUOTA != 0,
        page_cost: Events(page_cost),
        when_spent: when_spent.unwrap_or(Some(WhenSpent::Throttle))?,
        reclaim: reclaims.then(|| Reclaim {
            pool: 0,
            guarantee: guarantee.unwrap_or(Events(total.0.div_ceil(2))),
        }),
    };
    let field = budget_field?;
    let part = |events: Events, weight: u64| {
        Events((u128::from(events.0) * u128::from(weight) / u128::from(all)) as u64)
    };
    let budgeted = |(event, _): &(&Event, u16)| {
        Budgeted::new(table, &event_path, event_span.clone(), event, allowed)
    };
    let mut budgeted: Vec<Budgeted> = event_fields.iter().map(budgeted).collect();
    let one = |&(vcpu, weight): &(u8, u64)| {
        let (budget, ceiling) = (part(total, weight), part(ceiling, weight));
        let reclaim = quota.reclaim.map(|reclaim| {
            let guarantee = Events(part(reclaim.guarantee, weight).0.max(1));
            Reclaim {
                guarantee,
                ..reclaim
            }
        });
        check_budget(&field, budget, ceiling)?;
        let quota = Quota {
            vcpu,
            budget,
            ceiling,
            reclaim,
            ..quota
        };
        let budgeted = std::mem::take(&mut budgeted);
        let (event_path, event_span) = (event_path.clone(), event_span.clone());
        Some(QuotaSpec {
            quota,
            span: span.clone(),
            event_path,
            event_span,
            budgeted,
        })
    };
    shares?.iter().map(one).collect()
}

/// Reads to which vCPUs a budget applies, each with its weight.
fn read_shares(table: &Table<'_>, vcpus: Option<usize>) -> Option<Vec<(u8, u64)>> {
    let (one, split) = (table.optional("vcpu"), table.optional("split"));
    let Some(split) = split else {
        let vcpu = one.as_ref().map_or(Some(0), |field| {
            field.integer_up_to(255, "the number of a vCPU")
        })?;
        if let (Some(field), Some(vcpus)) = (&one, vcpus)
            && vcpu >= vcpus as u64
        {
            field.push(
                field
                    .error(format!("the VM has no vCPU {vcpu}"))
                    .label(format!(
                        "it has {}: 0 to {}",
                        count(vcpus, "vCPU"),
                        vcpus.saturating_sub(1)
                    ))
                    .help("vCPUs count from 0 in the order of `cores`; they are not core numbers"),
            );
            return None;
        }
        return Some(vec![(vcpu as u8, 1)]);
    };
    if let Some(field) = one {
        let both = field.error("the budget is one vCPU's, and also split over all of them");
        field.push(
            both.label("not with `split`")
                .help("leave one of the two out"),
        );
        return None;
    }
    if split.is_string() {
        split.one_of("way to split a budget", &[("even", ())])?;
        return Some((0..vcpus? as u8).map(|vcpu| (vcpu, 1)).collect());
    }
    let elements = split.elements()?;
    let weights = elements
        .iter()
        .map(|element| element.integer_up_to(LARGEST_WEIGHT, "a vCPU's weight"));
    let weights: Vec<u64> = weights.collect::<Option<_>>()?;
    let vcpus = vcpus?;
    if weights.len() != vcpus || weights.contains(&0) {
        let wrong = if weights.contains(&0) {
            "a vCPU gets nothing".to_owned()
        } else {
            format!("{} of {vcpus}", count(weights.len(), "weight"))
        };
        let error = split
            .error("the budget is not split over the VM's vCPUs")
            .label(wrong);
        split.push(error.help(
            "give each vCPU a weight of at least 1, in the order of `cores`; or split = \"even\"",
        ));
        return None;
    }
    Some((0..).zip(weights).collect())
}

/// What a quota counts, each event with its weight; path and position of the field that says so.
type CountedEvents<'a> = (Vec<(&'a Event, u16)>, (String, Range<usize>));

fn read_counted<'a>(table: &Table<'_>, board: Option<&'a BoardFile>) -> Option<CountedEvents<'a>> {
    let Some(field) = table.optional("events") else {
        let field = table.required("event", "name the event: event = \"INST_RETIRED\"")?;
        let events = &board?.events;
        let event = events.by_id(events.resolve(&field)?)?;
        return Some((vec![(event, 1)], (table.path_of("event"), field.span())));
    };
    if let Some(one) = table.optional("event") {
        let both = one.error("the quota counts one event, and also several");
        one.push(
            both.label("not with `events`")
                .help("leave one of the two out"),
        );
    }
    let weights = field.table()?;
    let events = &board?.events;
    let mut counted: Vec<(&Event, u16)> = Vec::new();
    for (name, span, weight) in weights.entries() {
        let wrong = |message: String, label: &str, help: String| {
            field.push(
                weights
                    .error(name, span.clone(), message)
                    .label(label)
                    .help(help),
            );
        };
        let event = match events.find(name) {
            Ok(event) => event,
            Err(help) => {
                wrong(
                    format!("the {} has no event `{name}`", events.cpu),
                    "unknown event",
                    help,
                );
                continue;
            }
        };
        let Some(weight) = weight.integer_up_to(LARGEST_WEIGHT, "what one event costs the budget")
        else {
            continue;
        };
        if weight == 0 {
            wrong(
                format!("{name} costs nothing"),
                "0",
                "give it a weight of at least 1, or leave it out".to_owned(),
            );
        }
        counted.push((event, weight as u16));
    }
    if !(1..=2).contains(&counted.len()) {
        let error = field.error(format!(
            "a budget is one of two events at most, not of {}",
            counted.len()
        ));
        field.push(
            error
                .label("one or two")
                .help("name them with their weights: { L2D_CACHE_REFILL = 1, L2D_CACHE_WB = 1 }"),
        );
        return None;
    }
    Some((counted, (table.path_of("events"), field.span())))
}

/// Returns an amount as events in a period.
fn in_events(
    field: &Field<'_>,
    amount: Amount,
    period: Nanos,
    counted: &[(&Event, u16)],
) -> Option<Events> {
    let rate = match amount {
        Amount::Events(events) => return Some(events),
        Amount::BytesPerSecond(rate) => rate,
    };
    let bytes = |(event, weight): &(&Event, u16)| {
        event
            .bytes
            .map(|bytes| bytes * u32::from(counted[0].1) / u32::from(*weight))
    };
    let each: Option<Vec<u32>> = counted.iter().map(bytes).collect();
    let Some(each) = each else {
        let names: Vec<&str> = counted
            .iter()
            .filter(|(event, _)| event.bytes.is_none())
            .map(|(event, _)| event.name.as_str())
            .collect();
        let error = field.error("a rate needs events that move a known number of bytes");
        field.push(
            error
                .label(format!("{} does not", names.join(", ")))
                .help("write the budget in events; `cloison events show NAME` says how many bytes an event stands for"),
        );
        return None;
    };
    if each.iter().any(|bytes| *bytes != each[0]) {
        let error = field.error("the events move different numbers of bytes for what they cost");
        field.push(
            error
                .label("not a rate of both")
                .help("weigh each event by its bytes, or write the budget in events"),
        );
        return None;
    }
    let unit = u128::from(each[0]) * 1_000_000_000 / u128::from(counted[0].1.max(1));
    Some(Events(
        u64::try_from(u128::from(rate) * u128::from(period.0) / unit.max(1)).unwrap_or(u64::MAX),
    ))
}

fn check_period(field: &Field<'_>, period: Nanos) {
    let (what, bound, change) = match period {
        _ if period < SHORTEST_PERIOD => ("short: the shortest", SHORTEST_PERIOD, "larger"),
        _ if period > LONGEST_PERIOD => ("long: the longest", LONGEST_PERIOD, "smaller"),
        _ => return,
    };
    let message = format!(
        "a period of {} is too {what} is {}",
        show_duration(period),
        show_duration(bound)
    );
    field.push(field.error(message).label("budget").help(format!(
        "make budget and period {change} by the same factor"
    )));
}

/// Checks a vCPU's part of a budget.
fn check_budget(field: &Field<'_>, budget: Events, ceiling: Events) -> Option<()> {
    let (message, help) = if budget.0 == 0 {
        (
            "the budget is zero: the core would never run".to_owned(),
            "allow at least one event",
        )
    } else if ceiling.0 > LARGEST_BUDGET {
        (
            format!(
                "{} events are more than a counter of 32 bits holds, {LARGEST_BUDGET}",
                ceiling.0
            ),
            "make budget and period smaller by the same factor",
        )
    } else {
        return Some(());
    };
    field.push(field.error(message).label("budget").help(help));
    None
}

fn check_guarantee(field: &Field<'_>, guarantee: Events, total: Events, reclaims: bool) {
    let (message, label) = if !reclaims {
        (
            "a guarantee says what a core keeps where unused budgets are shared",
            "without `reclaim = true`",
        )
    } else if guarantee.0 == 0 || guarantee > total {
        (
            "the guarantee is not a part of the budget",
            "none of it, or more",
        )
    } else {
        return;
    };
    let error = field.error(message).label(label);
    field.push(
        error.help("share with reclaim = true, and guarantee between one event and the whole budget, or leave it out"),
    );
}

fn check_poll(field: &Field<'_>, poll: Nanos, period: Nanos) {
    if poll >= period {
        field.push(
            field
                .error("the counter is polled less than once per period")
                .label(format!("{} >= {}", show_duration(poll), show_duration(period)))
                .help(format!(
                    "poll at most every {}, half the period; the default is period / {POLLS_PER_PERIOD}",
                    show_duration(Nanos(period.0 / 2))
                )),
        );
    } else if poll < SHORTEST_POLL {
        field.push(
            field
                .error(format!(
                    "{} between two polls is too short",
                    show_duration(poll)
                ))
                .label(format!("the shortest is {}", show_duration(SHORTEST_POLL)))
                .help("more frequent polls would use up the core's time in the hypervisor"),
        );
    }
}

/// Connects the quotas of all VMs: those that share unused budgets on the same events with the same period have a pool, and
/// those that another VM may set are counted period by period. Returns the number of pools.
pub(crate) fn connect(vms: &mut [Vm]) -> usize {
    let regulated = vms.iter().fold(0, |all, vm| all | vm.regulates);
    let mut pools: Vec<(Vec<(EventId, u16)>, Nanos)> = Vec::new();
    for (index, vm) in vms.iter_mut().enumerate() {
        for quota in &mut vm.quotas {
            quota.exact |= regulated >> index & 1 == 1;
            let key = (
                quota
                    .counted()
                    .map(|counted| (counted.event, counted.weight))
                    .collect(),
                quota.period,
            );
            let Some(reclaim) = &mut quota.reclaim else {
                continue;
            };
            let pool = pools
                .iter()
                .position(|other| *other == key)
                .unwrap_or_else(|| {
                    pools.push(key);
                    pools.len() - 1
                });
            reclaim.pool = pool as u8;
        }
    }
    pools.len()
}

/// Returns the number of event counters that the quotas of a vCPU take.
pub(crate) fn counters(quotas: &[QuotaSpec], vcpu: usize, each: usize) -> usize {
    let own = quotas
        .iter()
        .filter(|spec| usize::from(spec.quota.vcpu) == vcpu);
    own.map(|spec| spec.quota.counted().count() * each).sum()
}

/// Checks that the quotas and HEMs of a core fit in its counters, with one for cycles where a segment `shares` the core with
/// counters of the guest's.
pub(crate) fn check_counters(
    table: &Table<'_>,
    board: &BoardFile,
    quotas: &[QuotaSpec],
    (hems, shares): (&[EventId], bool),
    vcpus: usize,
) {
    let each = board.board.counters_per_event();
    (0..vcpus)
        .for_each(|vcpu| check_masks(table, &board.events, quotas, vcpu, board.counters, each));
    for vcpu in 0..vcpus {
        let bound = quotas
            .iter()
            .rfind(|spec| usize::from(spec.quota.vcpu) == vcpu);
        let of_quotas = counters(quotas, vcpu, 1);
        let needed = of_quotas * each + hems.len() + usize::from(shares);
        if needed <= board.counters as usize {
            continue;
        }
        let why = if each == 2 {
            " (a quota takes 2 for each event where its interrupt needs a shadow counter)"
        } else {
            ""
        };
        let arithmetic = format!(
            "{} x {each} + {}{} = {needed} > {}",
            count(of_quotas, "event") + " of quotas",
            count(hems.len(), "HEM"),
            if shares { " + 1 for their cycles" } else { "" },
            board.counters
        );
        let listed = table
            .optional("hems")
            .or_else(|| table.optional("campaign"));
        let problem = match (listed, bound) {
            (Some(field), _) if !hems.is_empty() => field.error(""),
            (_, Some(spec)) => table.error("quota", spec.span.clone(), ""),
            (_, None) => table.error("quota", table.span(), ""),
        };
        let message = format!(
            "vCPU {vcpu} needs {needed} event counters, its core has {}",
            board.counters
        );
        table.push(
            problem
                .with_message(message)
                .label(arithmetic)
                .help(format!(
                    "remove {}{why}; HEMs can be counted in different runs",
                    count(needed - board.counters as usize, "counter")
                )),
        );
        break;
    }
}

/// Records events of a vCPU's quotas that the counters which they get cannot count: `each` of them for an event, from the
/// highest of `available` down.
fn check_masks(
    table: &Table<'_>,
    events: &EventTable,
    quotas: &[QuotaSpec],
    vcpu: usize,
    available: u32,
    each: usize,
) {
    let own = quotas
        .iter()
        .filter(|spec| usize::from(spec.quota.vcpu) == vcpu);
    let counted = own.flat_map(|spec| {
        spec.quota
            .counted()
            .map(move |counted| (spec, counted.event))
    });
    let counted = counted.flat_map(|pair| std::iter::repeat_n(pair, each));
    for (counter, (spec, event)) in (0..available).rev().zip(counted) {
        let Some(event) = events
            .by_id(event)
            .filter(|event| !event.counters.allows(counter))
        else {
            continue;
        };
        let message = format!(
            "counter {counter} of vCPU {vcpu} cannot count {}",
            event.name
        );
        let help = "quotas get counters in their order, from the highest down: list it elsewhere, or count another event";
        let problem = Problem::error(
            table.file(),
            spec.event_path.clone(),
            spec.event_span.clone(),
            message,
        );
        table.push(
            problem
                .label(format!("only counters {} can", event.counters))
                .help(help),
        );
    }
}

/// Warns of cores that have quotas, but none that bounds the memory traffic of a hostile guest.
pub(crate) fn warn_of_no_bound(
    table: &Table<'_>,
    events: &EventTable,
    quotas: &[QuotaSpec],
    vcpus: usize,
) {
    for vcpu in 0..vcpus {
        let mut own = quotas
            .iter()
            .filter(|spec| usize::from(spec.quota.vcpu) == vcpu);
        let holding = own
            .clone()
            .filter(|spec| matches!(spec.quota.when_spent, WhenSpent::Throttle | WhenSpent::Stop));
        let counted = holding
            .flat_map(|spec| spec.quota.counted())
            .filter_map(|counted| events.by_id(counted.event));
        let counted: Vec<&Event> = counted.collect();
        let bounds: Vec<Bounds> = counted.iter().filter_map(|event| event.bounds).collect();
        let Some(first) = own.next().filter(|_| !Bounds::suffice(&bounds)) else {
            continue;
        };
        let names = counted
            .iter()
            .map(|event| event.name.as_str())
            .collect::<Vec<_>>()
            .join(" and ");
        let label = match bounds.first() {
            _ if names.is_empty() => "its quotas hold nobody".to_owned(),
            None => format!("a guest can reach memory without {names}"),
            Some(Bounds::Reads) => format!("{names} bounds only what the guest reads"),
            Some(_) => format!("{names} bounds only what the guest writes"),
        };
        let advice = match events.bounding_traffic().next() {
            Some(event) => format!(
                "add a quota on {} ({})",
                event.name,
                event.meaning.to_lowercase()
            ),
            None => "add a quota on an event that counts all accesses to the bus".to_owned(),
        };
        table.push(
            Problem::warning(
                table.file(),
                first.event_path.clone(),
                first.event_span.clone(),
                format!("no quota of vCPU {vcpu} bounds the memory traffic of a hostile guest"),
            )
            .label(label)
            .help(format!(
                "{advice}; `cloison events list --cpu {}` says which events do",
                events.cpu
            )),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::table;
    use crate::node::Context;
    use crate::problem::SourceFile;
    use std::path::Path;

    /// The cycles of a CVA6 are counted by counter 0 alone, its retired instructions by counter 2.
    #[test]
    fn a_quota_gets_a_counter_that_can_count_its_event() {
        let cva6 = table("riscv", "cva6");
        let spec = |vcpu: u8, name: &str| {
            let counted = Counted {
                event: cva6.by_name(name).expect("an event").id,
                weight: 1,
                allowed: false,
            };
            let quota = Quota {
                vcpu,
                counted,
                also: None,
                budget: Events(100),
                ceiling: Events(100),
                period: Nanos(1_000_000),
                poll: Nanos(20_000),
                backstop: false,
                trace: false,
                exact: false,
                page_cost: Events(0),
                when_spent: WhenSpent::Throttle,
                reclaim: None,
            };
            QuotaSpec {
                quota,
                span: 0..0,
                event_path: "event".into(),
                event_span: 0..0,
                budgeted: vec![],
            }
        };
        let problems = |quotas: &[QuotaSpec], available, each| -> Vec<String> {
            let context = Context::new(SourceFile::new(Path::new("quotas.toml"), String::new()));
            let document = context.parse().expect("TOML");
            check_masks(&context.root(&document), &cva6, quotas, 0, available, each);
            context
                .into_problems()
                .iter()
                .map(|problem| problem.message().to_owned())
                .collect()
        };
        let (cycles, retired) = (
            |vcpu| spec(vcpu, "riscv_cycles"),
            |vcpu| spec(vcpu, "riscv_instret"),
        );
        assert_eq!(problems(&[retired(0)], 3, 1), [""; 0]);
        assert_eq!(problems(&[cycles(0)], 1, 1), [""; 0]);
        // Another vCPU's quotas are on its own core.
        assert_eq!(problems(&[cycles(1), retired(0)], 3, 1), [""; 0]);
        assert_eq!(
            problems(&[retired(0), cycles(0)], 3, 1),
            ["counter 1 of vCPU 0 cannot count riscv_cycles"]
        );
        assert_eq!(
            problems(&[retired(0)], 3, 2),
            ["counter 1 of vCPU 0 cannot count riscv_instret"]
        );
    }
}
