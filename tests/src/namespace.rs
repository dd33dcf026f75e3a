//! Commands that run another one in namespaces: without network, or with mounts for it alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::Command;

/// Returns the first of these commands, such as `unshare --net`, that this user may run. Users,
/// root and containers may run different ones.
pub fn first_allowed(ways: &[&'static str]) -> Option<&'static str> {
    let works = |way: &&str| {
        let tried = command(way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    ways.iter().copied().find(works)
}

/// Returns a command by its words, to which the command to run is added.
///
/// # Panics
///
/// Panics if there is no word.
pub fn command(words: &str) -> Command {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_that_works_is_found() {
        assert_eq!(
            first_allowed(&["no-such-program", "false", "env -i", "env"]),
            Some("env -i")
        );
        assert_eq!(first_allowed(&["false"]), None);
    }
}
