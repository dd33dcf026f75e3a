//! Compiled device trees, printed as sources, so that one reader does for both.
// SPDX-License-Identifier: MIT OR Apache-2.0

use dtoolkit::Property as _;

/// How deep the nodes of a compiled tree may be in each other.
const DEEPEST: usize = 32;

/// Returns the source of a compiled device tree.
///
/// # Errors
///
/// If it is damaged.
pub fn decompile(bytes: &[u8]) -> Result<String, String> {
    let tree = dtoolkit::fdt::Fdt::new(bytes).map_err(|error| error.to_string())?;
    let mut text = "/dts-v1/;\n".to_owned();
    print(&tree.root(), &mut text, 0)?;
    Ok(text)
}

fn print(node: &impl dtoolkit::Node, text: &mut String, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err("its nodes are too deep in each other".to_owned());
    }
    let name = node.name();
    let name = if depth == 0 { "/" } else { name.as_ref() };
    let indent = "\t".repeat(depth);
    text.push_str(&format!("{indent}{name} {{\n"));
    for property in node.properties() {
        text.push_str(&format!(
            "{indent}\t{}{};\n",
            property.name(),
            shown(property.value())
        ));
    }
    for child in node.children() {
        print(&child, text, depth + 1)?;
    }
    text.push_str(&format!("{indent}}};\n"));
    Ok(())
}

/// Returns a property's value as a source has it: texts, cells or bytes.
fn shown(value: &[u8]) -> String {
    if value.is_empty() {
        return String::new();
    }
    let plain = |byte: &u8| (b' '..=b'~').contains(byte);
    if let Some(body) = value.strip_suffix(&[0]) {
        let parts: Vec<&[u8]> = body.split(|byte| *byte == 0).collect();
        if parts
            .iter()
            .all(|part| !part.is_empty() && part.iter().all(plain))
        {
            let quote = |part: &&[u8]| {
                let text = String::from_utf8_lossy(part);
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            };
            let texts: Vec<String> = parts.iter().map(quote).collect();
            return format!(" = {}", texts.join(", "));
        }
    }
    if value.len().is_multiple_of(4) {
        let cell = |cell: &[u8]| {
            let number = cell
                .iter()
                .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
            format!("{number:#x}")
        };
        let cells: Vec<String> = value.chunks_exact(4).map(cell).collect();
        return format!(" = <{}>", cells.join(" "));
    }
    let bytes: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(" = [{}]", bytes.join(" "))
}
