//! Page profiles: which pages of a VM matter, and how much.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::{Context, Field, Table, suggest};
use crate::kind::FileKind;
use crate::problem::{Problem, count};
use cloison_formats::addr::Ipa;
use cloison_formats::image::{Backing, Region};
use cloison_profile::{Profile, document};
use std::cmp::Reverse;
use std::ops::Range;

/// Version of the file format.
pub const VERSION: u64 = 1;

/// One page of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProfiledPage {
    /// Index of the region in the VM.
    region: usize,
    /// Page number in the region.
    page: u32,
    /// How much the page matters; a higher number matters more. The unit is up to the profile.
    importance: u64,
}

/// Returns the pages, most important first; ties go to the lower region and page (BBProf, section
/// 5.1, "Page Ranking and Migration").
fn rank(mut pages: Vec<ProfiledPage>, regions: &[Region]) -> Vec<Ipa> {
    pages.sort_unstable_by_key(|page| (Reverse(page.importance), page.region, page.page));
    pages
        .iter()
        .map(|page| regions[page.region].ipa.page(u64::from(page.page)))
        .collect()
}

/// Reads a profile for a VM with these regions; problems are recorded in `context`. Returns its
/// pages, most important first.
pub(crate) fn read(context: &Context, regions: &[Region]) -> Option<Vec<Ipa>> {
    let document = context.parse()?;
    let root = context.root(&document);
    FileKind::Profile.fits(&root)?;
    check_version(&root, context.file.text())?;
    for key in ["description", "unit"] {
        root.optional(key)
            .map(|field| field.string("one line of text"));
    }
    let mut pages = Pages {
        regions,
        found: Vec::new(),
    };
    for mut table in root.tables("region") {
        let name_field = table.required("name", "name a region of the VM: name = \"ram\"");
        if let Some(name) = name_field
            .as_ref()
            .filter(|field| field.is_string())
            .and_then(|field| field.string(""))
        {
            table.rename(name);
        }
        let region = name_field
            .as_ref()
            .and_then(|field| region_index(field, regions));
        let list = table.required(
            "pages",
            "list pages with their importance: pages = [[3, 12], [4, 7]]",
        );
        table.finish();
        for pair in list.and_then(|field| field.elements()).unwrap_or_default() {
            let Some(elements) = pair.elements() else {
                continue;
            };
            let [page, importance] = elements.as_slice() else {
                pair.push(
                    pair.error(format!(
                        "expected 2 numbers, found {}",
                        count(elements.len(), "number")
                    ))
                    .label("not a pair")
                    .help("write [page, importance]"),
                );
                continue;
            };
            let (Some(region), Some(importance)) =
                (region, importance.integer("the page's importance"))
            else {
                continue;
            };
            pages.add(region, page, importance);
        }
    }
    for table in root.tables("page") {
        let region = table.required("region", "name a region of the VM: region = \"ram\"");
        let region = region
            .as_ref()
            .and_then(|field| region_index(field, regions));
        let page = table.required("page", "give the page's number in its region: page = 3");
        let importance = table
            .required(
                "importance",
                "say how much the page matters: importance = 12",
            )
            .and_then(|field| field.integer("how much the page matters; larger is more"));
        table.finish();
        if let (Some(region), Some(page), Some(importance)) = (region, page, importance) {
            pages.add(region, &page, importance);
        }
    }
    root.finish();
    if context.has_errors() {
        return None;
    }
    if pages.found.is_empty() {
        context.push(
            Problem::error(&context.file, "pages", 0..0, "the profile lists no page")
                .label("no [[region]] and no [[page]] in this file")
                .help("add [[region]] with name = \"ram\" and pages = [[page, importance], ...]"),
        );
        return None;
    }
    Some(rank(
        pages.found.into_iter().map(|(page, _)| page).collect(),
        regions,
    ))
}

/// Checks the version; `None` if the profile has another.
fn check_version(root: &Table<'_>, text: &str) -> Option<()> {
    let version_help = format!("write version = {VERSION}, the version of the format");
    if let Some(field) = root.required("version", &version_help)
        && let Some(version) = field.integer(&VERSION.to_string())
        && version != VERSION
    {
        if version == document::VERSION {
            field.push(of_a_process(text, &field));
            return None;
        }
        field.push(
            field
                .error(format!(
                    "the profile has version {version}; this tool reads version {VERSION}"
                ))
                .label("unknown version")
                .help("make the profile again, or use the version of Cloison that wrote it"),
        );
        return None;
    }
    Some(())
}

/// Returns why a profile of version 2 cannot be a VM's: it names pages of a process, which only its
/// kernel can find.
fn of_a_process(text: &str, version: &Field<'_>) -> Problem {
    let problem = match document::read(text) {
        Ok(Profile { provenance, .. }) => version.error(format!(
            "the profile is of the function `{}` of a process, not of a VM",
            provenance.symbol
        )),
        Err(error) => version.error(error.to_string()),
    };
    problem
        .label(format!("a VM's profile has version {VERSION}"))
        .help(
            "in the Linux guest, `bbprof run --profile FILE` starts the program with these pages \
             in the private pool",
        )
}

/// Reads the name of a region, and returns its index if its pages can migrate.
fn region_index(field: &Field<'_>, regions: &[Region]) -> Option<usize> {
    let name = field.string("the name of a region of the VM")?;
    let found = regions.iter().position(|region| region.name == name);
    match found {
        None => field.push(
            field
                .error(format!("the VM has no region `{name}`"))
                .label("unknown region")
                .help(suggest(
                    name,
                    "regions",
                    regions.iter().map(|region| region.name.as_str()),
                )),
        ),
        Some(index) if !matches!(regions[index].backing, Backing::Pool(_)) => {
            field.push(
                field
                    .error(format!("the pages of region `{name}` cannot migrate"))
                    .label("not backed by a pool")
                    .help("profile pages of regions that have `pool = ...`"),
            );
            return None;
        }
        Some(_) => {}
    }
    found
}

/// The pages that were read so far.
struct Pages<'a> {
    regions: &'a [Region],
    /// Each page, and where it is in the file.
    found: Vec<(ProfiledPage, Range<usize>)>,
}

impl Pages<'_> {
    fn add(&mut self, region: usize, page_field: &Field<'_>, importance: u64) {
        let Some(page) = page_field.integer("a page's number in its region") else {
            return;
        };
        let size = u64::from(self.regions[region].pages);
        let name = &self.regions[region].name;
        if page >= size {
            page_field.push(
                page_field
                    .error(format!("page {page} is outside region `{name}`"))
                    .label(format!("the region has {size} pages, 0 to {}", size - 1))
                    .help(
                        "count pages of 4 KiB from the region's start, or make the region larger",
                    ),
            );
            return;
        }
        let page = ProfiledPage {
            region,
            page: page as u32,
            importance,
        };
        let same = |(other, _): &&(ProfiledPage, _)| {
            other.region == page.region && other.page == page.page
        };
        if let Some((_, first)) = self.found.iter().find(same) {
            page_field.push(
                page_field
                    .error(format!(
                        "page {} of region `{name}` is listed twice",
                        page.page
                    ))
                    .label("again")
                    .also(first.clone(), "first here")
                    .help("list it once, with the right importance"),
            );
            return;
        }
        self.found.push((page, page_field.span()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_important_first_and_ties_in_order() {
        let region = |ipa, pages| Region {
            name: String::new(),
            ipa: Ipa(ipa),
            pages,
            backing: Backing::Pool(0),
            executable: true,
        };
        let regions = [region(0x4000_0000, 100), region(0x5000_0000, 50)];
        let page = |region, page, importance| ProfiledPage {
            region,
            page,
            importance,
        };
        let pages = vec![
            page(0, 9, 5),
            page(1, 2, 7),
            page(1, 1, 5),
            page(0, 3, 5),
            page(1, 49, 0),
        ];
        let expected = [
            0x5000_2000,
            0x4000_3000,
            0x4000_9000,
            0x5000_1000,
            0x5003_1000,
        ]
        .map(Ipa);
        assert_eq!(rank(pages.clone(), &regions), expected);
        assert_eq!(rank(pages.into_iter().rev().collect(), &regions), expected);
    }
}
