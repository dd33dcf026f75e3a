//! The `[[vm.quota]]` tables: budgets of events, or of bytes per second, per core or shared out
//! over a VM's vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::{self, Field, Given, Presence, Table};
use crate::events::{self, Bounds, CounterSet, Event, EventTable};
use crate::problem::{Problem, count};
use crate::quantity::{Amount, show_duration};
use crate::trust::Budgeted;
use cloison_abi::services;
use cloison_formats::ids::VcpuIndex;
use cloison_formats::image::{Counted, Quota, Reclaim, Vm, WhenSpent, WorkCost};
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
/// More events in a nanosecond than any core makes.
const IMPOSSIBLE_RATE: u64 = 10;
/// Largest weight of an event, and of a vCPU.
const LARGEST_WEIGHT: u64 = 1000;

/// A quota of one vCPU with the positions of its table and of its events.
pub(crate) struct QuotaSpec {
    pub quota: Quota,
    pub span: Range<usize>,
    event_path: String,
    event_span: Range<usize>,
    /// The events; none for a part of a budget whose other parts have them.
    pub budgeted: Vec<Budgeted>,
}

/// The properties of a VM on which all its quotas depend.
pub(crate) struct Owner<'a> {
    /// Number of its vCPUs, if that is right.
    pub vcpus: Option<usize>,
    pub board: Option<&'a BoardFile>,
    /// Its granted services.
    pub services: u32,
}

/// The events of a quota.
struct CountedEvents<'a> {
    /// One or two events.
    events: Vec<WeightedEvent<'a>>,
    /// Path and position of the field that names them.
    path: String,
    span: Range<usize>,
}

/// An event, and what one of it costs the budget.
#[derive(Clone, Copy)]
struct WeightedEvent<'a> {
    event: &'a Event,
    weight: u16,
}

/// A vCPU, and its weight among those that share a budget.
struct Share {
    vcpu: VcpuIndex,
    weight: u64,
}

/// A budget as a table has it: an amount in each period.
struct Budget {
    amount: Amount,
    period: Nanos,
}

/// The budget of all vCPUs of a quota together in a period.
struct Limits<'a> {
    /// The field `budget`.
    field: Field<'a>,
    period: Nanos,
    budget: Events,
    /// The most that another VM may set.
    ceiling: Events,
    /// The part of its budget that a core keeps where unused budgets are shared.
    reclaim: Option<Reclaim>,
}

/// The effect of a spent budget.
const REACTIONS: [(&str, WhenSpent); 4] = [
    ("throttle", WhenSpent::Throttle),
    ("log", WhenSpent::Log),
    ("interrupt", WhenSpent::Interrupt),
    ("stop", WhenSpent::Stop),
];

/// Reads the quotas of a VM: one or more for each table.
pub(crate) fn read(table: &Table<'_>, owner: &Owner<'_>) -> Option<Vec<QuotaSpec>> {
    let tables = table.tables("quota").into_iter();
    let each = document::all(tables.map(|quota| read_one(&quota, owner)))?;
    Some(each.into_iter().flatten().collect())
}

fn read_one(table: &Table<'_>, owner: &Owner<'_>) -> Option<Vec<QuotaSpec>> {
    let shares = read_shares(table, owner.vcpus);
    let counted = read_counted(table, owner.board);
    let help = "say how much per period: budget = \"20000 events / 1 ms\"";
    let budget = table.required_value("budget", help, |field| {
        let (amount, period) = field.budget()?;
        Some(Budget { amount, period })
    });
    let poll = read_poll(table, budget.as_ref().map(|budget| budget.value.period));
    let limits = read_limits(table, budget, counted.as_ref());
    let flag = |key| table.value(key, Field::boolean).or(false);
    let trace = flag("trace");
    let exact = flag("exact");
    let allowed = flag("allow_untrusted");
    let when_spent = table.value("when_spent", |field| field.one_of("reaction", &REACTIONS));
    table.finish_ref();

    let counted = counted?;
    let limits = limits?;
    let allowed = allowed?;
    let trace = trace?;
    if !trace {
        check_is_reached(&limits, &counted.events);
    }
    let [first, second] = [0, 1].map(|at| {
        let WeightedEvent { event, weight } = *counted.events.get(at)?;
        Some(Counted {
            event: event.id,
            weight,
            allowed,
        })
    });
    let default_poll = Nanos((limits.period.0 / POLLS_PER_PERIOD).max(SHORTEST_POLL.0));
    let whole = Quota {
        vcpu: VcpuIndex(0),
        counted: first?,
        also: second,
        budget: limits.budget,
        ceiling: limits.ceiling,
        period: limits.period,
        backstop: poll.given().is_some(),
        poll: poll.or(default_poll)?,
        trace,
        exact: exact? || limits.reclaim.is_some() || owner.services & services::QUOTA != 0,
        work_cost: work_cost(owner.board?, &counted.events),
        when_spent: when_spent.or(WhenSpent::Throttle)?,
        reclaim: limits.reclaim,
    };
    let budgeted = |counted_event: &WeightedEvent<'_>| {
        let (path, span) = (&counted.path, counted.span.clone());
        Budgeted::new(table, path, span, counted_event.event, allowed)
    };
    let mut budgeted: Vec<Budgeted> = counted.events.iter().map(budgeted).collect();
    let shares = shares?;
    let weights = shares.iter().map(|share| share.weight).sum();
    // The parts are of one field: the first that is wrong stands for all.
    let parts = shares.iter().map(|share| {
        let quota = part(&whole, share, weights);
        check_budget(&limits.field, quota.budget, quota.ceiling)?;
        Some(QuotaSpec {
            quota,
            span: table.span(),
            event_path: counted.path.clone(),
            event_span: counted.span.clone(),
            budgeted: std::mem::take(&mut budgeted),
        })
    });
    parts.collect()
}

/// Reads what may be counted in a period.
fn read_limits<'a>(
    table: &Table<'a>,
    budget: Option<Given<'a, Budget>>,
    counted: Option<&CountedEvents<'_>>,
) -> Option<Limits<'a>> {
    let ceiling = table.value("up_to", Field::amount);
    let guarantee = table.value("guarantee", Field::amount);
    let reclaims = table.value("reclaim", Field::boolean).or(false);
    let Given { field, value } = budget?;
    let Budget { amount, period } = value;
    check_period(&field, period);
    let counted = &counted?.events;
    let events = |field: &Field<'_>, amount| in_events(field, amount, period, counted);
    let budget = events(&field, amount)?;
    let ceiling = ceiling.and_then(events);
    let guarantee = guarantee.and_then(events);
    if let Some(low) = ceiling.given().filter(|ceiling| ceiling.value < budget) {
        let error = low
            .field
            .error("the budget is above what another VM may set")
            .label("below `budget`");
        table.push(error.help("leave it out, or make it at least as much as the budget"));
    }
    let reclaims = reclaims?;
    if let Some(guarantee) = guarantee.given() {
        check_guarantee(guarantee, budget, reclaims);
    }
    let guarantee = guarantee.or(Events(budget.0.div_ceil(2)))?;
    Some(Limits {
        field,
        period,
        budget,
        ceiling: ceiling.or(budget)?,
        reclaim: reclaims.then_some(Reclaim { pool: 0, guarantee }),
    })
}

/// Warns of a budget that no core can spend. One that is traced is a way to count.
fn check_is_reached(limits: &Limits<'_>, events: &[WeightedEvent<'_>]) {
    let weight = events.iter().map(|event| u64::from(event.weight)).max();
    let most = limits.period.0 * IMPOSSIBLE_RATE * weight.unwrap_or(1);
    if limits.budget.0 > most {
        let field = &limits.field;
        field.push(
            field
                .warning("no core can spend this budget")
                .label(format!(
                    "{} in each nanosecond",
                    count((limits.budget.0 / limits.period.0) as usize, "event")
                ))
                .help("it limits nothing; give less, or trace = true if it is there to count"),
        );
    }
}

/// Returns what the hypervisor's work for a guest costs a budget of these events.
fn work_cost(board: &BoardFile, events: &[WeightedEvent<'_>]) -> WorkCost {
    let mut sum = WorkCost::default();
    for WeightedEvent { event, weight } in events {
        let cost = board.work_cost(event.id);
        sum.page.0 += cost.page.0 * u64::from(*weight);
        sum.step.0 += cost.step.0 * u64::from(*weight);
    }
    sum
}

/// Returns the part of a quota that a vCPU has, of all `weights` together.
fn part(whole: &Quota, share: &Share, weights: u64) -> Quota {
    let part = |events: Events| {
        Events((u128::from(events.0) * u128::from(share.weight) / u128::from(weights)) as u64)
    };
    Quota {
        vcpu: share.vcpu,
        budget: part(whole.budget),
        ceiling: part(whole.ceiling),
        reclaim: whole.reclaim.map(|reclaim| Reclaim {
            guarantee: Events(part(reclaim.guarantee).0.max(1)),
            ..reclaim
        }),
        ..*whole
    }
}

/// Reads to which vCPUs a budget applies, each with its weight.
fn read_shares(table: &Table<'_>, vcpus: Option<usize>) -> Option<Vec<Share>> {
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
        let vcpu = VcpuIndex(vcpu as u8);
        return Some(vec![Share { vcpu, weight: 1 }]);
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
        return Some(
            self::vcpus(vcpus?)
                .map(|vcpu| Share { vcpu, weight: 1 })
                .collect(),
        );
    }
    let weights = split.each(|element| element.integer_up_to(LARGEST_WEIGHT, "a vCPU's weight"))?;
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
    let shares = self::vcpus(vcpus).zip(weights);
    Some(
        shares
            .map(|(vcpu, weight)| Share { vcpu, weight })
            .collect(),
    )
}

fn read_counted<'a>(table: &Table<'_>, board: Option<&'a BoardFile>) -> Option<CountedEvents<'a>> {
    let Some(field) = table.optional("events") else {
        let field = table.required("event", "name the event: event = \"INST_RETIRED\"")?;
        let events = &board?.events;
        let event = events.by_id(events::resolve(events, &field)?)?;
        return Some(CountedEvents {
            events: vec![WeightedEvent { event, weight: 1 }],
            path: table.path_of("event"),
            span: field.span(),
        });
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
    let entries = weights.entries();
    if !(1..=2).contains(&entries.len()) {
        let error = field.error(format!(
            "a budget is one of two events at most, not of {}",
            entries.len()
        ));
        field.push(
            error
                .label("one or two")
                .help("name them with their weights: { L2D_CACHE_REFILL = 1, L2D_CACHE_WB = 1 }"),
        );
        return None;
    }
    let counted = document::all(entries.into_iter().map(|(name, span, weight)| {
        let event = events::find(events, name).map_err(|help| {
            let message = format!("the {} has no event `{name}`", events.cpu);
            let error = weights.error(name, span, message).label("unknown event");
            field.push(error.help(help));
        });
        let weight = weight.integer_in(
            1..=LARGEST_WEIGHT,
            "1 to 1000, what one event costs the budget",
        );
        let event = event.ok()?;
        let weight = weight? as u16;
        Some(WeightedEvent { event, weight })
    }))?;
    Some(CountedEvents {
        events: counted,
        path: table.path_of("events"),
        span: field.span(),
    })
}

/// Returns an amount as events in a period.
fn in_events(
    field: &Field<'_>,
    amount: Amount,
    period: Nanos,
    counted: &[WeightedEvent<'_>],
) -> Option<Events> {
    let rate = match amount {
        Amount::Events(events) => return Some(events),
        Amount::BytesPerSecond(rate) => rate,
    };
    let first = u32::from(counted.first()?.weight);
    let bytes = |counted: &WeightedEvent<'_>| {
        let bytes = counted.event.bytes?;
        Some(bytes * first / u32::from(counted.weight))
    };
    let each: Option<Vec<u32>> = counted.iter().map(bytes).collect();
    let Some(each) = each else {
        let names: Vec<&str> = counted
            .iter()
            .map(|counted| counted.event)
            .filter(|event| event.bytes.is_none())
            .map(|event| event.name.as_str())
            .collect();
        let error = field.error("a rate needs events that move a known number of bytes");
        field.push(error.label(format!("{} does not", names.join(", "))).help(
            "write the budget in events; `cloison events show NAME` says how many bytes an event \
             stands for",
        ));
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
    let unit = u128::from(each[0]) * 1_000_000_000 / u128::from(first);
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

fn check_guarantee(guarantee: &Given<'_, Events>, budget: Events, reclaims: bool) {
    let (message, label) = if !reclaims {
        (
            "a guarantee says what a core keeps where unused budgets are shared",
            "without `reclaim = true`",
        )
    } else if guarantee.value.0 == 0 || guarantee.value > budget {
        (
            "the guarantee is not a part of the budget",
            "none of it, or more",
        )
    } else {
        return;
    };
    let error = guarantee.field.error(message).label(label);
    guarantee.field.push(error.help(
        "share with reclaim = true, and guarantee between one event and the whole budget, or \
         leave it out",
    ));
}

/// Reads how often the counter is polled.
fn read_poll<'a>(table: &Table<'a>, period: Option<Nanos>) -> Presence<'a, Nanos> {
    let poll = table.value("poll", Field::duration);
    if let (Some(poll), Some(period)) = (poll.given(), period) {
        check_poll(&poll.field, poll.value, period);
    }
    poll
}

fn check_poll(field: &Field<'_>, poll: Nanos, period: Nanos) {
    if poll >= period {
        field.push(
            field
                .error("the counter is polled less than once per period")
                .label(format!(
                    "{} >= {}",
                    show_duration(poll),
                    show_duration(period)
                ))
                .help(format!(
                    "poll at most every {}, half the period; the default is period / \
                     {POLLS_PER_PERIOD}",
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

/// Connects the quotas of all VMs. Quotas that share unused budgets on the same events with the
/// same period get a pool. Quotas that another VM may set are counted period by period. Returns the
/// number of pools.
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

/// Iterates over the vCPUs of a VM that has this many.
pub(crate) fn vcpus(count: usize) -> impl Iterator<Item = VcpuIndex> {
    (0..count).map(|vcpu| VcpuIndex(vcpu as u8))
}

/// Returns the number of event counters that the quotas of a vCPU take.
pub(crate) fn counters(quotas: &[QuotaSpec], vcpu: VcpuIndex, each: usize) -> usize {
    let own = quotas.iter().filter(|spec| spec.quota.vcpu == vcpu);
    own.map(|spec| spec.quota.counted().count() * each).sum()
}

/// The counters that the observation segments of a VM take on each core.
pub(crate) struct SegmentCounters<'a> {
    /// The events of the segments with the most of them.
    pub hems: &'a [EventId],
    /// Whether one more counts cycles, because the guest has the cycle counter.
    pub counts_cycles: bool,
}

impl SegmentCounters<'_> {
    /// Returns how many these are.
    pub fn count(&self) -> usize {
        self.hems.len() + usize::from(self.counts_cycles)
    }
}

/// Checks that the quotas and segments of a core fit in its counters.
pub(crate) fn check_counters(
    table: &Table<'_>,
    board: &BoardFile,
    quotas: &[QuotaSpec],
    segments: &SegmentCounters<'_>,
    vcpus: usize,
) {
    let each = board.board.counters_per_event();
    self::vcpus(vcpus)
        .for_each(|vcpu| check_masks(table, &board.events, quotas, vcpu, board.counters, each));
    for vcpu in self::vcpus(vcpus) {
        let bound = quotas.iter().rfind(|spec| spec.quota.vcpu == vcpu);
        let of_quotas = counters(quotas, vcpu, 1);
        let needed = of_quotas * each + segments.count();
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
            count(segments.hems.len(), "HEM"),
            if segments.counts_cycles {
                " + 1 for their cycles"
            } else {
                ""
            },
            board.counters
        );
        let listed = table
            .optional("hems")
            .or_else(|| table.optional("campaign"));
        let problem = match (listed, bound) {
            (Some(field), _) if !segments.hems.is_empty() => field.error(""),
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

/// Records events of a vCPU's quotas that the counters which they get cannot count: `each` of them
/// for an event, from the highest of `available` down.
fn check_masks(
    table: &Table<'_>,
    events: &EventTable,
    quotas: &[QuotaSpec],
    vcpu: VcpuIndex,
    available: u32,
    each: usize,
) {
    let own = quotas.iter().filter(|spec| spec.quota.vcpu == vcpu);
    let counted = own.flat_map(|spec| {
        spec.quota
            .counted()
            .map(move |counted| (spec, counted.event))
    });
    let counted = counted.flat_map(|pair| std::iter::repeat_n(pair, each));
    for (counter, (spec, event)) in CounterSet::lowest(available).counters().rev().zip(counted) {
        let Some(event) = events
            .by_id(event)
            .filter(|event| !event.counters.contains(counter))
        else {
            continue;
        };
        let message = format!(
            "counter {counter} of vCPU {vcpu} cannot count {}",
            event.name
        );
        let help = "quotas get counters in their order, from the highest down: list it elsewhere, \
                    or count another event";
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

/// Warns of cores that have quotas, but none that bounds a hostile guest's memory traffic.
pub(crate) fn warn_of_no_bound(
    table: &Table<'_>,
    events: &EventTable,
    quotas: &[QuotaSpec],
    vcpus: usize,
) {
    for vcpu in self::vcpus(vcpus) {
        let mut own = quotas.iter().filter(|spec| spec.quota.vcpu == vcpu);
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
    use crate::document::Context;
    use crate::events::tests::table;
    use crate::problem::SourceFile;
    use std::path::Path;

    /// The cycles of a CVA6 are counted by counter 0 alone, its retired instructions by counter 2.
    #[test]
    fn a_quota_gets_a_counter_that_can_count_its_event() {
        let cva6 = table("riscv", "cva6");
        let spec = |vcpu: VcpuIndex, name: &str| {
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
                work_cost: WorkCost::default(),
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
            check_masks(
                &context.root(&document),
                &cva6,
                quotas,
                VcpuIndex(0),
                available,
                each,
            );
            context
                .into_problems()
                .iter()
                .map(|problem| problem.message().to_owned())
                .collect()
        };
        let (cycles, retired) = (
            |vcpu| spec(VcpuIndex(vcpu), "riscv_cycles"),
            |vcpu| spec(VcpuIndex(vcpu), "riscv_instret"),
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
