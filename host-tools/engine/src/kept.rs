//! Runs on the board model that experiments keep, so that they can be repeated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::files::{self, sha256, write_atomic, write_json};
use crate::image::Image;
use crate::model::{Conditions, Model};
use crate::qemu::Machine;
use crate::store::Store;
use cloison_config::Emulation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// A finished run on the model, with all that repeats it: the file `machine.json` of its directory.
/// A store has the files that runs share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptRun {
    /// The board: its name, or the path of its file.
    pub board: String,
    /// The store's directory; in the file relative to the run's where possible, so that results
    /// can be moved as a whole.
    parts: PathBuf,
    /// Names of the parts that the system image consists of.
    image: Vec<String>,
    /// SHA-256 of the whole image, in hexadecimal.
    image_sha256: String,
    /// Name of the plugin that the run used.
    plugin: String,
    /// Name of the model's board file that the run used.
    model: String,
    /// How the model runs.
    pub conditions: Conditions,
}

/// A system image, as the names of its parts in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptImage {
    /// The store's directory.
    parts: PathBuf,
    /// Names of the parts.
    image: Vec<String>,
    /// SHA-256 of the whole image, in hexadecimal.
    image_sha256: String,
}

impl KeptImage {
    /// Puts an image into a store.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn new(image: &Image, store: &Store) -> Result<Self> {
        Ok(Self {
            parts: store.directory().to_path_buf(),
            image: image
                .parts()
                .map(|part| store.add_compressed(part))
                .collect::<Result<_>>()?,
            image_sha256: image.sha256(),
        })
    }

    /// Writes the whole image into a directory. Returns its path.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is missing or damaged, or if the parts are not those of the kept
    /// image.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        let file = directory.join("Image");
        write_atomic(&file, &self.read()?)?;
        Ok(file)
    }

    /// Returns the whole image.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn read(&self) -> Result<Vec<u8>> {
        let store = Store::at(&self.parts);
        let image = self
            .image
            .iter()
            .map(|name| store.read(name))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        if sha256(&image) != self.image_sha256 {
            return Err(miette!(
                help = "remove the run's directory, and run the experiment again",
                "the parts of the image are intact, but they are not the image that the run had: \
                 {} was changed",
                KeptRun::FILE
            ));
        }
        Ok(image)
    }

    /// Returns the names of the parts.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.image.iter()
    }

    /// Returns the store with the parts.
    pub fn parts(&self) -> &Path {
        &self.parts
    }

    /// Returns the same image with its parts in the store of another directory.
    pub fn with_parts_in(&self, directory: &Path) -> Self {
        Self {
            parts: directory.to_path_buf(),
            ..self.clone()
        }
    }
}

impl KeptRun {
    /// Name of the file.
    const FILE: &str = "machine.json";

    /// Describes a run of `image` on a board, with a model that is in `store`; the image is put
    /// there.
    ///
    /// # Errors
    ///
    /// Returns an error if the image cannot be written, or the model is elsewhere.
    pub fn new(
        board: &str,
        image: &Image,
        model: &Model,
        store: &Store,
        conditions: Conditions,
    ) -> Result<Self> {
        let name = |path: &Path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .filter(|name| store.has(name));
            name.map(str::to_owned)
                .ok_or_else(|| miette!("{} is not in the results' store", path.display()))
        };
        let KeptImage {
            parts,
            image,
            image_sha256,
        } = KeptImage::new(image, store)?;
        Ok(Self {
            board: board.to_owned(),
            parts,
            image,
            image_sha256,
            plugin: name(model.plugin())?,
            model: name(model.board())?,
            conditions,
        })
    }

    /// Writes the file into the run's directory.
    pub fn write(&self, directory: &Path) -> Result<()> {
        write_json(
            &directory.join(Self::FILE),
            &Self {
                parts: relative(directory, &self.parts),
                ..self.clone()
            },
        )
    }

    /// Returns whether a directory is one of a run.
    pub fn is_in(directory: &Path) -> bool {
        directory.join(Self::FILE).is_file()
    }

    /// Reads the file of a run's directory. [`Self::machine`] checks the files that it names.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory has no such file, or it has changed since it was written.
    pub fn read(directory: &Path) -> Result<Self> {
        let file = directory.join(Self::FILE);
        let text = files::read_text(&file, files::CONFIGURATION).map_err(|error| {
            miette!(
                help = "name a configuration, the directory of an experiment's run \
                        (target/cloison/experiments/NAME/runs/KEY), or a folder of `capture`",
                "{} is not a kept run: {error}",
                directory.display(),
            )
        })?;
        let kept: Self = serde_json::from_str(&text)
            .into_diagnostic()
            .wrap_err_with(|| {
                miette!(
                    help = "run the experiment again",
                    "cannot read {}",
                    file.display()
                )
            })?;
        Ok(Self {
            parts: directory.join(&kept.parts),
            ..kept
        })
    }

    /// Removes the files of the results in `out` that neither their runs nor the model need any more.
    pub fn clean(out: &Path, model: &Model, store: &Store) {
        let mut names = Self::names_in(&out.join("runs"));
        names.extend(model.names());
        store.keep_only(&names);
    }

    /// Returns the names of all files in the store that the runs in the directories of `runs` need.
    fn names_in(runs: &Path) -> BTreeSet<String> {
        let directories = std::fs::read_dir(runs).into_iter().flatten().flatten();
        let kept: Vec<Self> = directories
            .filter_map(|entry| Self::read(&entry.path()).ok())
            .collect();
        kept.iter().flat_map(Self::names).cloned().collect()
    }

    /// Returns the names of the files in the store that the run needs.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.image.iter().chain([&self.plugin, &self.model])
    }

    /// Returns the store with these files.
    pub fn parts(&self) -> &Path {
        &self.parts
    }

    /// Returns the same run with its files in the store of another directory.
    pub fn with_parts_in(&self, directory: &Path) -> Self {
        Self {
            parts: directory.to_path_buf(),
            ..self.clone()
        }
    }

    /// Returns the machine of the run, with its model, as QEMU emulates its board. The image and
    /// the model's statistics are written to `directory`.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is missing or damaged, or if the parts are not those of the run's
    /// image.
    pub fn machine(&self, board: &Emulation, directory: &Path) -> Result<Machine> {
        let store = Store::at(&self.parts);
        let (parts, image, image_sha256) = (
            self.parts.clone(),
            self.image.clone(),
            self.image_sha256.clone(),
        );
        let file = KeptImage {
            parts,
            image,
            image_sha256,
        }
        .write(directory)?;
        let model = Model::from_files(&store.path(&self.plugin)?, &store.path(&self.model)?)?;
        Ok(model.attach(
            Machine::new(board, &file),
            self.conditions,
            &directory.join("model.json"),
        ))
    }
}

/// Returns `path` relative to `directory` if both are below one directory other than the root, else
/// `path` itself.
fn relative(directory: &Path, path: &Path) -> PathBuf {
    let shared = directory
        .components()
        .zip(path.components())
        .take_while(|(one, other)| one == other)
        .count();
    // The root is one component, and a path with `..` cannot be turned around.
    let up: Vec<_> = directory.components().skip(shared).collect();
    if shared == 0 || (shared == 1 && directory.has_root()) || up.contains(&Component::ParentDir) {
        return path.to_path_buf();
    }
    up.iter()
        .map(|_| Component::ParentDir)
        .chain(path.components().skip(shared))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Caches, Roi};
    use crate::{configuration, image, model};
    use std::fs;

    const CONDITIONS: Conditions = Conditions {
        seed: 7,
        caches: Caches::Cold,
        roi: Roi::Hint,
    };

    fn sample(guest: u8) -> Image {
        image::system_image(
            &image::tests::hypervisor(),
            image::tests::system(),
            &[guest; 8],
        )
        .unwrap()
    }

    /// Makes results with one run per guest. Returns the directory of each.
    fn results(out: &Path, guests: &[u8]) -> Vec<PathBuf> {
        let virt = configuration::emulation("virt").unwrap();
        let plugin = out.with_extension("so");
        fs::write(&plugin, "plugin").unwrap();
        let store = Store::at(&out.join("parts"));
        let model = Model::from_files(&plugin, model::of(&virt).unwrap())
            .unwrap()
            .kept_in(&store)
            .unwrap();
        let keep = |guest: &u8| {
            let directory = out.join("runs").join(guest.to_string());
            let kept = KeptRun::new("virt", &sample(*guest), &model, &store, CONDITIONS).unwrap();
            kept.write(&directory).unwrap();
            directory
        };
        guests.iter().map(keep).collect()
    }

    /// Returns the image of a kept run, or the error with its help.
    fn image_of(run: &Path) -> Result<Vec<u8>, String> {
        let scratch = tempfile::tempdir().unwrap();
        let virt = configuration::emulation("virt").unwrap();
        let made = KeptRun::read(run).and_then(|kept| kept.machine(&virt, scratch.path()));
        let explain = |error: miette::Report| {
            format!(
                "{error:#}; {}",
                error
                    .help()
                    .map(|help| help.to_string())
                    .unwrap_or_default()
            )
        };
        made.map(|_| fs::read(scratch.path().join("Image")).unwrap())
            .map_err(explain)
    }

    #[test]
    fn runs_share_what_their_images_have_in_common() {
        let scratch = tempfile::tempdir().unwrap();
        let (before, after) = (
            scratch.path().join("a,b=c"),
            scratch.path().join("elsewhere"),
        );
        let runs = results(&before, &[1, 2]);
        let names: Vec<Vec<String>> = runs
            .iter()
            .map(|run| KeptRun::read(run).unwrap().image)
            .collect();
        let shared = names[0]
            .iter()
            .filter(|name| names[1].contains(name))
            .count();
        assert!(names[0] != names[1] && shared >= 2, "{names:?}");
        // Everything that is there is needed.
        let needed = KeptRun::names_in(&before.join("runs"));
        assert_eq!(
            fs::read_dir(before.join("parts")).unwrap().count(),
            needed.len()
        );
        fs::rename(&before, &after).unwrap();
        for guest in [1, 2] {
            let run = after.join("runs").join(guest.to_string());
            assert_eq!(image_of(&run).unwrap(), sample(guest).bytes);
            let kept = KeptRun::read(&run).unwrap();
            assert_eq!(kept.conditions, CONDITIONS);
        }
    }

    #[test]
    fn what_is_missing_or_damaged_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let runs = results(&scratch.path().join("out"), &[1]);
        let run = &runs[0];
        let error = |run: &Path| image_of(run).unwrap_err();
        // The directory of a run alone, copied elsewhere.
        let alone = scratch.path().join("deep/er/alone");
        fs::create_dir_all(&alone).unwrap();
        fs::copy(run.join(KeptRun::FILE), alone.join(KeptRun::FILE)).unwrap();
        let message = error(&alone);
        assert!(
            message.contains("is missing; ") && message.contains("copy the whole directory"),
            "{message}"
        );
        // A part of the image, the plugin, and the model's file.
        let kept = KeptRun::read(run).unwrap();
        for name in [&kept.image[0], &kept.plugin, &kept.model] {
            let file = kept.parts.join(name);
            let whole = fs::read(&file).unwrap();
            fs::write(&file, &whole[..whole.len() / 2]).unwrap();
            let message = error(run);
            assert!(
                message.contains(name) && message.contains("is damaged"),
                "{message}"
            );
            fs::remove_file(&file).unwrap();
            let message = error(run);
            assert!(
                message.contains(name) && message.contains("is missing"),
                "{message}"
            );
            fs::write(&file, whole).unwrap();
        }
        image_of(run).unwrap();
        // The manifest: parts in another order, a name that leads elsewhere, half of it, none.
        let file = run.join(KeptRun::FILE);
        let text = fs::read_to_string(&file).unwrap();
        let (first, second) = (&kept.image[0], &kept.image[1]);
        let swapped = text
            .replace(first, "first")
            .replace(second, first)
            .replace("first", second);
        let refused = [
            (swapped, "machine.json was changed"),
            (
                text.replace(first, "../../../secret.gz"),
                "does not name a file of a store",
            ),
            (text[..text.len() / 2].to_owned(), "cannot read"),
            ("{}".to_owned(), "cannot read"),
        ];
        for (changed, expected) in refused {
            fs::write(&file, changed).unwrap();
            let message = error(run);
            assert!(message.contains(expected), "{message}");
        }
        fs::remove_file(&file).unwrap();
        assert!(error(run).contains("is not a kept run"));
    }

    #[test]
    fn paths_in_results_are_relative() {
        assert_eq!(
            relative(Path::new("/x/runs/one"), Path::new("/x/parts")),
            Path::new("../../parts")
        );
        assert_eq!(
            relative(Path::new("/x/runs/one"), Path::new("/y/parts")),
            Path::new("/y/parts")
        );
        assert_eq!(
            relative(Path::new("runs/one"), Path::new("runs/parts")),
            Path::new("../parts")
        );
    }
}
