//! Cloison's own calls (`cloison_abi::Call`), granted per VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::exits::psci;
use crate::machine::stage2::Cacheability;
use crate::vm::cpu::Cpu;
use crate::vm::guest_registers::GuestRegisters;
use crate::vm::migrate::{self, Work};
use crate::vm::partition::{self, Vm};
use crate::vm::{hem, interrupts, life, quota, vpmu};
use cloison_abi::reply::{Change, Identity, Lease, Moved, Time, VmInfo};
use cloison_abi::{ABI_VERSION, Call, CallError, SMCCC_VERSION};
use cloison_formats::addr::Ipa;
use cloison_formats::units::Events;
use cloison_logic::segment::Names;
use cloison_logic::services_page::Request;

/// SMC Calling Convention: "unknown function".
const UNKNOWN: u64 = -1i64 as u64;

/// Handles an HVC or SMC.
pub fn dispatch(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters) {
    let function = registers.x[0] as u32;
    if function == Call::Identify as u32 {
        registers.x[..4].copy_from_slice(&<[u64; 4]>::from(identify(cpu, vm)));
        return;
    }
    if let Some(result) = psci::call(
        cpu,
        vm,
        function,
        [registers.x[1], registers.x[2], registers.x[3]],
    ) {
        registers.x[0] = result as u64;
        return;
    }
    rare(cpu, vm, registers, function);
}

fn identify(cpu: &Cpu, vm: &Vm) -> Identity {
    Identity {
        version: ABI_VERSION,
        services: vm.spec.services,
        vm: vm.id.into(),
        vcpu: cpu.vcpu as u64,
    }
}

#[inline(never)]
fn rare(cpu: &'static Cpu, vm: &'static Vm, registers: &mut GuestRegisters, function: u32) {
    if function == SMCCC_VERSION {
        // 1.1.
        registers.x[0] = 0x1_0001;
        return;
    }
    let results = vendor(
        cpu,
        vm,
        function,
        [registers.x[1], registers.x[2], registers.x[3]],
    );
    registers.x[..4].copy_from_slice(&results);
}

/// Executes one of Cloison's calls, by HVC or through the services page. Returns `x0` to `x3`.
fn vendor(cpu: &'static Cpu, vm: &'static Vm, function: u32, arguments: [u64; 3]) -> [u64; 4] {
    let [x1, x2, x3] = arguments;
    match Call::from_id(function) {
        None => [UNKNOWN, x1, x2, x3],
        Some(Call::Identify) => identify(cpu, vm).into(),
        Some(call) => {
            let work = Work {
                cpu,
                vm,
                pause: &|pages| interrupts::pause(cpu, pages),
            };
            let result = match call {
                _ if !call.is_granted(vm.spec.services) => Err((CallError::Denied, x1)),
                Call::MovePages | Call::ReturnPages | Call::CachePages => work
                    .listed(call, arguments)
                    .map(|pages| Moved { pages }.into()),
                _ => serve(cpu, vm, work, call, arguments).map_err(|error| (error, x1)),
            };
            // The call may have spent a budget.
            life::hold(cpu);
            match result {
                Ok([x1, x2, x3]) => [0, x1, x2, x3],
                Err((error, x1)) => [error as i64 as u64, x1, x2, x3],
            }
        }
    }
}

/// Reads a register of the services page.
pub fn page_read(cpu: &Cpu, vm: &Vm, offset: u16) -> u64 {
    vm.mailbox.lock().read(offset, identify(cpu, vm))
}

/// Writes a register of the services page, and makes the call if it is the call register. The lock is not held
/// meanwhile, so another vCPU that reads does not wait for a migration.
pub fn page_write(cpu: &'static Cpu, vm: &'static Vm, offset: u16, value: u64) {
    let request = vm.mailbox.lock().write(offset, value);
    if let Some(Request {
        function,
        arguments,
    }) = request
    {
        let results = vendor(cpu, vm, function, arguments);
        vm.mailbox.lock().answer(results);
    }
}

fn serve(
    cpu: &Cpu,
    vm: &Vm,
    work: Work,
    call: Call,
    [x1, x2, x3]: [u64; 3],
) -> Result<[u64; 3], CallError> {
    let word = |value: u64| u32::try_from(value).map_err(|_| CallError::Invalid);
    let names = || {
        Ok(Names {
            workload: word(x1)?,
            sub_experiment: word(x2)?,
            run: word(x3)?,
        })
    };
    let moved = |pages: u64| Moved { pages }.into();
    let other = || {
        usize::try_from(x1)
            .ok()
            .and_then(|index| partition::all().get(index))
            .ok_or(CallError::Absent)
    };
    let may_manage = |other: &Vm| vm.spec.manages >> other.id & 1 == 1;
    let regulated = || {
        other().and_then(|other| match vm.spec.regulates >> other.id & 1 {
            1 => Ok(other),
            _ => Err(CallError::Denied),
        })
    };
    match call {
        Call::Identify => Err(CallError::NotSupported),
        Call::Time => Ok(Time {
            nanos: cpu.clock.since_reset(timer::now()).0,
        }
        .into()),
        Call::Region => partition::region(vm, x1).map(Into::into),
        Call::PageState => migrate::page_state(vm, Ipa(x1)).map(Into::into),
        Call::SegmentBegin => hem::begin(cpu, vm, names()?).map(|()| [0; 3]),
        Call::SegmentEnd => hem::end(cpu, vm).map(Into::into),
        Call::HemRead => hem::read(cpu, vm, x1).map(Into::into),
        Call::Migrate => work.top(x1).map(moved),
        Call::Restore => work.restore_all().map(moved),
        Call::MigratePage => work.one(Ipa(x1)).map(|()| moved(1)),
        Call::PrivatePool => migrate::private_pool(vm).map(Into::into),
        Call::Lease => work.lease(x1, x2).map(|number| Lease { number }.into()),
        Call::SetCacheability => {
            let wanted = Cacheability::ALL
                .get(x3 as usize)
                .ok_or(CallError::Invalid)?;
            work.set_cacheability(Ipa(x1), x2, *wanted).map(|()| [0; 3])
        }
        Call::QuotaRead => quota::read(cpu, x1).map(Into::into),
        Call::QuotaSet => quota::set(cpu, x1, Events(x2)).map(|()| [0; 3]),
        Call::QuotaTerms => quota::terms(cpu, x1).map(Into::into),
        Call::VmRead => {
            let other = other()?;
            Ok(VmInfo::new(&other.spec.name, other.power.life(), may_manage(other)).into())
        }
        Call::VmOrder => {
            let other = other()?;
            let change = Change::from_number(x2).ok_or(CallError::Invalid)?;
            if !may_manage(other) {
                return Err(CallError::Denied);
            }
            other.order(change).map(|()| [0; 3])
        }
        Call::BudgetRead => quota::budget(regulated()?, x2).map(Into::into),
        Call::BudgetSet => quota::set_budget(regulated()?, x2, Events(x3)).map(|()| [0; 3]),
        Call::CounterRecord => {
            hem::record_of_guest(cpu, vm, names()?);
            Ok([0; 3])
        }
        _ => vpmu::serve(cpu, call, [x1, x2, x3]),
    }
}
