//! The hello image's log.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::configuration::{draw, places};
use crate::target::{Form, Outcome, Target, root};
use cloison_config::BoardFile;
use cloison_engine::hello::correction::correction;
use cloison_engine::hello::counts;
use cloison_engine::hello::log::read_log;
use cloison_hello::line::sealed;
use std::path::PathBuf;
use std::sync::LazyLock;
use toml_edit::DocumentMut;

/// Logs of the hello image. Each line gets a right checksum: no search finds one.
pub const HELLO: Target = Target {
    name: "hello",
    package: "cloison-engine",
    rule: "each error can be drawn; a wrong field has a place; the corrected board file is TOML",
    form: Form::Text,
    files: &[],
    made: || vec![SEED.as_bytes().to_vec()],
    check,
};

/// Lines of the image, without their checksums.
const SEED: &str = "\
U-Boot 2023.01
hello 0 begin expected=zcu102 found=d12fc743 noted (Cloison 0.1.0, loaded at 0x200000)
hello 1 level expected=2 found=2 right (CurrentEL)
hello 2 cpu expected=cortex-a53 found=0x410fd080 wrong
hello 3 cache.size expected=1048576 found=2097152 wrong (CCSIDR_EL1 of level 2)
hello 4 gic.gich expected=0xf9040000 found=- wrong (nothing answers at 0xf9040000)
hello 5 gic.mediated_timer expected=false found=true wrong
hello 6 ram[0].start expected=0x0 found=0x100000 wrong
hello 7 pmu.irqs[3] expected=178 found=179 wrong
hello 8 psci expected=yes found=- wrong (SMC is undefined: no EL3)
hello 9 event.0x03 expected=- found=nothing:0,load-stream:65536 noted (announced)
hello 10 cores[1] expected=0x1 found=0x100 wrong
hello 11 end expected=11 found=8 noted
";

static BOARD: LazyLock<BoardFile> = LazyLock::new(|| {
    let path: PathBuf = root().join("configs/boards/zcu102.toml");
    BoardFile::load(&path, &root().join("configs")).expect("it is shipped")
});

fn check(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let sealed: Vec<String> = text.lines().map(sealed).collect();
    match read_log(&sealed.join("\n")) {
        Ok(log) => {
            let correction = correction(&BOARD, &log).expect("the board file is TOML");
            places(&correction.problems);
            assert!(is_toml(&correction.text));
            let file = counts::file(&BOARD, &log, |_| true);
            assert!(file.is_none_or(|file| is_toml(&file)));
            Outcome::Accepted
        }
        Err(error) => {
            draw(&error);
            Outcome::Refused
        }
    }
}

/// Whether a text is TOML.
fn is_toml(text: &str) -> bool {
    text.parse::<DocumentMut>().is_ok()
}
