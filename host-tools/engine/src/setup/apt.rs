//! Debian and Ubuntu packages, without touching the machine's own apt configuration.
//!
//! A private apt root has its own list of sources, derived from the machine's, and its own indexes
//! and cache, so that packages of another suite can be looked up and downloaded without privileges.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::process::{ProgramOutput, run_limited};
use crate::installation;
use cloison_config::guest_linux::Release;
use miette::{Diagnostic, IntoDiagnostic, Result, WrapErr, miette};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thiserror::Error;

/// One source of packages, as apt's sources files describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub uris: Vec<String>,
    pub suites: Vec<String>,
    pub components: Vec<String>,
    /// Further fields in deb822 form, such as `Signed-By`, kept unchanged.
    pub fields: Vec<(String, String)>,
}

impl Source {
    fn to_deb822(&self) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\n",
            self.uris.join(" "),
            self.suites.join(" "),
            self.components.join(" ")
        );
        for (name, value) in &self.fields {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }

    /// Returns it as apt reads it, for a system that has its keys elsewhere.
    pub fn without_key(&self) -> String {
        let mut source = self.clone();
        source
            .fields
            .retain(|(name, _)| !name.eq_ignore_ascii_case("signed-by"));
        source.to_deb822()
    }

    /// Returns whether it has the main part of a suite.
    pub fn serves(&self, suite: &str) -> bool {
        self.suites.iter().any(|served| served == suite)
            && self.components.iter().any(|name| name == "main")
    }
}

/// Returns the machine's enabled binary sources.
pub fn sources() -> Vec<Source> {
    let root = Path::new("/etc/apt");
    let mut files = vec![root.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(root.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => found.extend(text.lines().filter_map(parse_line)),
            Some("sources") => found.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    found
}

/// `deb [option=value …] URI suite component…`
fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let mut rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t']) {
        return None;
    }
    rest = rest.trim_start();
    let mut fields = Vec::new();
    if let Some(bracket) = rest.strip_prefix('[') {
        let (options, behind) = bracket.split_once(']')?;
        for option in options.split_whitespace() {
            let (name, value) = option.split_once('=')?;
            let field = match name {
                "arch" => "Architectures",
                "signed-by" => "Signed-By",
                "trusted" => "Trusted",
                "check-valid-until" => "Check-Valid-Until",
                _ => continue,
            };
            fields.push((field.to_owned(), value.replace(',', " ")));
        }
        rest = behind;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    let uri = words.next().filter(|uri| !uri.starts_with("cdrom:"))?;
    let suite = words.next()?;
    Some(Source {
        uris: vec![uri],
        suites: vec![suite],
        components: words.collect(),
        fields,
    })
}

/// Parses stanzas of `Field: value`; lines that start with a space continue a value.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .chain([""])
    {
        if line.trim().is_empty() {
            found.extend(from_stanza(std::mem::take(&mut stanza)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

fn from_stanza(stanza: Vec<(String, String)>) -> Option<Source> {
    let words = |field: &str| -> Vec<String> {
        let of_field = stanza
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(field));
        of_field
            .flat_map(|(_, value)| value.split_whitespace().map(str::to_owned))
            .collect()
    };
    let enabled = words("Enabled").first().is_none_or(|value| value != "no");
    let binary = words("Types").iter().any(|kind| kind == "deb");
    let (uris, suites, components) = (words("URIs"), words("Suites"), words("Components"));
    if !enabled || !binary || uris.is_empty() || suites.is_empty() {
        return None;
    }
    let shown = ["enabled", "types", "uris", "suites", "components"];
    let fields = stanza
        .into_iter()
        .filter(|(name, _)| !shown.contains(&name.to_ascii_lowercase().as_str()))
        .collect();
    Some(Source {
        uris,
        suites,
        components,
        fields,
    })
}

/// The distribution of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// `debian`, `ubuntu`, …
    pub id: String,
    /// `bookworm`, `noble`, …
    pub codename: String,
}

/// Determines the distribution of this machine.
pub fn distribution() -> Option<Distribution> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned())
    };
    Some(Distribution {
        id: value("ID")?,
        codename: value("VERSION_CODENAME")?,
    })
}

/// Returns the entry for `suite` from the mirror that serves this distribution's own suite.
pub fn derive(suite: &str) -> Option<Source> {
    let distribution = distribution()?;
    let sources = sources();
    let own = sources
        .iter()
        .find(|source| source.serves(&distribution.codename))?;
    Some(Source {
        suites: vec![suite.to_owned()],
        ..own.clone()
    })
}

/// The suites of a release that have its packages, by what follows the codename.
const SUITES: [&str; 3] = ["", "-updates", "-security"];
/// The keys of Debian's releases, past and next, where the package `debian-archive-keyring` has
/// them.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Why no package of a Debian release can be found.
#[derive(Debug, Error, Diagnostic)]
#[error("no apt source of this machine is a mirror of Debian")]
#[diagnostic(help(
    "add one to /etc/apt/sources.list.d, with the suite {release} and the component main; on \
     Ubuntu, install debian-archive-keyring before"
))]
struct NoMirror {
    release: String,
}

/// The names of Debian's development releases, which no release's list has.
const UNRELEASED: [&str; 3] = ["sid", "unstable", "testing"];

/// Returns the sources of a Debian release: those of this machine that are mirrors of Debian, with
/// that release's suites instead.
///
/// # Errors
/// If none of this machine's sources is a mirror of Debian.
pub fn debian(release: &str) -> Result<Vec<Source>> {
    let own = distribution().filter(|distribution| distribution.id == "debian");
    let mut codenames: Vec<&str> = Release::ALL.iter().map(|release| release.name()).collect();
    codenames.extend(UNRELEASED);
    codenames.extend(
        own.iter()
            .map(|distribution| distribution.codename.as_str()),
    );
    let found = of_release(&sources(), &codenames, release, keyring());
    if found.is_empty() {
        Err(NoMirror {
            release: release.to_owned(),
        }
        .into())
    } else {
        Ok(found)
    }
}

/// Returns the path of the keys of Debian's releases, if they are installed.
pub fn keyring() -> Option<&'static str> {
    KEYRINGS.into_iter().find(|path| Path::new(path).is_file())
}

/// Returns the sources that serve one of `codenames`, each for `release` instead.
fn of_release(
    sources: &[Source],
    codenames: &[&str],
    release: &str,
    keyring: Option<&str>,
) -> Vec<Source> {
    let mut found: Vec<Source> = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.components.iter().any(|name| name == "main"))
    {
        let served = |ending: &str| {
            codenames.iter().any(|name| {
                source
                    .suites
                    .iter()
                    .any(|suite| suite.strip_prefix(name) == Some(ending))
            })
        };
        let suites: Vec<String> = SUITES
            .iter()
            .filter(|ending| served(ending))
            .map(|ending| format!("{release}{ending}"))
            .collect();
        if suites.is_empty() {
            continue;
        }
        let mut derived = Source {
            suites,
            components: vec!["main".to_owned()],
            ..source.clone()
        };
        if let Some(keyring) = keyring {
            // The key of one release does not verify another's.
            derived
                .fields
                .retain(|(name, _)| !name.eq_ignore_ascii_case("signed-by"));
            derived
                .fields
                .push(("Signed-By".to_owned(), keyring.to_owned()));
        }
        // A machine may have sources of several releases of one mirror.
        if !found
            .iter()
            .any(|known| (&known.uris, &known.suites) == (&derived.uris, &derived.suites))
        {
            found.push(derived);
        }
    }
    found
}

/// A private apt root.
#[derive(Debug)]
pub struct PrivateApt {
    directory: PathBuf,
    /// Architecture of the packages, if it is not the machine's.
    architecture: Option<&'static str>,
    /// Held as long as the root is used: apt fails if another apt reads the same lists.
    _lock: File,
}

impl PrivateApt {
    /// Creates a root with only these sources. `name` distinguishes roots. Waits while another
    /// thread or program uses the same one, so never create two with one name at the same time.
    pub fn new(name: &str, sources: &[Source]) -> Result<Self> {
        let directory = installation::cache_dir().join("apt").join(name);
        let write = || -> std::io::Result<File> {
            std::fs::create_dir_all(&directory)?;
            let lock = File::create(directory.join("in-use"))?;
            lock.lock()?;
            for part in ["parts", "lists/partial", "cache/archives/partial"] {
                std::fs::create_dir_all(directory.join(part))?;
            }
            let text: Vec<_> = sources.iter().map(Source::to_deb822).collect();
            std::fs::write(directory.join("parts/cloison.sources"), text.join("\n"))?;
            Ok(lock)
        };
        let lock = write()
            .into_diagnostic()
            .wrap_err_with(|| miette!("cannot write {}", directory.display()))?;
        Ok(Self {
            directory,
            architecture: None,
            _lock: lock,
        })
    }

    /// Creates a root for packages of a foreign architecture.
    pub fn foreign(name: &str, sources: &[Source], architecture: &'static str) -> Result<Self> {
        let mut sources = sources.to_vec();
        for source in &mut sources {
            source
                .fields
                .retain(|(name, _)| !name.eq_ignore_ascii_case("architectures"));
            source
                .fields
                .push(("Architectures".to_owned(), architecture.to_owned()));
        }
        Ok(Self {
            architecture: Some(architecture),
            ..Self::new(name, &sources)?
        })
    }

    /// Returns the options that make apt use this root.
    pub fn options(&self) -> Vec<String> {
        let at = |part: &str| self.directory.join(part).display().to_string();
        [
            ("Dir::Etc::SourceList", "/dev/null".to_owned()),
            ("Dir::Etc::SourceParts", at("parts")),
            ("Dir::State::Lists", at("lists")),
            ("Dir::Cache", at("cache")),
            // apt's sandbox user cannot write into a home directory.
            ("APT::Sandbox::User", String::new()),
            ("Acquire::Languages", "none".to_owned()),
            // By default apt waits longer and longer between four attempts, even without any
            // network.
            ("Acquire::Retries", "1".to_owned()),
        ]
        .into_iter()
        .chain(
            self.architecture
                .map(|name| ("APT::Architecture", name.to_owned())),
        )
        .chain(
            self.architecture
                .map(|name| ("APT::Architectures", name.to_owned())),
        )
        .flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")])
        .collect()
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(self.options()).args(arguments);
        command
    }

    /// Downloads the package indexes.
    pub fn update(&self, what: &str) -> Result<ProgramOutput> {
        run_limited(
            self.apt("apt-get", &["update", "-q"]),
            what,
            Duration::from_secs(180),
        )
    }

    /// Returns the versions of `package`, newest first.
    pub fn versions(&self, package: &str) -> Result<Vec<String>> {
        let output = self
            .apt("apt-cache", &["madison", package])
            .output()
            .into_diagnostic()?;
        Ok(versions(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Returns the packages that `package` depends on.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let output = self
            .apt("apt-cache", &["depends", package])
            .output()
            .into_diagnostic()?;
        Ok(dependencies(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Downloads `package` (a name, or `name=version`) and unpacks it below `to`, without
    /// installing it.
    pub fn unpack(&self, package: &str, to: &Path) -> Result<ProgramOutput> {
        let scratch = tempfile::tempdir().into_diagnostic()?;
        let mut download = self.apt("apt-get", &["download", "-q", package]);
        download.current_dir(scratch.path());
        let done = run_limited(
            download,
            &format!("downloading {package}"),
            Duration::from_secs(900),
        )?;
        if !done.success {
            return Ok(done);
        }
        let files = std::fs::read_dir(scratch.path()).into_diagnostic()?;
        let archive = files
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|e| e == "deb"));
        let archive =
            archive.ok_or_else(|| miette!("apt-get downloaded no package file for {package}"))?;
        std::fs::create_dir_all(to).into_diagnostic()?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(archive).arg(to);
        run_limited(
            unpack,
            &format!("unpacking {package}"),
            Duration::from_secs(300),
        )
    }
}

/// Returns the version column of `apt-cache madison`.
pub fn versions(madison: &str) -> Vec<String> {
    madison
        .lines()
        .filter_map(|line| Some(line.split('|').nth(1)?.trim().to_owned()))
        .collect()
}

/// Returns the packages that `apt-cache depends` lists as dependencies: all alternatives, but no
/// virtual packages (`<name>`).
fn dependencies(depends: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.trim().trim_start_matches('|');
        let name = line
            .strip_prefix("Depends: ")
            .or_else(|| line.strip_prefix("PreDepends: "))?;
        (!name.starts_with('<')).then(|| name.to_owned())
    };
    depends.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn one_line_entries() {
        let source = parse_line(
            "deb [arch=amd64,arm64 signed-by=/k.gpg lang=none] http://m/debian bookworm main \
             contrib # x",
        );
        let fields = vec![
            ("Architectures".into(), "amd64 arm64".into()),
            ("Signed-By".into(), "/k.gpg".into()),
        ];
        let expected = Source {
            uris: words(&["http://m/debian"]),
            suites: words(&["bookworm"]),
            components: words(&["main", "contrib"]),
            fields,
        };
        assert_eq!(source, Some(expected));
        for line in [
            "",
            "# deb http://m s main",
            "deb-src http://m s main",
            "deb cdrom:[x]/ s main",
            "deb http://m",
        ] {
            assert_eq!(parse_line(line), None, "{line:?}");
        }
    }

    #[test]
    fn stanzas_keep_their_keys_and_disabled_ones_are_left_out() {
        let text = "# c\nTypes: deb deb-src\nURIs: http://m/debian\nSuites: trixie trixie-updates\n\
            Components: main\n\
                    Signed-By:\n -----BEGIN\n .\n key\n\nEnabled: no\nTypes: deb\nURIs: http://x\n\
                    Suites: y\n\n\
                    Types: deb-src\nURIs: http://x\nSuites: y\n";
        let sources = parse_deb822(text);
        assert_eq!(sources.len(), 1);
        assert!(sources[0].serves("trixie-updates") && !sources[0].serves("trixie-backports"));
        assert_eq!(
            sources[0].fields,
            [("Signed-By".to_owned(), "\n -----BEGIN\n .\n key".to_owned())]
        );
        assert_eq!(parse_deb822(&sources[0].to_deb822()), sources);
    }

    #[test]
    fn another_release_comes_from_the_same_mirrors() {
        let text = "Types: deb\nURIs: http://m/debian\n\
            Suites: bookworm bookworm-updates bookworm-backports\n\
                    Components: main contrib\nSigned-By: /bookworm.gpg\n\n\
                    Types: deb\nURIs: http://m/debian-security\nSuites: bookworm-security\n\
                    Components: main\n\n\
                    Types: deb\nURIs: http://m/debian\nSuites: trixie trixie-updates\n\
                    Components: main\n\n\
                    Types: deb\nURIs: http://other\nSuites: bookworm-pgdg\nComponents: main\n\n\
                    Types: deb\nURIs: http://third\nSuites: nodistro\nComponents: main\n";
        let sources = parse_deb822(text);
        let derived = of_release(
            &sources,
            &["bookworm", "trixie"],
            "trixie",
            Some("/all.gpg"),
        );
        let signed = vec![("Signed-By".to_owned(), "/all.gpg".to_owned())];
        let source = |uri: &str, suites: &str| Source {
            uris: words(&[uri]),
            suites: suites.split(' ').map(str::to_owned).collect(),
            components: words(&["main"]),
            fields: signed.clone(),
        };
        let expected = [
            source("http://m/debian", "trixie trixie-updates"),
            source("http://m/debian-security", "trixie-security"),
        ];
        assert_eq!(derived, expected);
        // Without Debian's keyring the source's own key has to do.
        let derived = of_release(&sources, &["bookworm"], "bookworm", None);
        assert_eq!(derived[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(
            derived[0].fields,
            [("Signed-By".to_owned(), "/bookworm.gpg".to_owned())]
        );
        assert_eq!(of_release(&sources, &["noble"], "trixie", None), []);
    }

    #[test]
    fn dependencies_of_a_package() {
        let text =
            "linux-image-rt-arm64\n  Depends: linux-image-6.1.0-56-rt-arm64\n  Suggests: x\n";
        assert_eq!(dependencies(text), ["linux-image-6.1.0-56-rt-arm64"]);
        let text = "x\n  PreDepends: a\n |Depends: b\n  Depends: c\n  Depends: <perl:any>\n    perl\n  Recommends: d\n";
        assert_eq!(dependencies(text), ["a", "b", "c"]);
    }

    #[test]
    fn madison_versions() {
        let text = " qemu-system-arm | 1:10.0.2+ds-2~bpo12+1 | http://m bookworm-backports/main \
                    amd64 Packages\n";
        assert_eq!(versions(text), ["1:10.0.2+ds-2~bpo12+1"]);
        assert!(versions("").is_empty());
    }
}
