//! The programs in a guest's Linux that an experiment measures: those of its file, and the user's own
//! as black boxes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::overrides::{self, Value};
use cloison_config::document::{Field, Table, closest};
use cloison_config::suggest;
use cloison_engine::{files, installation};
use miette::{Result, WrapErr, miette};
use object::elf::{FileHeader64, PT_INTERP, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};
use std::path::{Path, PathBuf};

/// The label of a program's only input.
const DEFAULT_SIZE: &str = "default";
/// The function that is observed if none is named.
const DEFAULT_FUNCTION: &str = "main";
/// Where the RAM disk has the files that it is given.
const IN_GUEST: &str = "/usr/bin";
/// Maximum length of a name, and of a size: what a guest prints has both in a name.
const LONGEST: usize = 12;
/// How `--program` is written.
const FORM: &str = "NAME[.SIZE]=PATH[@FUNCTION][,ARGUMENT…]";

/// A program in a guest's Linux, with the arguments for one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in reports.
    pub name: String,
    /// The name of its input, which in the paper is a size.
    pub size: String,
    /// What the guest starts: a word for its shell.
    path: String,
    /// The arguments, as words for the guest's shell.
    arguments: String,
    /// The options of `bbprof` that name the observed function.
    function: String,
    /// Whether `--quick` measures it.
    is_quick: bool,
    /// What the guest needs for it, if it is the user's.
    own: Option<Own>,
}

/// A program of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    /// Its path on this machine.
    path: PathBuf,
    /// SHA-256 of the file.
    hash: String,
    /// It and what arguments name, under the names that they have in the guest.
    files: Vec<PathBuf>,
    /// Commands of the guest's shell by which files have the names that the user gave them.
    prepare: String,
}

impl Program {
    /// Reads a `[[program]]` of an experiment's file.
    pub fn read(mut table: Table<'_>) -> Option<Self> {
        let name = table.required_value("name", "name the program", read_name);
        if let Some(name) = &name {
            table.rename(name.value);
        }
        let size = table.value("size", read_name);
        let command = table.required_value("command", "write the program", |field| {
            field.string("a program with its arguments")
        });
        let help = "name the function that is observed";
        let function = table.required_value("function", help, Field::text);
        let is_quick = table.flag("quick");
        table.finish();
        let command = command?.value;
        let (path, arguments) = command.split_once(' ').unwrap_or((command, ""));
        Some(Self {
            name: name?.value.to_owned(),
            size: size.or(DEFAULT_SIZE)?.to_owned(),
            path: path.to_owned(),
            arguments: arguments.to_owned(),
            function: function_options(function?.value),
            is_quick,
            own: None,
        })
    }

    /// Returns whether `--quick` measures it.
    pub const fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Returns its name with that of its input.
    pub fn label(&self) -> String {
        match self.size.as_str() {
            DEFAULT_SIZE => self.name.clone(),
            size => format!("{}.{size}", self.name),
        }
    }

    /// Returns what tells the user's own program from any other, if it is one.
    pub fn origin(&self) -> Option<String> {
        let own = self.own.as_ref()?;
        let arguments = match self.arguments.as_str() {
            "" => String::new(),
            some => format!(" {some}"),
        };
        Some(format!(
            "{}: {}{arguments} (sha256 {}…), observed: {}",
            self.label(),
            installation::display(&own.path),
            &own.hash[..12],
            self.function
        ))
    }

    /// Returns the user's files that the guest needs for it.
    pub fn files(&self) -> &[PathBuf] {
        self.own.as_ref().map_or(&[], |own| &own.files)
    }

    /// Returns whether another one is the same program, with any arguments.
    pub fn has_file_of(&self, other: &Self) -> bool {
        let hash = |program: &Self| program.own.as_ref().map(|own| own.hash.clone());
        let is_same = match (hash(self), hash(other)) {
            (None, None) => self.path == other.path,
            (one, other) => one == other,
        };
        is_same && self.function == other.function
    }

    /// Returns what placeholders of an axis have; `inputs` are the programs of its name.
    pub fn value(&self, inputs: &[&Self]) -> Value {
        let command = format!("{} {}", self.path, self.arguments);
        let each = inputs
            .iter()
            .map(|input| format!("-- {} {}", input.size, input.arguments));
        let texts = [
            ("name", self.name.clone()),
            ("size", self.size.clone()),
            ("command", command.trim_end().to_owned()),
            ("function", self.function.clone()),
            ("inputs", each.collect::<Vec<_>>().join(" ")),
        ];
        let texts = texts.map(|(key, text)| (key.to_owned(), Value::String(text)));
        Value::Table(texts.into_iter().collect())
    }
}

/// Returns the options of `bbprof` for a function, or for an address.
fn function_options(function: &str) -> String {
    match function.starts_with("0x") {
        true => format!("--at {function}"),
        false => format!("-s {function}"),
    }
}

fn read_name<'a>(field: &Field<'a>) -> Option<&'a str> {
    let name = field.string("a name")?;
    if !is_name(name) {
        let error = field.error(format!("`{name}` is no name of a program or an input"));
        field.push(error.label("not a name").help(name_help()));
        return None;
    }
    Some(name)
}

fn is_name(name: &str) -> bool {
    let is_letter =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_letter)
}

fn name_help() -> String {
    format!("a name has small letters, digits and _, at most {LONGEST}")
}

/// Returns the programs that `--program` chooses: by a name alone those of the file, with a path the
/// user's own, whose files get links in `place`.
///
/// # Errors
///
/// If a text is not of the form, a name is not of a program, or of two, or a file is no program that
/// the guest can start.
pub fn choose(texts: &[String], shipped: &[Program], place: &Path) -> Result<Vec<Program>> {
    let mut chosen: Vec<Program> = vec![];
    for text in texts {
        let more = match text.split_once('=') {
            None => of_file(text, shipped)?,
            Some((label, rest)) => {
                let (name, size) = parts(label)?;
                let own = own(name, size, rest, place);
                vec![own.wrap_err_with(|| miette!("--program {label}"))?]
            }
        };
        for program in more {
            if chosen.iter().any(|other| other.label() == program.label()) {
                return Err(miette!(
                    help = "give each program, or each input of one, a name: NAME.SIZE=PATH",
                    "--program: `{}` is named twice",
                    program.label()
                ));
            }
            chosen.push(program);
        }
    }
    Ok(chosen)
}

/// Returns the name and the input that a label has.
fn parts(label: &str) -> Result<(&str, &str)> {
    let (name, size) = label.split_once('.').unwrap_or((label, DEFAULT_SIZE));
    match [name, size].into_iter().find(|part| !is_name(part)) {
        None => Ok((name, size)),
        Some(wrong) => Err(miette!(
            help = format!("write --program {FORM}; {}", name_help()),
            "--program: `{wrong}` is no name of a program or an input"
        )),
    }
}

/// Returns the programs of the file with this name, or name and input.
fn of_file(label: &str, shipped: &[Program]) -> Result<Vec<Program>> {
    let is_meant = |program: &&Program| program.label() == label || program.name == label;
    let found: Vec<Program> = shipped.iter().filter(is_meant).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known: Vec<String> = shipped.iter().map(Program::label).collect();
    let help = suggest(label, "programs", known.iter().map(String::as_str));
    Err(miette!(
        help = format!("{help}; one of your own: --program {FORM}"),
        "--program: the experiment has no program `{label}`"
    ))
}

/// Returns the user's program, from what follows its name.
fn own(name: &str, size: &str, rest: &str, place: &Path) -> Result<Program> {
    let mut words = rest.split(',');
    let first = words.next().unwrap_or_default();
    let (path, function) = match first.rsplit_once('@') {
        Some((path, function)) if !function.is_empty() => (path, function),
        _ => (first, DEFAULT_FUNCTION),
    };
    let path = file(path, "program", &format!("write --program {FORM}"))?;
    let hash = check(&path, function)?;
    let mut inside = GuestFiles::new(&format!("{name}.{size}"), place)?;
    let program = inside.add(&path)?;
    let arguments = words.map(|word| match word.strip_prefix('@') {
        None => quoted(word),
        Some(data) => inside.argument(data),
    });
    let arguments = arguments.collect::<Result<Vec<_>>>()?.join(" ");
    Ok(Program {
        name: name.to_owned(),
        size: size.to_owned(),
        path: program,
        arguments,
        function: function_options(function),
        is_quick: true,
        own: Some(Own {
            path,
            hash,
            files: inside.files,
            prepare: inside.prepare,
        }),
    })
}

/// The files of a program, which have one folder in the RAM disk, and there the program's name
/// before their own.
struct GuestFiles<'a> {
    label: String,
    /// The folder of links to them, under the names that they have in the guest.
    place: &'a Path,
    files: Vec<PathBuf>,
    /// Number of folders for arguments.
    folders: usize,
    prepare: String,
}

impl<'a> GuestFiles<'a> {
    fn new(label: &str, place: &'a Path) -> Result<Self> {
        std::fs::create_dir_all(place)
            .map_err(|error| miette!("cannot create {}: {error}", place.display()))?;
        Ok(Self {
            label: label.to_owned(),
            place,
            files: vec![],
            folders: 0,
            prepare: String::new(),
        })
    }

    /// Adds a file, and returns its path in the guest.
    fn add(&mut self, path: &Path) -> Result<String> {
        let name = format!("{}.{}.{}", self.label, self.files.len(), base(path));
        let link = self.place.join(&name);
        let made = std::fs::remove_file(&link)
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .and_then(|()| std::os::unix::fs::symlink(path, &link));
        made.map_err(|error| miette!("cannot write {}: {error}", link.display()))?;
        self.files.push(link);
        Ok(format!("{IN_GUEST}/{name}"))
    }

    /// Adds what an argument names, a file or the files of a folder, and returns the path that the
    /// program is given.
    fn argument(&mut self, data: &str) -> Result<String> {
        let help = "an argument @PATH is a file of this machine, or a folder with files";
        let path = Path::new(data);
        let mut inside = vec![];
        if path.is_dir() {
            let entries = std::fs::read_dir(path);
            let entries = entries.map_err(|error| miette!("cannot read {data}: {error}"))?;
            inside.extend(entries.flatten().map(|entry| entry.path()));
            inside.retain(|path| path.is_file());
            inside.sort();
            if inside.is_empty() {
                return Err(miette!(help = help, "the folder {data} has no files"));
            }
        } else {
            inside.push(path.to_path_buf());
        }
        self.folders += 1;
        let folder = format!("/tmp/given/{}/{}", self.label, self.folders);
        self.prepare += &format!("mkdir -p {folder}; ");
        let mut last = String::new();
        for path in &inside {
            let found = file(&path.to_string_lossy(), "file", help)?;
            // By the name that the user knows, and not that of what a link leads to.
            last = format!("{folder}/{}", base(path));
            let from = self.add(&found)?;
            self.prepare += &format!("ln -s {from} {last}; ");
        }
        Ok(if path.is_dir() { folder } else { last })
    }
}

/// Returns the whole path of a file whose name the guest's shell can be given.
fn file(path: &str, what: &str, help: &str) -> Result<PathBuf> {
    let found = Path::new(path).canonicalize();
    let found =
        found.map_err(|error| miette!(help = help, "there is no {what} {path}: {error}"))?;
    if !found.is_file() {
        return Err(miette!(help = help, "{path} is not a file"));
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._+-".contains(letter);
    let is_plain = |name: &str| !name.is_empty() && name.chars().all(plain);
    let names = [base(&found), base(Path::new(path))];
    if !names.into_iter().all(is_plain) {
        return Err(miette!(
            help = "rename it: letters, digits and `._+-`",
            "the guest's shell cannot be given the name of {path}"
        ));
    }
    Ok(found)
}

fn base(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// Returns an argument as a word for the guest's shell.
fn quoted(word: &str) -> Result<String> {
    if word == "--" {
        return Err(miette!(
            help = "give the program its other arguments alone: `--` separates its inputs",
            "no argument can be `--`"
        ));
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._+-/:=%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    if word
        .chars()
        .any(|letter| letter == '\'' || letter.is_control())
    {
        return Err(miette!(
            help = "put it into a file, and give that: @PATH",
            "the guest's shell cannot be given the argument {word:?}"
        ));
    }
    Ok(format!("'{word}'"))
}

/// Returns the hash of a program that the guest can start, and that has the function.
fn check(path: &Path, function: &str) -> Result<String> {
    let shown = installation::display(path);
    let static_help = "build it for AArch64 and without shared libraries: \
                       `aarch64-linux-gnu-gcc -static -O2 -o my-tool my-tool.c`";
    let bytes = files::read(path, files::IMAGE)?;
    let Ok(elf) = object::File::parse(&*bytes) else {
        return Err(miette!(
            help = static_help,
            "{shown} is not an ELF file for AArch64"
        ));
    };
    let (format, architecture) = (elf.format(), elf.architecture());
    if format != object::BinaryFormat::Elf || architecture != object::Architecture::Aarch64 {
        let found = format!("{format:?} for {architecture:?}");
        return Err(miette!(
            help = static_help,
            "{shown} is not an ELF file for AArch64, but {found}"
        ));
    }
    if !matches!(
        elf.kind(),
        object::ObjectKind::Executable | object::ObjectKind::Dynamic
    ) {
        return Err(miette!(help = static_help, "{shown} is not linked"));
    }
    let header = FileHeader64::<LittleEndian>::parse(&*bytes);
    let segments = header.and_then(|header| header.program_headers(LittleEndian, &*bytes));
    let is_interpreter =
        |segment: &ProgramHeader64<LittleEndian>| segment.p_type(LittleEndian) == PT_INTERP;
    if segments.is_ok_and(|segments| segments.iter().any(is_interpreter)) {
        return Err(miette!(
            help = static_help,
            "{shown} is linked dynamically, and the guest has no shared libraries"
        ));
    }
    let mut functions: Vec<String> = elf
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok().map(readable))
        .collect();
    functions.sort();
    if let Some(address) = function.strip_prefix("0x") {
        let is_number = u64::from_str_radix(address, 16).is_ok();
        return match is_number {
            true => Ok(files::sha256(&bytes)),
            false => Err(miette!(
                help = "write it as `nm` and `objdump` do: @0x400580",
                "`{function}` is no address"
            )),
        };
    }
    if functions.is_empty() {
        return Err(miette!(
            help = "name the function by its address (@0x400580), or build it without `strip`",
            "{shown} has no symbols, so that `{function}` cannot be found"
        ));
    }
    if !functions.iter().any(|known| known == function) {
        // A static program has thousands, so that not all are listed.
        let near = closest(function, functions.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        return Err(miette!(
            help = format!("name another one: PATH@FUNCTION; `nm` lists them{near}"),
            "{shown} has no function `{function}`"
        ));
    }
    Ok(files::sha256(&bytes))
}

/// Returns a symbol's name as `bbprof` takes it: of a Rust function, its path.
fn readable(name: &str) -> String {
    rustc_demangle::try_demangle(name).map_or_else(|_| name.to_owned(), |path| format!("{path:#}"))
}

/// Adds the user's programs to the RAM disk of a VM's Linux guest, and what prepares them before
/// its command.
///
/// # Errors
///
/// If the VM has no command.
pub fn add(system: &mut Value, vm: &str, programs: &[Program]) -> Result<(), String> {
    let own: Vec<&Own> = programs.iter().filter_map(|it| it.own.as_ref()).collect();
    if own.is_empty() {
        return Ok(());
    }
    let at = |key: &str| format!("vm.{vm}.image.{key}");
    let [files, command] = ["programs", "exec"].map(&at);
    let files = overrides::get(system, &files).filter_map(Value::as_array);
    let mut files: Vec<Value> = files.flatten().cloned().collect();
    let command = overrides::get(system, &command).find_map(Value::as_str);
    let command = command.ok_or_else(|| format!("VM `{vm}` has no `exec` to run programs"))?;
    let prepare: String = own.iter().map(|own| own.prepare.as_str()).collect();
    let command = format!("{prepare}{command}");
    let more = own.iter().flat_map(|own| &own.files);
    files.extend(more.map(|file| Value::String(file.display().to_string())));
    for (key, value) in [
        ("programs", Value::Array(files)),
        ("exec", Value::String(command)),
    ] {
        overrides::set(system, &overrides::Path::parse(&at(key))?, &value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(texts: &[&str]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let place = tempfile::tempdir().expect("a directory");
        let report = choose(&texts, &shipped(), place.path()).expect_err("it is refused");
        let causes: Vec<String> = report.chain().map(ToString::to_string).collect();
        causes.join(": ")
    }

    fn shipped() -> Vec<Program> {
        let program = |size: &str| Program {
            name: "matmul".to_owned(),
            size: size.to_owned(),
            path: "bench".to_owned(),
            arguments: format!("matmul {size}"),
            function: "-s run".to_owned(),
            is_quick: false,
            own: None,
        };
        vec![program("small"), program("large")]
    }

    #[test]
    fn a_name_alone_is_a_program_of_the_file() {
        let place = tempfile::tempdir().expect("a directory");
        let labels = |text: &str| {
            let chosen = choose(&[text.to_owned()], &shipped(), place.path()).expect("it is one");
            chosen.iter().map(Program::label).collect::<Vec<_>>()
        };
        assert_eq!(labels("matmul"), ["matmul.small", "matmul.large"]);
        assert_eq!(labels("matmul.large"), ["matmul.large"]);
        assert_eq!(
            refused(&["matmul", "matmul.large"]),
            "--program: `matmul.large` is named twice"
        );
    }

    #[test]
    fn what_no_guest_can_start_is_refused() {
        assert_eq!(
            refused(&["matmull"]),
            "--program: the experiment has no program `matmull`"
        );
        assert_eq!(
            refused(&["Mine=x"]),
            "--program: `Mine` is no name of a program or an input"
        );
        // A program of this machine.
        let there = std::env::current_exe().expect("the test program");
        let host = refused(&[&format!("mine={}", there.display())]);
        assert!(host.contains("is not an ELF file for AArch64"), "{host}");
        let none = refused(&["mine=/none/at/all"]);
        assert!(
            none.starts_with("--program mine: there is no program /none/at/all"),
            "{none}"
        );
    }

    #[test]
    fn arguments_are_words_for_the_guests_shell() {
        assert_eq!(quoted("-n=3").expect("plain"), "-n=3");
        assert_eq!(quoted("a b").expect("quoted"), "'a b'");
        assert_eq!(quoted("").expect("quoted"), "''");
        for word in ["it's", "a\nb", "--"] {
            quoted(word).expect_err(word);
        }
    }

    #[test]
    fn files_have_the_names_that_the_user_gave_them() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        std::fs::create_dir(&data).expect("a directory");
        for name in ["1.bmp", "2.bmp"] {
            std::fs::write(data.join(name), "x").expect("a file");
        }
        let links = place.path().join("links");
        let mut files = GuestFiles::new("mser.vga", &links).expect("a directory");
        let folder = files
            .argument(&data.display().to_string())
            .expect("a folder");
        assert_eq!(folder, "/tmp/given/mser.vga/1");
        let one = data.join("2.bmp").display().to_string();
        let file = files.argument(&one).expect("a file");
        assert_eq!(file, "/tmp/given/mser.vga/2/2.bmp");
        assert_eq!(
            files.prepare,
            "mkdir -p /tmp/given/mser.vga/1; \
             ln -s /usr/bin/mser.vga.0.1.bmp /tmp/given/mser.vga/1/1.bmp; \
             ln -s /usr/bin/mser.vga.1.2.bmp /tmp/given/mser.vga/1/2.bmp; \
             mkdir -p /tmp/given/mser.vga/2; \
             ln -s /usr/bin/mser.vga.2.2.bmp /tmp/given/mser.vga/2/2.bmp; "
        );
        assert_eq!(files.files.len(), 3);
        assert_eq!(std::fs::read(&files.files[1]).expect("a link"), b"x");
    }
}
