//! Lists the public constants of `cloison-abi` as Rust, for the C header.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};
use syn::{Expr, Item, Type, Visibility};

/// The root and the modules in separate files.
const FILES: [&str; 4] = ["lib", "model_hint", "pl011", "reply"];

fn main() -> Result<(), Box<dyn Error>> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../contracts/abi/src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut list = Listing::default();
    for file in FILES {
        let text = fs::read_to_string(sources.join(file).with_extension("rs"))?;
        let module = if file == "lib" { "" } else { file };
        list.items(module, &syn::parse_file(&text)?.items)?;
    }
    let text = format!("static CONSTANTS: &[Constant] = &[\n{}];\n", list.text);
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("constants.rs"),
        text,
    )?;
    Ok(())
}

/// Rows of Rust, one for each constant.
#[derive(Default)]
struct Listing {
    text: String,
}

impl Listing {
    fn items(&mut self, module: &str, items: &[Item]) -> Result<(), Box<dyn Error>> {
        for item in items {
            match item {
                Item::Const(constant) if is_public(&constant.vis) => {
                    self.constant(module, constant)?;
                }
                Item::Enum(numbers) if is_public(&numbers.vis) => {
                    self.variants(module, numbers)?;
                }
                Item::Mod(inner) if is_public(&inner.vis) => {
                    let items = inner.content.iter().flat_map(|(_, items)| items);
                    let items: Vec<Item> = items.cloned().collect();
                    self.items(&joined(module, &inner.ident.to_string()), &items)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn constant(&mut self, module: &str, item: &syn::ItemConst) -> Result<(), Box<dyn Error>> {
        let name = item.ident.to_string();
        let path = rust_path(module, &name);
        match (&*item.ty, &*item.expr) {
            (Type::Path(kind), _) => self.row(module, &name, &path, &last(&kind.path)),
            (Type::Reference(_), _) => {
                writeln!(
                    self.text,
                    "    Constant::text({module:?}, {name:?}, {path}),"
                )?;
                Ok(())
            }
            // Registers one after the other are numbered: ARGUMENTS is ARGUMENT1 and so on.
            (Type::Array(array), Expr::Array(elements)) => {
                let Type::Path(kind) = &*array.elem else {
                    return Ok(());
                };
                if elements.elems.iter().any(|it| matches!(it, Expr::Path(_))) {
                    return Ok(());
                }
                let name = name.trim_end_matches('S');
                for (index, number) in (0..elements.elems.len()).zip(1..) {
                    let path = format!("{path}[{index}]");
                    self.row(module, &format!("{name}{number}"), &path, &last(&kind.path))?;
                }
                Ok(())
            }
            _ => Err(format!("no form in C for the constant {path}").into()),
        }
    }

    fn variants(&mut self, module: &str, item: &syn::ItemEnum) -> Result<(), Box<dyn Error>> {
        let mut representation = None;
        for attribute in &item.attrs {
            if attribute.path().is_ident("repr") {
                representation = Some(attribute.parse_args::<syn::Path>()?);
            }
        }
        let Some(representation) = representation else {
            return Err(format!("the enum {} has no representation", item.ident).into());
        };
        let name = item.ident.to_string();
        for variant in &item.variants {
            let variant_path = rust_path(module, &format!("{name}::{}", variant.ident));
            let kind = last(&representation);
            let path = format!("{variant_path} as {kind}");
            let constant = screaming(&variant.ident.to_string());
            self.row(&joined(module, &name), &constant, &path, &kind)?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        module: &str,
        name: &str,
        path: &str,
        kind: &str,
    ) -> Result<(), Box<dyn Error>> {
        writeln!(
            self.text,
            "    Constant::number({module:?}, {name:?}, {path} as i128, {kind:?}),"
        )?;
        Ok(())
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

fn rust_path(module: &str, name: &str) -> String {
    format!("cloison_abi::{}", joined(module, name))
}

fn last(path: &syn::Path) -> String {
    let segment = path.segments.last();
    segment.map_or_else(String::new, |segment| segment.ident.to_string())
}

/// Returns `SegmentBegin` as `SEGMENT_BEGIN`.
fn screaming(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}
