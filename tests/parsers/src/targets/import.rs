//! Configurations of other hypervisors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::configuration::{refused, shipped};
use crate::scratch;
use crate::target::{Files, Form, Outcome, Target as Parser, root};
use cloison_config::{BoardFile, files, guest_map, load_text};
use cloison_formats::guest_map::GuestMap;
use cloison_import::{Options, Target, import};
use std::sync::LazyLock;

/// Bao, Jailhouse, hvisor, Xen and ImageBuilder: a file's text says which.
pub const IMPORT: Parser = Parser {
    name: "import",
    package: "cloison-import",
    rule: "each error has a place and can be drawn; what is written is read again with the same verdict",
    form: Form::Text,
    files: &[
        Files {
            folder: "host-tools/import/tests/files",
            end: ".c",
        },
        Files {
            folder: "host-tools/import/tests/files",
            end: ".json",
        },
        Files {
            folder: "host-tools/import/tests/files",
            end: ".dts",
        },
        Files {
            folder: "host-tools/import/tests/files",
            end: ".sh",
        },
    ],
    made: || vec![],
    check,
};

static BOARDS: LazyLock<Vec<BoardFile>> = LazyLock::new(|| {
    let configs = root().join("configs");
    let boards = configs.join("boards");
    let names = files::available(&boards);
    let board =
        |name: &String| BoardFile::load(&boards.join(format!("{name}.toml")), &configs).ok();
    names.iter().filter_map(board).collect()
});

static MAPS: LazyLock<Vec<(String, GuestMap)>> =
    LazyLock::new(|| guest_map::all(&root().join("configs")).unwrap_or_default());

fn check(input: &[u8]) -> Outcome {
    let path = scratch::file("import/system.c", input);
    let configs = root().join("configs");
    let base = path.parent().map(ToOwned::to_owned).unwrap_or_default();
    let options = Options {
        stand_in: Some("heartbeat".into()),
        base: base.clone(),
        ..Options::default()
    };
    let written = base.join("imported.toml");
    let checked = |text| load_text(&written, text, None, &shipped(&configs));
    let target = Target {
        boards: &BOARDS,
        default: "virt",
        maps: &MAPS,
        check: &checked,
    };
    match import(&[path], &options, &target) {
        Ok(imported) => {
            let again = checked(imported.text);
            assert_eq!(again.is_ok(), imported.checked.is_ok());
            if let Err(errors) = again {
                refused(&errors);
            }
            Outcome::Accepted
        }
        Err(errors) => {
            refused(&errors);
            Outcome::Refused
        }
    }
}
