//! The event table of each CPU: `mapfile.csv`, in the format of perf's pmu-events.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Context;
use crate::files;
use crate::problem::{Problem, SourceFile};
use std::path::Path;

/// The identification of a CPU, which selects its event table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuId(u64);

impl CpuId {
    /// Returns the identification of an Arm CPU with this MIDR_EL1: all its variants and revisions
    /// count the same.
    pub const fn arm(midr: u32) -> Self {
        Self((midr & !0x00f0_000f) as u64)
    }

    /// Returns it as a map file has it: of an Arm CPU, MIDR_EL1 without variant and revision.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the identification of a RISC-V CPU: the lower 24 bits of `marchid`, then the lower 8
    /// bits of `mimpid` (RISC-V paper, figure 4).
    pub const fn riscv(marchid: u64, mimpid: u64) -> Self {
        Self((marchid & 0xff_ffff) << 8 | mimpid & 0xff)
    }
}

/// The lines of a map file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMap(Vec<(CpuId, String)>);

impl CpuMap {
    /// Returns the folder of a CPU's event table, next to the map file.
    pub fn folder(&self, cpu: CpuId) -> Option<&str> {
        self.0
            .iter()
            .find(|(id, _)| *id == cpu)
            .map(|(_, folder)| folder.as_str())
    }

    /// Returns each CPU with its folder, in the order of the file.
    pub fn cpus(&self) -> impl Iterator<Item = (CpuId, &str)> {
        self.0.iter().map(|(id, folder)| (*id, folder.as_str()))
    }

    /// Returns all folders, in the order of the file.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, folder)| folder.as_str())
    }

    /// Reads a map file. Returns its problems too; lines with one are left out.
    pub fn load(path: &Path) -> (Self, Vec<Problem>) {
        let text = files::read_text(path, files::CONFIGURATION);
        let context = Context::new(SourceFile::new(
            path,
            text.as_deref().unwrap_or_default().to_owned(),
        ));
        if let Err(error) = text {
            let message = format!("cannot read {}: {error}", context.file.name());
            context.push(Problem::error(&context.file, "file", 0..0, message));
        }
        (Self::read(&context), context.into_problems())
    }

    fn read(context: &Context) -> Self {
        let mut map = Self::default();
        let mut start = 0;
        for (number, line) in (1..).zip(context.file.text().split_inclusive('\n')) {
            let span = start..start + line.trim_end().len();
            start += line.len();
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |field: &str, message: String| {
                let error = Problem::error(
                    &context.file,
                    format!("line {number}{field}"),
                    span.clone(),
                    message,
                );
                context.push(
                    error
                        .label("this line")
                        .help("a line has four columns: 0x00000000410fd030,v1,cortex-a53,core"),
                );
            };
            let columns: Vec<&str> = line.trim().split(',').map(str::trim).collect();
            let [id, _version, folder, kind] = columns[..] else {
                error("", format!("{} columns instead of four", columns.len()));
                continue;
            };
            let digits = id
                .strip_prefix("0x")
                .filter(|digits| !digits.starts_with('+'));
            let Some(Ok(id)) = digits.map(|digits| u64::from_str_radix(digits, 16)) else {
                error(", column 1", format!("`{id}` does not identify a CPU"));
                continue;
            };
            if folder.is_empty()
                || folder
                    .split('/')
                    .any(|part| part.is_empty() || part == "..")
            {
                error(
                    ", column 3",
                    format!("`{folder}` is not a folder next to the map file"),
                );
            } else if map.folder(CpuId(id)).is_some() {
                error(", column 1", format!("{id:#x} has a table already"));
            } else if kind == "core" {
                map.0.push((CpuId(id), folder.to_owned()));
            }
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (CpuMap, Vec<String>) {
        let context = Context::new(SourceFile::new(Path::new("mapfile.csv"), text.to_owned()));
        let map = CpuMap::read(&context);
        (
            map,
            context
                .into_problems()
                .iter()
                .map(|it| format!("{}: {}", it.field(), it.message()))
                .collect(),
        )
    }

    #[test]
    fn the_papers_examples_are_found() {
        let (map, problems) = read(
            "# CPU ID,File Vers.,Events Filename,Events Type\n0x300,0,CVA6,core\n\
             0x500,0,SPIKE,core\n0x200,0,BOOM,core\n",
        );
        assert_eq!(problems, [""; 0]);
        let found = [(3, 0), (5, 0), (2, 0), (3, 1)]
            .map(|(arch, implementation)| map.folder(CpuId::riscv(arch, implementation)));
        assert_eq!(found, [Some("CVA6"), Some("SPIKE"), Some("BOOM"), None]);
        assert_eq!(
            map.folder(CpuId::riscv(0x8000_0000_0000_0003, 0xff00)),
            Some("CVA6"),
            "only the lower bits count"
        );
    }

    #[test]
    fn variants_and_revisions_of_an_arm_cpu_share_a_table() {
        let (map, _) =
            read("0x00000000410fd030,v1,cortex-a53,core\n0x00000000410fd0ff,v1,l3,uncore\n");
        assert_eq!(map.folder(CpuId::arm(0x410f_d034)), Some("cortex-a53"));
        assert_eq!(map.folder(CpuId::arm(0x413f_d030)), Some("cortex-a53"));
        assert_eq!(map.folder(CpuId::arm(0x410f_d080)), None);
        assert_eq!(
            map.folders().collect::<Vec<_>>(),
            ["cortex-a53"],
            "tables of cores only"
        );
    }

    #[test]
    fn bad_lines_are_named() {
        let (map, problems) = read(
            "0x1,v1,a\n\n0xg,v1,a,core\n1,v1,a,core\n0x1,v1,../a,core\n0x1,v1,a,core\n\
             0x1,v1,b,core\n",
        );
        let places: Vec<&str> = problems
            .iter()
            .filter_map(|problem| problem.split(':').next())
            .collect();
        assert_eq!(
            places,
            [
                "line 1",
                "line 3, column 1",
                "line 4, column 1",
                "line 5, column 3",
                "line 7, column 1"
            ]
        );
        assert_eq!(map.folders().collect::<Vec<_>>(), ["a"]);
    }
}
