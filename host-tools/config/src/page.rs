//! Addresses of pages, as fields of any table have them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::document::Field;
use cloison_formats::addr::Ipa;

/// Reads the address of a page in the VM's address space.
pub(crate) fn page_ipa(field: &Field<'_>) -> Option<Ipa> {
    let ipa = Ipa(field.integer("an address: 0x4000_0000")?);
    if !ipa.is_page_aligned() {
        field.push(
            field
                .error(format!("{ipa} is not the start of a page"))
                .label(format!("{:#x} past it", ipa.0 - ipa.page_base().0))
                .help(format!("the page starts at {}", ipa.page_base())),
        );
        return None;
    }
    Some(ipa)
}
