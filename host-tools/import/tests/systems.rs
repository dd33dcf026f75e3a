//! Small files in the shape of those of others: what is written, what is listed, and the colors.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;

use cloison_config::Foreign;
use cloison_config::problem::Problem;
use cloison_import::{Imported, Options};
use common::{file, import};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Imports files and compares the configuration and the list with the kept ones.
#[track_caller]
fn compare(name: &str, files: &[&str], options: &Options) -> Imported {
    let paths: Vec<PathBuf> = files.iter().map(|name| file(name)).collect();
    let imported = import(&paths, options).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut text = imported.text.clone();
    text += "\n--- not as it was ---\n";
    for entry in &imported.list {
        writeln!(text, "{entry}").expect("a string takes it");
    }
    let checked = match &imported.checked {
        Ok(checked) => {
            common::assert_fits(checked);
            checked.summary()
        }
        Err(errors) => panic!("{name}: {errors:?}\n{text}"),
    };
    writeln!(text, "--- {} items; {checked}", imported.taken).expect("a string takes it");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
    imported
}

/// Returns the colors of the pools, then the hypervisor's.
fn masks(imported: &Imported) -> Vec<u64> {
    imported.colors.clone()
}

#[test]
fn a_configuration_of_bao_with_macros_and_objects() {
    let imported = compare("bao", &["bao.c"], &Options::default());
    assert_eq!(imported.kinds, [Foreign::Bao]);
    assert_eq!(masks(&imported), [0x000f, 0x0ff0, 0x8000]);
    // What a macro of the user switches on.
    let mut options = Options::default();
    options.settings.defines = vec!["WITH_NETWORK=1".to_owned()];
    let other = import(&[file("bao.c")], &options).expect("a system");
    assert_eq!(
        other.text, imported.text,
        "DEVICES is a number that nothing needs"
    );
}

#[test]
fn a_root_cell_with_a_private_and_a_shared_part() {
    let imported = compare("jailhouse-root", &["jailhouse-root.c"], &Options::default());
    assert_eq!(imported.kinds, [Foreign::Jailhouse]);
    // One color of the 12 is the hypervisor's, as nobody leaves one.
    assert_eq!(masks(&imported), [0x07ff, 0xf000, 0x0800]);
    let options = Options {
        hypervisor_colors: Some(1),
        ..Options::default()
    };
    let other = import(&[file("jailhouse-root.c")], &options).expect("a system");
    assert_eq!(masks(&other), [0x0ffe, 0xf000, 0x0001]);
}

#[test]
fn cells_of_all_generations_of_colors_are_one_system() {
    let files = ["jailhouse-ranges.c", "jailhouse-first.c"];
    let imported = compare("jailhouse-cells", &files, &Options::default());
    assert_eq!(masks(&imported), [0x0703, 0xff00, 0x0080]);
    let files = ["jailhouse-first.c", "jailhouse-root.c"];
    let imported = compare("jailhouse-system", &files, &Options::default());
    assert_eq!(masks(&imported), [0x07ff, 0xf000, 0xf700, 0x0800]);
}

#[test]
fn pools_that_overlap_have_memory_together() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("config");
    let domains: String = (0..4)
        .map(|n| format!("DOMU_KERNEL[{n}]=Image\nDOMU_MEM[{n}]=2048\n"))
        .collect();
    let colors = "DOMU_COLORS[0]=0-7\nDOMU_COLORS[1]=4-11\nDOMU_COLORS[2]=6\n";
    fs::write(&path, format!("NUM_DOMUS=4\n{domains}{colors}")).expect("a file");
    let imported = import(&[path], &Options::default()).expect("a system");
    let checked = imported.checked.expect("valid");
    common::assert_fits(&checked);
    assert_eq!(imported.colors, [0x00ff, 0x0ff0, 0x0040, 0x7fff, 0x8000]);
}

#[test]
fn domains_of_a_device_tree_and_their_devices() {
    let files = ["xen.dts", "xen-passthrough.dts"];
    let imported = compare("xen", &files, &Options::default());
    assert_eq!(imported.kinds, [Foreign::XenTree; 2]);
    assert_eq!(masks(&imported), [0b111_1100, 0b10_1111_0000_0000, 0b11]);
}

/// Returns a compiled device tree with a domain.
fn compiled_tree() -> Vec<u8> {
    let write = || -> Result<Vec<u8>, vm_fdt::Error> {
        let mut tree = vm_fdt::FdtWriter::new()?;
        let root = tree.begin_node("")?;
        let chosen = tree.begin_node("chosen")?;
        let domain = tree.begin_node("domU7")?;
        tree.property_string("compatible", "xen,domain")?;
        tree.property_u64("memory", 0x8000)?;
        tree.property_u32("cpus", 1)?;
        tree.property_string("llc-colors", "4-8,10,11,12")?;
        let module = tree.begin_node("module@2000000")?;
        let kinds = ["multiboot,kernel", "multiboot,module"].map(str::to_owned);
        tree.property_string_list("compatible", kinds.to_vec())?;
        tree.property_array_u32("reg", &[0x0200_0000, 0x00ff_ffff])?;
        tree.property_string("bootargs", "console=\"ttyAMA0\"")?;
        tree.end_node(module)?;
        tree.end_node(domain)?;
        tree.end_node(chosen)?;
        tree.end_node(root)?;
        tree.finish()
    };
    write().expect("a tree")
}

#[test]
fn a_compiled_device_tree_has_domains_too() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("xen.dtb");
    let bytes = compiled_tree();
    fs::write(&path, &bytes).expect("a file");
    let imported = import(std::slice::from_ref(&path), &Options::default()).expect("a system");
    assert_eq!(imported.kinds, [Foreign::XenCompiled]);
    assert_eq!(masks(&imported), [0b1_1101_1111_0000, 0x8000]);
    assert!(imported.checked.is_ok());
    for part in [
        "size = \"32M\"",
        "cmdline = 'console=\"ttyAMA0\"'",
        "name = \"domu7\"",
    ] {
        assert!(imported.text.contains(part), "{part}: {}", imported.text);
    }
    // Every part of it is not a whole tree.
    for length in (8..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).expect("a file");
        let errors =
            import(std::slice::from_ref(&path), &Options::default()).expect_err("half a tree");
        assert_eq!(errors.problems().len(), 1, "{length}");
    }
}

#[test]
fn a_configuration_of_image_builder() {
    let imported = compare("image-builder", &["image-builder.sh"], &Options::default());
    assert_eq!(imported.kinds, [Foreign::ImageBuilder]);
    assert_eq!(masks(&imported), [0x000f, 0x03f0, 0x7c00, 0x8000]);
}

#[test]
fn zones_of_hvisor_in_the_order_of_their_numbers() {
    let files = [
        "hvisor-zone2.json",
        "hvisor-zone1.json",
        "hvisor-virtio.json",
    ];
    let imported = compare("hvisor", &files, &Options::default());
    assert_eq!(imported.kinds, [Foreign::Hvisor; 3]);
    assert_eq!(masks(&imported), [0x7fff, 0x8000]);
}

#[test]
fn images_are_those_that_the_user_names_or_workloads() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("control.bin"), [0; 64]).expect("a file");
    let mut options = Options {
        base: folder.path().to_path_buf(),
        folder: Some(folder.path().to_path_buf()),
        ..Options::default()
    };
    let imported = import(&[file("bao.c")], &options).expect("a system");
    assert!(
        imported
            .text
            .contains("{ file = \"control.bin\", load = 0x2000_0000, entry = 0x2000_0040"),
        "{}",
        imported.text
    );
    assert!(
        imported.text.contains("file = \"IMAGES/vision.bin\""),
        "{}",
        imported.text
    );
    // An entry after the image's end is an error of the system, not of the import.
    assert!(imported.checked.is_err());
    fs::write(folder.path().join("control.bin"), [0; 128]).expect("a file");
    options.images = vec![("vision".to_owned(), folder.path().join("control.bin"))];
    let imported = import(&[file("bao.c")], &options).expect("a system");
    let checked = imported.checked.expect("all images are here");
    assert!(
        checked
            .warnings
            .iter()
            .all(|warning| !warning.message().contains("does not exist"))
    );
    options.folder = None;
    options.images.clear();
    options.stand_in = Some("heartbeat".to_owned());
    let imported = import(&[file("bao.c")], &options).expect("a system");
    assert_eq!(
        imported.text.matches("workload = \"heartbeat\"").count(),
        2,
        "{}",
        imported.text
    );
    assert!(imported.checked.is_ok());
}

#[test]
fn a_placeholder_is_a_warning_until_the_image_is_here() {
    let imported = import(&[file("bao.c")], &Options::default()).expect("a system");
    let checked = imported.checked.expect("valid");
    let of_images = |warning: &&Problem| warning.field().ends_with("image.file");
    assert_eq!(checked.warnings.iter().filter(of_images).count(), 2);
}

/// A reason that a reader looks up is in the table of fields.
#[test]
fn the_tables_of_fields_are_complete() {
    for table in cloison_import::fields::TABLES {
        for (number, row) in table.rows.iter().enumerate() {
            let place = format!("{}: {}", table.title, row.name);
            assert!(
                !row.here.is_empty() || !row.why.is_empty(),
                "{place} has no reason"
            );
            assert!(
                !row.here.is_empty() || !row.next.is_empty(),
                "{place} has no next step"
            );
            let again = table.rows[..number]
                .iter()
                .any(|other| other.name == row.name);
            assert!(!again, "{place} is there twice");
        }
    }
}
