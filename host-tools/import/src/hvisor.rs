//! Reads hvisor's JSON: one zone a file, and the virtio devices of zones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::{Backing, Cores, Draft, DraftImage, DraftRegion, DraftVm, Interrupt, Sharing};
use crate::fields::HVISOR;
use crate::source::{Failure, Place, Sources};
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::path::PathBuf;

/// How deep values may be in each other.
const DEEPEST: usize = 32;
/// The architecture of zones that can be VMs here.
const ARCHITECTURE: &str = "arm64";

/// Reads the zones of one system.
///
/// # Errors
///
/// Returns the first mistake that leaves no configuration.
pub fn read(sources: &Sources, files: &[u16]) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    let mut order = Vec::new();
    for file in files {
        let text = sources.text(*file);
        let start = Place {
            file: *file,
            start: 0,
            end: 1,
        };
        if let Some(at) = too_deep(text) {
            let place = Place {
                start: at,
                end: at + 1,
                ..start
            };
            let message = format!("more than {DEEPEST} values in each other");
            return Err(sources
                .error(place, "JSON", message)
                .help("no zone is that deep")
                .into());
        }
        let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
        let parsed = parsed.map_err(|error| {
            let place = place(*file, error.range());
            sources
                .error(place, "JSON", format!("not JSON: {}", error.kind()))
                .help("correct the syntax")
        })?;
        let Some(Value::Object(whole)) = parsed.value else {
            return Err(sources
                .error(start, "JSON", "a zone is an object: { \"zone_id\": 1, … }")
                .help("import the file that describes the zone")
                .into());
        };
        let mut reader = Reader {
            sources,
            file: *file,
            draft: &mut draft,
        };
        if let Some(zones) = whole.get("zones") {
            let place = place(*file, zones.range());
            reader.note_row(place, "virtio devices", "zones");
            continue;
        }
        let id = reader.zone(&whole)?;
        order.push(id);
        if draft.name.is_empty() {
            let stem = sources.path(*file).file_stem().unwrap_or_default();
            draft.name = stem.to_string_lossy().into_owned();
        }
    }
    let mut zones: Vec<(u64, DraftVm)> = order.into_iter().zip(draft.vms).collect();
    zones.sort_by_key(|(id, _)| *id);
    let has_root = zones.iter().any(|(id, _)| *id == 0);
    draft.vms = zones.into_iter().map(|(_, vm)| vm).collect();
    if let (false, Some(first)) = (has_root, draft.vms.first()) {
        let place = first.place;
        draft.note(
            place,
            "zone 0",
            "the root zone is in board.rs, which is compiled into hvisor",
            "add a [[vm]] for it if something runs there",
        );
    }
    Ok(draft)
}

/// Returns where values are too deep in each other.
fn too_deep(text: &str) -> Option<u32> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return u32::try_from(at).ok();
        }
    }
    None
}

fn place(file: u16, range: Range) -> Place {
    let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
    Place { file, start, end }
}

struct Reader<'a> {
    sources: &'a Sources,
    file: u16,
    draft: &'a mut Draft,
}

impl Reader<'_> {
    fn place(&self, value: &impl Ranged) -> Place {
        place(self.file, value.range())
    }

    fn note_row(&mut self, place: Place, subject: &str, row: &str) {
        self.draft.note_field(&HVISOR, row, place, subject);
    }

    fn wrong(&self, place: Place, key: &str, wanted: &str) -> Failure {
        self.sources
            .error(place, key, format!("`{key}` is not {wanted}"))
            .help(format!("write {wanted}"))
            .into()
    }

    /// Returns the number that a value is: `"0x5000"`, or 5.
    fn number_of(&self, value: &Value<'_>, key: &str) -> Result<u64, Failure> {
        let text = match value {
            Value::NumberLit(number) => number.value.to_owned(),
            Value::StringLit(text) => text.value.to_string(),
            _ => return Err(self.wrong(self.place(value), key, "a number")),
        };
        let text = text.trim().replace('_', "");
        let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| self.wrong(self.place(value), key, "a number: \"0x40000000\""))
    }

    fn number(&self, object: &Object<'_>, key: &str) -> Result<Option<u64>, Failure> {
        let found = object.get(key);
        found
            .map(|property| self.number_of(&property.value, key))
            .transpose()
    }

    fn text(&self, object: &Object<'_>, key: &str) -> Result<Option<String>, Failure> {
        match object.get(key).map(|property| &property.value) {
            None | Some(Value::NullKeyword(_)) => Ok(None),
            Some(Value::StringLit(text)) => Ok(Some(text.value.to_string())),
            Some(value) => Err(self.wrong(self.place(value), key, "a text")),
        }
    }

    fn array<'b>(&self, object: &'b Object<'b>, key: &str) -> Result<&'b [Value<'b>], Failure> {
        match object.get(key).map(|property| &property.value) {
            None => Ok(&[]),
            Some(Value::Array(array)) => Ok(&array.elements),
            Some(value) => Err(self.wrong(self.place(value), key, "a list")),
        }
    }

    /// Reads a zone; returns its number.
    fn zone(&mut self, zone: &Object<'_>) -> Result<u64, Failure> {
        let whole = self.place(zone);
        let at = Place {
            end: whole.start + 1,
            ..whole
        };
        if let Some(other) = self.text(zone, "arch")?.filter(|name| name != ARCHITECTURE) {
            let place = zone.get("arch").map_or(at, |property| self.place(property));
            return Err(self
                .sources
                .error(place, "arch", format!("the zone is for {other}"))
                .help("Cloison runs on AArch64: import zones with \"arch\": \"arm64\"")
                .into());
        }
        for property in &zone.properties {
            let name = property.name.as_str().to_owned();
            let is_none = match &property.value {
                Value::Array(array) => array.elements.is_empty(),
                Value::StringLit(text) => text.value.is_empty(),
                Value::NumberLit(number) => number.value == "0",
                _ => false,
            };
            if !is_none {
                let place = self.place(property);
                self.note_row(place, &name, &format!("zone.{name}"));
            }
        }
        let mut mask = 0;
        for core in self.array(zone, "cpus")? {
            let number = self.number_of(core, "cpus")?;
            if number >= 64 {
                return Err(self.wrong(self.place(core), "cpus", "cores' numbers, 0 to 63"));
            }
            mask |= 1 << number;
        }
        let regions = self.regions(zone)?;
        let mut interrupts = Vec::new();
        for value in self.array(zone, "interrupts")? {
            interrupts.push(Interrupt {
                number: self.number_of(value, "interrupts")?,
                place: self.place(value),
                region: None,
            });
        }
        let mut distributor = None;
        if let Some(Value::Object(arch)) = zone.get("arch_config").map(|property| &property.value) {
            distributor = self.number(arch, "gicd_base")?;
            if self.draft.distributors.is_empty() {
                self.draft.distributors.extend(distributor);
            }
        }
        let id = self.number(zone, "zone_id")?.unwrap_or(0);
        let name = self
            .text(zone, "name")?
            .unwrap_or_else(|| format!("zone{id}"));
        let image = self.image(zone, &name)?;
        self.draft.vms.push(DraftVm {
            name,
            place: at,
            cores: Cores::These(mask),
            regions,
            interrupts,
            distributor,
            image,
            remarks: Vec::new(),
        });
        Ok(id)
    }

    fn regions(&mut self, zone: &Object<'_>) -> Result<Vec<DraftRegion>, Failure> {
        let mut regions = Vec::new();
        for value in self.array(zone, "memory_regions")? {
            let place = self.place(value);
            let Value::Object(memory) = value else {
                return Err(self.wrong(place, "memory_regions", "a list of objects"));
            };
            let kind = self.text(memory, "type")?.unwrap_or_default();
            let pa = self.number(memory, "physical_start")?.unwrap_or(0);
            let backing = match kind.as_str() {
                "ram" => Backing::Memory {
                    colors: None,
                    sharing: Sharing::AsFound,
                },
                "io" => Backing::Device(pa),
                "virtio" => {
                    self.note_row(place, "virtio", "memory.virtio");
                    continue;
                }
                _ => return Err(self.wrong(place, "type", "\"ram\", \"io\" or \"virtio\"")),
            };
            regions.push(DraftRegion {
                name: None,
                place,
                ipa: self.number(memory, "virtual_start")?.unwrap_or(pa),
                size: self.number(memory, "size")?.unwrap_or(0),
                backing,
                execute: true,
            });
        }
        Ok(regions)
    }

    fn image(&self, zone: &Object<'_>, name: &str) -> Result<DraftImage, Failure> {
        let path = self.text(zone, "kernel_filepath")?;
        let path = PathBuf::from(path.unwrap_or_else(|| format!("{name}.bin")));
        let cmdline = self.text(zone, "kernel_args")?.unwrap_or_default();
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let is_linux = ["linux", "image", "vmlinu"]
            .iter()
            .any(|word| file.contains(word));
        if is_linux {
            return Ok(DraftImage::Kernel {
                path,
                initrd: None,
                cmdline,
            });
        }
        let load = self.number(zone, "kernel_load_paddr")?.unwrap_or(0);
        Ok(DraftImage::File {
            path,
            load,
            entry: self.number(zone, "entry_point")?.unwrap_or(load),
            tree: Some(cmdline),
        })
    }
}
