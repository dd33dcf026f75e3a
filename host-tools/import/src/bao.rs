//! Reads Bao's `config.c`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::c::{self, Call, Field, List, Objects, Settings, Token};
use crate::draft::{
    Backing, Colors, Cores, Draft, DraftImage, DraftRegion, DraftVm, Interrupt, Sharing,
};
use crate::fields::BAO;
use crate::source::{Failure, Sources};
use std::collections::HashMap;
use std::path::PathBuf;

/// What a `config.c` expects of Bao's headers, in our words.
const HEADER: &str = "
#define STR(text) #text
#define XSTR(text) STR(text)
#define CONFIG_HEADER
#define INVALID_CPUID (~0)
";
/// Macros whose arguments say more than what they stand for.
const OPAQUE: [&str; 4] = [
    "VM_IMAGE",
    "VM_IMAGE_OFFSET",
    "VM_IMAGE_SIZE",
    "CONFIG_HEADER_",
];

/// Reads one file.
///
/// # Errors
///
/// Returns the first mistake that leaves no configuration.
pub fn read(sources: &mut Sources, file: u16, settings: &Settings) -> Result<Draft, Failure> {
    let text = c::run(sources, file, HEADER, &OPAQUE, settings)?;
    let sources = &*sources;
    let objects = Objects::find(sources, &text)?;
    let config = objects
        .all()
        .map(|(_, list)| list)
        .find(|list| list.field("vmlist").is_some())
        .ok_or_else(|| {
            let place = text
                .tokens
                .first()
                .map(|token| token.place)
                .unwrap_or_default();
            sources
                .error(place, "config", "no object has a .vmlist")
                .help("Bao's configuration is struct config config = { .vmlist = { … } }")
        })?;
    let mut reader = Reader {
        images: images(&objects),
        objects: &objects,
        sources,
        draft: Draft::default(),
    };
    let stem = sources.path(file).file_stem().unwrap_or_default();
    reader.draft.name = stem.to_string_lossy().into_owned();
    reader.config(config)?;
    Ok(reader.draft)
}

/// Returns the paths of images by the names that `VM_IMAGE(name, path)` gives them.
fn images(objects: &Objects<'_>) -> HashMap<String, PathBuf> {
    let image = |call: &Call| {
        let [name, path] = call.arguments.get(..2)? else {
            return None;
        };
        let field = Field {
            node: c::Node::Expression(path.clone()),
            place: call.place,
        };
        let path = objects.text_of(&field).unwrap_or_else(|| joined(path));
        Some((name.first()?.name()?.to_owned(), PathBuf::from(path)))
    };
    let calls = objects.calls.iter();
    calls
        .filter(|call| call.name == "VM_IMAGE")
        .filter_map(image)
        .collect()
}

fn joined(tokens: &[Token]) -> String {
    tokens.iter().map(|token| &*token.text).collect()
}

struct Reader<'a> {
    objects: &'a Objects<'a>,
    sources: &'a Sources,
    images: HashMap<String, PathBuf>,
    draft: Draft,
}

impl Reader<'_> {
    /// Records the fields of a list that have no counterpart.
    fn rest(&mut self, list: &List, prefix: &str, shown: &str) {
        for (name, place) in list.names() {
            let subject = format!("{shown}.{name}");
            self.draft
                .note_field(&BAO, &format!("{prefix}.{name}"), place, &subject);
        }
    }

    fn number(&self, list: &List, name: &str) -> Result<Option<u64>, Failure> {
        list.field(name)
            .map(|field| self.objects.number(&field))
            .transpose()
    }

    fn colors(&self, list: &List, name: &str) -> Result<Option<Colors>, Failure> {
        let Some(field) = list.field(name) else {
            return Ok(None);
        };
        let mask = self.objects.number(&field)?;
        let place = field.place;
        Ok((mask != 0).then_some(Colors { mask, place }))
    }

    /// Returns the entries of an array that a field is.
    fn array(&self, list: &List, name: &str) -> Result<Vec<Field>, Failure> {
        let Some(field) = list.field(name) else {
            return Ok(Vec::new());
        };
        match self.objects.list(&field) {
            Some(array) => array.entries(self.sources),
            // NULL.
            None if self.objects.number(&field).is_ok_and(|number| number == 0) => Ok(Vec::new()),
            None => Err(self
                .sources
                .error(field.place, name, format!("`{name}` is not a list"))
                .help("write it in braces, or name an object that is")
                .into()),
        }
    }

    fn config(&mut self, config: &List) -> Result<(), Failure> {
        self.rest(config, "config", "");
        if let Some(hyp) = config.field("hyp")
            && let Some(list) = self.objects.list(&hyp)
        {
            let list = list.clone();
            self.rest(&list, "hyp", ".hyp");
            self.draft.hypervisor_colors = self.colors(&list, "colors")?;
        }
        let vms = self.array(config, "vmlist")?;
        for (number, field) in vms.iter().enumerate() {
            if let Some(vm) = self.objects.list(field) {
                let vm = vm.clone();
                self.vm(number, &vm)?;
            }
        }
        Ok(())
    }

    fn vm(&mut self, number: usize, vm: &List) -> Result<(), Failure> {
        let shown = format!(".vmlist[{number}]");
        self.rest(vm, "vm", &shown);
        let colors = self.colors(vm, "colors")?;
        let empty = vm.field("platform");
        let platform = empty
            .as_ref()
            .and_then(|field| self.objects.list(field))
            .cloned()
            .ok_or_else(|| {
                self.sources
                    .error(vm.place, "platform", "the VM has no .platform")
                    .help("its regions and cores are there")
            })?;
        let shown = format!("{shown}.platform");
        self.rest(&platform, "platform", &shown);
        let distributor = self.distributor(&platform)?;
        let mut regions = Vec::new();
        for field in self.array(&platform, "regions")? {
            regions.extend(self.region(&field, colors, &shown)?);
        }
        let mut interrupts = Vec::new();
        for field in self.array(&platform, "devs")? {
            self.device(&field, &shown, &mut regions, &mut interrupts)?;
        }
        let count = self.number(&platform, "cpu_num")?.unwrap_or(1);
        let mask = self.number(vm, "cpu_affinity")?.filter(|mask| *mask != 0);
        let (image, name) = self.image(number, vm)?;
        self.draft.vms.push(DraftVm {
            name,
            place: vm.place,
            cores: mask.map_or(Cores::Some(count), |mask| Cores::SomeOf(count, mask)),
            regions,
            interrupts,
            distributor,
            image,
            remarks: Vec::new(),
        });
        Ok(())
    }

    fn distributor(&mut self, platform: &List) -> Result<Option<u64>, Failure> {
        let Some(arch) = platform.field("arch") else {
            return Ok(None);
        };
        if let Some(list) = self.objects.list(&arch)
            && let Some(other) = list.field("irqc")
        {
            self.draft
                .note_field(&BAO, "arch.irqc", other.place, ".platform.arch.irqc");
        }
        let gic = self.objects.list(&arch).and_then(|arch| arch.field("gic"));
        let Some(gic) = gic.as_ref().and_then(|gic| self.objects.list(gic)) else {
            return Ok(None);
        };
        let address = self.number(gic, "gicd_addr")?;
        self.draft.distributors.extend(address);
        Ok(address)
    }

    fn region(
        &mut self,
        field: &Field,
        colors: Option<Colors>,
        shown: &str,
    ) -> Result<Option<DraftRegion>, Failure> {
        let Some(list) = self.objects.list(field).cloned() else {
            return Ok(None);
        };
        self.rest(&list, "region", &format!("{shown}.regions[]"));
        let own = self.colors(&list, "colors")?;
        Ok(Some(DraftRegion {
            name: None,
            place: list.place,
            ipa: self.number(&list, "base")?.unwrap_or(0),
            size: self.number(&list, "size")?.unwrap_or(0),
            backing: Backing::Memory {
                colors: own.or(colors),
                sharing: Sharing::AsFound,
            },
            execute: true,
        }))
    }

    fn device(
        &mut self,
        field: &Field,
        shown: &str,
        regions: &mut Vec<DraftRegion>,
        interrupts: &mut Vec<Interrupt>,
    ) -> Result<(), Failure> {
        let Some(list) = self.objects.list(field).cloned() else {
            return Ok(());
        };
        self.rest(&list, "dev", &format!("{shown}.devs[]"));
        let size = self.number(&list, "size")?.unwrap_or(0);
        let region = (size > 0).then_some(regions.len());
        if size > 0 {
            let pa = self.number(&list, "pa")?.unwrap_or(0);
            regions.push(DraftRegion {
                name: None,
                place: list.place,
                ipa: self.number(&list, "va")?.unwrap_or(pa),
                size,
                backing: Backing::Device(pa),
                execute: false,
            });
        }
        for entry in self.array(&list, "interrupts")? {
            interrupts.push(Interrupt {
                number: self.objects.number(&entry)?,
                place: entry.place,
                region,
            });
        }
        Ok(())
    }

    /// Returns a VM's image, and the VM's name: the image's.
    fn image(&self, number: usize, vm: &List) -> Result<(DraftImage, String), Failure> {
        let image = vm.field("image");
        let list = image.as_ref().and_then(|field| self.objects.list(field));
        let mut load = 0;
        let mut symbol = None;
        if let Some(list) = list {
            load = self.number(list, "base_addr")?.unwrap_or(0);
            symbol = list
                .field("load_addr")
                .and_then(|field| Objects::call_of(&field))
                .and_then(|call| Some(call.arguments.first()?.first()?.name()?.to_owned()));
        }
        // A macro, VM_IMAGE_BUILTIN(name, address), may stand for the whole.
        if let Some(call) = image.as_ref().and_then(Objects::call_of) {
            symbol = call
                .arguments
                .first()
                .and_then(|first| Some(first.first()?.name()?.to_owned()));
            if let Some(second) = call.arguments.get(1) {
                let field = Field {
                    node: c::Node::Expression(second.clone()),
                    place: call.place,
                };
                load = self.objects.number(&field)?;
            }
        }
        let entry = self.number(vm, "entry")?.unwrap_or(load);
        let name = symbol.clone().unwrap_or_else(|| format!("vm{number}"));
        let path = symbol
            .and_then(|symbol| self.images.get(&symbol).cloned())
            .unwrap_or_else(|| PathBuf::from(format!("{name}.bin")));
        let short = name.trim_end_matches("_image").trim_end_matches("_img");
        let image = DraftImage::File {
            path,
            load,
            entry,
            tree: None,
        };
        Ok((image, short.to_owned()))
    }
}
