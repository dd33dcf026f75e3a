//! The folder that a board's boot loader fetches images from: U-Boot's script, and the next image.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::files::{Claim, write_atomic};
use cloison_engine::u_boot;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The name under which U-Boot fetches the script: of the text, and of the form that it looks
/// for itself on a network (`boot_script_dhcp`).
const SCRIPTS: [&str; 2] = ["boot.cmd", "boot.scr.uimg"];
/// The next image.
const IMAGE: &str = "cloison-next.img";
/// What the script says when it starts an image.
pub const STARTING: &str = "Cloison: starting the next image";
/// What it says when there is none.
pub const WAITING: &str = "Cloison: waiting for the next image";

/// The folder has another script.
#[derive(Debug, Error, Diagnostic)]
#[error("{} is another script", file.display())]
#[diagnostic(help("move it away, or have the TFTP server offer another folder"))]
pub struct OtherScript {
    /// The script.
    file: PathBuf,
}

/// The folder, claimed for one command.
#[derive(Debug)]
pub struct Served {
    folder: PathBuf,
    _claim: Claim,
}

impl Served {
    /// Claims the folder, takes an image of an earlier command out of it, and writes the script.
    ///
    /// # Errors
    ///
    /// If there is another script, or a file cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        let text = script();
        let files = [text.clone().into_bytes(), u_boot::wrapped(&text)];
        let written = || {
            SCRIPTS
                .into_iter()
                .map(|name| folder.join(name))
                .zip(&files)
        };
        let is_other = |file: &Path, ours: &[u8]| {
            std::fs::read(file).is_ok_and(|found| {
                found != ours && !String::from_utf8_lossy(&found).contains(STARTING)
            })
        };
        if let Some((file, _)) = written().find(|(file, ours)| is_other(file, ours)) {
            return Err(OtherScript { file }.into());
        }
        let claim = Claim::wait(folder, "the images for a board")?;
        let served = Self {
            folder: folder.to_path_buf(),
            _claim: claim,
        };
        served.withdraw()?;
        for (file, bytes) in written() {
            write_atomic(&file, bytes)?;
        }
        Ok(served)
    }

    /// Offers an image; the board never sees a part of it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn offer(&self, image: &[u8]) -> Result<()> {
        write_atomic(&self.folder.join(IMAGE), image)
    }

    /// Offers no image: the board waits after its next reset.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn withdraw(&self) -> Result<()> {
        let file = self.folder.join(IMAGE);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)
                .into_diagnostic()
                .wrap_err_with(|| miette!("cannot remove {}", file.display())),
            _ => Ok(()),
        }
    }
}

/// Returns U-Boot's script. A server that does not answer counts as one without an image: U-Boot
/// asks again.
fn script() -> String {
    format!(
        "\
if test -z \"${{kernel_addr_r}}\"; then setenv kernel_addr_r 0x18000000; fi
if test -z \"${{serverip}}\"; then setenv autoload no; dhcp; fi
setenv netretry no
while true; do
if tftpboot ${{kernel_addr_r}} {IMAGE}; then
echo {STARTING}
booti ${{kernel_addr_r}} - ${{fdtcontroladdr}}
fi
echo {WAITING}
sleep 0.3
done
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_script_and_one_image() {
        let folder = tempfile::tempdir().expect("a directory");
        let image = folder.path().join(IMAGE);
        std::fs::write(&image, "of an earlier command").expect("a file");
        let served = Served::open(folder.path()).expect("it is free");
        assert!(!image.exists());
        served.offer(b"next").expect("written");
        assert_eq!(std::fs::read(&image).expect("there"), b"next");
        served.withdraw().expect("removed");
        served.withdraw().expect("it is gone already");
        drop(served);
        Served::open(folder.path()).expect("the script is ours");
        std::fs::write(folder.path().join("boot.scr.uimg"), "echo hello").expect("a file");
        let error = Served::open(folder.path()).expect_err("it is another one");
        assert!(
            error
                .to_string()
                .ends_with("boot.scr.uimg is another script")
        );
    }
}
