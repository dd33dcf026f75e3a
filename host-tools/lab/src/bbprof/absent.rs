//! Profiles that a configuration names and that do not exist yet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::overrides::Value;
use cloison_engine::files;
use std::path::{Path, PathBuf};
use toml::value::Table;

/// A profile that does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The VM whose pages it would rank.
    pub vm: String,
    /// Where it would be.
    pub file: PathBuf,
}

/// Returns the profiles that a configuration names and that do not exist; none if the configuration
/// cannot be read.
pub fn of(config: &Path) -> Vec<Absent> {
    let mut system = read(config);
    let vms = system.as_mut().map(tables).unwrap_or_default();
    let absent = vms.into_iter().filter_map(|vm| {
        let file = file_of(vm, config).filter(|file| !file.exists())?;
        let vm = vm.get("name")?.as_str()?.to_owned();
        Some(Absent { vm, file })
    });
    absent.collect()
}

/// Returns the profiles that a configuration names, whether they exist or not; none if it cannot be
/// read.
pub fn named_by(config: &Path) -> Vec<PathBuf> {
    let mut system = read(config);
    let vms = system.as_mut().map(tables).unwrap_or_default();
    vms.into_iter()
        .filter_map(|vm| file_of(vm, config))
        .collect()
}

/// Returns the text of a configuration without the profiles that do not exist: the pages of their
/// VMs move to the same pools, but only when asked to. None if all of them exist.
pub fn left_out(config: &Path) -> Option<String> {
    let mut system = read(config)?;
    let mut is_any = false;
    for vm in tables(&mut system) {
        if file_of(vm, config).is_none_or(|file| file.exists()) {
            continue;
        }
        let profile = vm.remove("profile")?;
        vm.insert("migrate_to".to_owned(), profile.get("pool")?.clone());
        // The number of private pages cannot change without one.
        vm.remove("tune");
        is_any = true;
    }
    is_any.then(|| toml::to_string_pretty(&system).ok())?
}

fn read(config: &Path) -> Option<Value> {
    let text = files::read_text(config, files::CONFIGURATION).ok()?;
    toml::from_str(&text).ok()
}

/// Returns the VMs of a configuration.
fn tables(system: &mut Value) -> Vec<&mut Table> {
    let vms = system.get_mut("vm").and_then(Value::as_array_mut);
    let vms = vms.into_iter().flatten();
    vms.filter_map(Value::as_table_mut).collect()
}

/// Returns the file of a VM's profile.
fn file_of(vm: &Table, config: &Path) -> Option<PathBuf> {
    let file = vm.get("profile")?.get("file")?.as_str()?;
    Some(config.parent().unwrap_or(Path::new(".")).join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_profiles_that_do_not_exist_are_left_out() {
        let scratch = tempfile::tempdir().expect("a directory");
        let config = scratch.path().join("c.toml");
        let text = "[[vm]]\nname = 'a'\ntune = ['pages']\nprofile = { file = 'p.toml', pool = \
                    'pvt' }\n[[vm]]\nname = 'b'\ntune = ['pages']\n[[vm]]\nname = 'c'\nprofile = \
                    { file = 'q.toml', pool = 'pvt' }\n";
        std::fs::write(&config, text).expect("a file");
        let file = |name: &str| scratch.path().join(name);
        let absent = |vm: &str, name: &str| Absent {
            vm: vm.to_owned(),
            file: file(name),
        };
        assert_eq!(of(&config), [absent("a", "p.toml"), absent("c", "q.toml")]);

        std::fs::write(file("q.toml"), "").expect("a file");
        assert_eq!(of(&config), [absent("a", "p.toml")]);
        let system = left_out(&config).expect("one does not exist");
        let system: Table = system.parse().expect("TOML");
        assert_eq!(system["vm"][0].get("profile"), None);
        assert_eq!(system["vm"][0].get("tune"), None);
        assert_eq!(system["vm"][0]["migrate_to"].as_str(), Some("pvt"));
        assert!(system["vm"][1].get("tune").is_some());
        assert!(system["vm"][2].get("profile").is_some());

        std::fs::write(file("p.toml"), "").expect("a file");
        assert_eq!((of(&config), left_out(&config)), (vec![], None));
    }
}
