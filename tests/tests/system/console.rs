//! The console: nobody waits for another's output, and no guest deceives the user of another.

use cloison_tests::{BOTH, Clock, config, load, run};
use miette::Result;

#[test]
fn only_the_vm_with_the_input_moves_the_terminals_cursor() -> Result<()> {
    const LINES: u64 = 20;
    for board in BOTH {
        let mut checked = load(&config("flood"), board)?;
        checked.system.ends_with = None;
        // The first VM has the input.
        checked.system.vms.remove(0);
        checked.images.remove(0);
        checked.system.vms.iter_mut().for_each(|vm| vm.args = [LINES, 10, 0, 0]);
        let run = run(&checked, board, Clock::Counted)?.whole();
        for line in 1..=LINES {
            let raw = format!("flood {line} \x1b[6nthe quick !\x08");
            let shown = format!("flood {line} \\x1b[6nthe quick !\\x08");
            run.line("flood-1", &raw);
            run.line("flood-2", &shown);
            run.line("flood-3", &shown);
        }
    }
    Ok(())
}
