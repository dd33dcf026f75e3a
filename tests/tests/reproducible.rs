//! The image is the same wherever it is built: another checkout, another CARGO_HOME, another target
//! directory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::setup::core_library::TARGET;
use cloison_engine::{cargo, files, image, installation};
use ignore::WalkBuilder;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[track_caller]
fn succeed(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Returns the SHA-256 of the hypervisor and of every guest, as they are loaded.
fn built(target: &Path) -> BTreeMap<String, String> {
    let directory = target.join(TARGET).join("release");
    let entries = fs::read_dir(&directory)
        .expect("the target directory")
        .flatten()
        .map(|entry| entry.path());
    // Beside each program is the list of its sources; nothing else there has one.
    let programs =
        entries.filter(|path| path.extension().is_none() && path.with_extension("d").is_file());
    let hash = |path: PathBuf| {
        let bytes = image::flatten(&path).expect("an executable").bytes;
        (
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
            files::sha256(&bytes),
        )
    };
    programs.map(hash).collect()
}

/// Copies the checkout without what .gitignore excludes.
fn copy_checkout(to: &Path) {
    let root = installation::root();
    let mut walk = WalkBuilder::new(&root);
    let walk = walk
        .hidden(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git");
    for entry in walk.build().map(|entry| entry.expect("it can be listed")) {
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            let file = to.join(
                entry
                    .path()
                    .strip_prefix(&root)
                    .expect("below the checkout"),
            );
            fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            fs::copy(entry.path(), file).expect("it can be copied");
        }
    }
}

#[test]
fn the_image_does_not_depend_on_where_it_is_built() {
    let root = installation::root();
    succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--bin", "xtask"])
            .current_dir(&root),
    );
    let xtask = installation::target_dir().join("debug/xtask");
    succeed(Command::new(&xtask).arg("build").current_dir(&root));

    let elsewhere = tempfile::tempdir().expect("a scratch directory");
    let path = |name: &str| elsewhere.path().join(name);
    copy_checkout(&path("another checkout"));
    // Another home of cargo, with the sources that this one has downloaded.
    let home = cargo::home().expect("a home of cargo");
    fs::create_dir(path("home of cargo")).expect("a directory");
    for part in ["registry", "config.toml"]
        .iter()
        .filter(|part| home.join(part).exists())
    {
        std::os::unix::fs::symlink(home.join(part), path("home of cargo").join(part))
            .expect("a link");
    }
    let mut build = Command::new(&xtask);
    build
        .arg("build")
        .current_dir(path("another checkout"))
        .env("CARGO_TARGET_DIR", path("its target"));
    build
        .env("CARGO_HOME", path("home of cargo"))
        .env("CARGO_MANIFEST_DIR", path("another checkout/xtask"));
    succeed(build.env("CARGO_NET_OFFLINE", "true"));
    let there = built(&path("its target"));
    assert!(
        there.len() > 20 && there.contains_key("cloison-el2"),
        "{there:?}"
    );
    // Other tests leave programs in this checkout that `build` does not make.
    let mut here = built(&installation::target_dir());
    here.retain(|program, _| there.contains_key(program));
    assert_eq!(there, here);
}
