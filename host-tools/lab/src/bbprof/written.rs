//! A profile in its two forms: a file that a VM's `profile` accepts, and tables.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::layout::Place;
use std::collections::BTreeMap;

/// A page with its name, block and importance.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Where it is.
    pub place: Place,
    /// Its address in the guest.
    pub ipa: u64,
    /// Letter of its kind.
    pub kind: char,
    /// The function, variable, section or region with the most bytes of the page.
    pub what: String,
    /// Number of pages that were treated as one with it, itself included.
    pub block: u32,
    /// Cycles that it saves, or that its absence from the caches costs.
    pub importance: f64,
}

/// Returns an importance with as many digits as a mean of cycles has.
pub fn rounded(importance: f64) -> f64 {
    (importance * 1000.0).round() / 1000.0
}

/// Returns the pages that matter, from pages in order of importance: those with at least this part
/// of the greatest importance, and more than 0.
pub fn that_matter(pages: &[Page], least: f64) -> &[Page] {
    let greatest = pages.first().map_or(0.0, |page| page.importance);
    let matters =
        |page: &Page| page.importance.round() >= 1.0 && page.importance >= least * greatest;
    &pages[..pages.iter().take_while(|page| matters(page)).count()]
}

/// Writes pages as a page profile of version 1. `comment` has no line without text.
pub fn profile(comment: &str, description: &str, pages: &[Page]) -> String {
    let mut regions: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
    for page in pages {
        let of = regions.entry(&page.place.region).or_default();
        of.insert(page.place.page, page.importance.round() as u64);
    }
    let mut text: String = comment.lines().map(|line| format!("# {line}\n")).collect();
    let description = toml::Value::String(description.to_owned());
    text += &format!("version = 1\ndescription = {description}\nunit = \"cycles\"\n");
    for (name, pages) in regions {
        text += &format!("\n[[region]]\nname = \"{name}\"\npages = [\n");
        let pairs: Vec<String> = pages
            .iter()
            .map(|(page, importance)| format!("[{page}, {importance}],"))
            .collect();
        pairs
            .chunks(6)
            .for_each(|row| text += &format!("    {}\n", row.join(" ")));
        text += "]\n";
    }
    text
}

/// Writes pages as CSV.
pub fn csv(pages: &[Page]) -> String {
    let mut text = "region,page,ipa,kind,pages_of_block,importance,what\n".to_owned();
    for Page {
        place,
        ipa,
        kind,
        what,
        block,
        importance,
    } in pages
    {
        let what = what.replace('"', "\"\"");
        text += &format!(
            "{},{},{ipa:#x},{kind},{block},{},\"{what}\"\n",
            place.region,
            place.page,
            rounded(*importance)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(region: &str, page: u64, importance: f64) -> Page {
        let place = Place {
            region: region.into(),
            page,
        };
        Page {
            place,
            ipa: 0x4000_0000 + page * 4096,
            kind: 'h',
            what: "a \"b\"".into(),
            block: 1,
            importance,
        }
    }

    #[test]
    fn pages_that_matter_are_those_above_the_least_part() {
        let pages = [
            page("ram", 7, 1000.0),
            page("ram", 3, 10.0),
            page("ram", 4, 9.9),
            page("ram", 5, -3.0),
        ];
        assert_eq!(that_matter(&pages, 0.01).len(), 2);
        assert_eq!(
            that_matter(&pages, 0.0).len(),
            3,
            "what costs nothing matters to nobody"
        );
        assert_eq!(that_matter(&[page("ram", 1, 0.4)], 0.0), []);
        assert_eq!(that_matter(&[], 0.5), []);
    }

    #[test]
    fn profiles_have_regions_and_pages_in_order() {
        let pages = [
            page("ram", 7, 1000.4),
            page("extra", 1, 50.0),
            page("ram", 3, 10.0),
        ];
        let expected = "# one\n# two\nversion = 1\ndescription = \"d \\\" e\"\n\
            unit = \"cycles\"\n\n\
                        [[region]]\nname = \"extra\"\npages = [\n    [1, 50],\n]\n\n\
                        [[region]]\nname = \"ram\"\npages = [\n    [3, 10], [7, 1000],\n]\n";
        let text = profile("one\ntwo", "d \" e", &pages);
        let read: toml::Table = text.parse().expect("TOML");
        assert_eq!(read["description"].as_str(), Some("d \" e"));
        assert_eq!(
            text,
            expected.replace(
                "\"d \\\" e\"",
                &toml::Value::String("d \" e".into()).to_string()
            )
        );
    }

    #[test]
    fn names_with_quotes_stay_one_value() {
        let text = csv(&[page("ram", 1, 2.5)]);
        assert_eq!(
            text.lines().nth(1),
            Some("ram,1,0x40001000,h,1,2.5,\"a \"\"b\"\"\"")
        );
    }
}
