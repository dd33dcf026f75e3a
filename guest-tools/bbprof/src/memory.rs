//! The memory of a process: its mappings by kind, its contents, its page frames, and the copies that
//! make frames its own.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_profile::layout::{Access, Kind, Mapping, PAGE, PageName};
use nix::unistd::Pid;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A process, as `/proc` shows it.
pub struct Memory {
    process: Process,
    contents: File,
}

/// The frame of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The page.
    pub page: PageName,
    /// Address of the frame, as the kernel sees it.
    pub ipa: u64,
    /// No other process, file or mapping uses it.
    pub own: bool,
}

impl Memory {
    /// Opens the memory of a process that this one traces, or of this one.
    pub fn open(pid: Pid) -> Result<Self, Error> {
        let process = Process::new(pid.as_raw()).map_err(Error::system("look at the program"))?;
        let contents = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(Error::system("open the program's memory"))?;
        Ok(Self { process, contents })
    }

    /// Reads memory from an address on.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.contents
            .read_exact_at(bytes, address)
            .map_err(Error::system("read the program's memory"))
    }

    /// Writes memory from an address on, also where the process itself may only read.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.contents
            .write_all_at(bytes, address)
            .map_err(Error::system("write the program's memory"))
    }

    /// Writes to pages what they have, from an address on, so that each has a frame.
    pub fn touch(&self, start: u64, pages: u32) -> Result<(), Error> {
        for page in 0..u64::from(pages) {
            let mut byte = [0];
            self.read(start + page * PAGE, &mut byte)?;
            self.write(start + page * PAGE, &byte)?;
        }
        Ok(())
    }

    /// Returns the number of its threads.
    pub fn threads(&self) -> Result<usize, Error> {
        Ok(self
            .process
            .tasks()
            .map_err(Error::system("list the program's threads"))?
            .count())
    }

    /// Returns the maximum of virtual memory that it has had, in bytes.
    pub fn peak(&self) -> Result<u64, Error> {
        let status = self
            .process
            .status()
            .map_err(Error::system("read the program's status"))?;
        Ok(status.vmpeak.unwrap_or(0) * 1024)
    }

    /// Returns its mappings in order of their addresses.
    pub fn layout(&self) -> Result<Vec<Mapping>, Error> {
        let maps = self
            .process
            .maps()
            .map_err(Error::system("read the program's mappings"))?;
        let program = self
            .process
            .exe()
            .map_err(Error::system("read the program's name"))?;
        Ok(layout(&maps.0, &program))
    }

    /// Returns the first address of a file that is mapped, by a part of its path, and that path.
    pub fn file(&self, part: &str) -> Result<Option<(u64, std::path::PathBuf)>, Error> {
        let maps = self
            .process
            .maps()
            .map_err(Error::system("read the program's mappings"))?;
        let named = maps.iter().find_map(|map| match &map.pathname {
            MMapPath::Path(path) if path.to_string_lossy().contains(part) => {
                Some((map.address.0, path.clone()))
            }
            _ => None,
        });
        Ok(named)
    }

    /// Returns what the kernel knows of these consecutive pages, by number of the first.
    fn pages(&self, first: u64, pages: u64) -> Result<Vec<PageInfo>, Error> {
        let range = first as usize..(first + pages) as usize;
        self.process
            .pagemap()
            .and_then(|mut map| map.get_range_info(range))
            .map_err(Error::system("read the program's frames"))
    }

    /// Returns the addresses of the pages of a mapping that have contents: in a frame, or written to
    /// a swap area.
    pub fn present(&self, mapping: &Mapping) -> Result<Vec<u64>, Error> {
        let pages = self.pages(mapping.start / PAGE, mapping.pages.into())?;
        let is_present = |(_, info): &(u64, PageInfo)| match info {
            PageInfo::MemoryPage(flags) => flags.contains(MemoryPageFlags::PRESENT),
            PageInfo::SwapPage(_) => true,
        };
        Ok((0..)
            .zip(pages)
            .filter(is_present)
            .map(|(offset, _)| mapping.start + offset * PAGE)
            .collect())
    }

    /// Returns the frames of these pages. Pages without a frame are left out.
    pub fn frames(&self, layout: &[Mapping], pages: &[PageName]) -> Result<Vec<Frame>, Error> {
        // One read for each mapping: reading page by page would take most of a run's time.
        let mut known = BTreeMap::new();
        for mapping in layout {
            if pages.iter().any(|page| page.vma == mapping.index) {
                let first = mapping.start / PAGE;
                let infos = self.pages(first, mapping.pages.into())?;
                known.insert(mapping.index, (mapping, first, infos));
            }
        }
        let frame = |page: &PageName| {
            let (mapping, first, infos) = known.get(&page.vma)?;
            let at = (address(mapping, page.offset) / PAGE).checked_sub(*first)?;
            match infos.get(at as usize)? {
                PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT) => {
                    Some(Frame {
                        page: *page,
                        ipa: flags.get_page_frame_number().0 * PAGE,
                        own: flags.contains(MemoryPageFlags::MMAP_EXCLUSIVE)
                            && !flags.contains(MemoryPageFlags::FILE),
                    })
                }
                _ => None,
            }
        };
        Ok(pages.iter().filter_map(frame).collect())
    }

    /// Gives pages frames that are the process's own: writes to each page its own contents. The
    /// kernel then copies what was shared, also of mappings that the process itself may only read.
    /// Pages of mappings that reach files are only faulted in.
    pub fn own(&self, layout: &[Mapping], pages: &[PageName]) {
        for page in pages {
            let Some(mapping) = layout.iter().find(|mapping| mapping.index == page.vma) else {
                continue;
            };
            let (address, mut byte) = (address(mapping, page.offset), [0]);
            if self.contents.read_at(&mut byte, address).is_ok()
                && !mapping.access.shared
                && mapping.kind != Kind::Kernel
            {
                // Where the kernel refuses, the frame stays shared, and is found to be so.
                let _ = self.contents.write_at(&byte, address);
            }
        }
    }
}

/// Returns the address of a page. Pages of the stack are counted from its end, where it begins to be
/// used: how far it reaches down depends on the run. Those of other mappings are counted from their
/// start.
pub fn address(mapping: &Mapping, offset: u32) -> u64 {
    match mapping.kind {
        Kind::Stack => mapping.end() - (u64::from(offset) + 1) * PAGE,
        _ => mapping.address(offset),
    }
}

/// Returns the page of a mapping at an address, the reverse of [`address`].
pub fn page(mapping: &Mapping, address: u64) -> PageName {
    let offset = match mapping.kind {
        Kind::Stack => (mapping.end() - address).div_ceil(PAGE) - 1,
        _ => (address - mapping.start) / PAGE,
    };
    PageName {
        vma: mapping.index,
        offset: offset as u32,
    }
}

/// Returns mappings by kind.
fn layout(maps: &[MemoryMap], program: &Path) -> Vec<Mapping> {
    let mut layout: Vec<Mapping> = Vec::new();
    for map in maps {
        let access = Access {
            read: map.perms.contains(MMPermissions::READ),
            write: map.perms.contains(MMPermissions::WRITE),
            execute: map.perms.contains(MMPermissions::EXECUTE),
            shared: map.perms.contains(MMPermissions::SHARED),
        };
        let (start, end) = map.address;
        // What a file's variables without initial value need follows its last mapping, and has no
        // name.
        let before = layout
            .last()
            .filter(|last| last.end() == start && last.access.write);
        let (kind, name) = match &map.pathname {
            MMapPath::Path(path) => (
                kind_of_file(path, program, access),
                path.display().to_string(),
            ),
            MMapPath::Heap => (Kind::Heap, "[heap]".to_owned()),
            MMapPath::Stack => (Kind::Stack, "[stack]".to_owned()),
            MMapPath::Anonymous => match before.map(|before| (before.kind, before.name.as_str())) {
                Some((kind @ (Kind::Data | Kind::Library | Kind::MathLibrary), name)) => {
                    (kind, format!("{name} [bss]"))
                }
                _ => (Kind::Anonymous, String::new()),
            },
            MMapPath::Vdso => (Kind::Kernel, "[vdso]".to_owned()),
            MMapPath::Vvar => (Kind::Kernel, "[vvar]".to_owned()),
            MMapPath::Other(name) if name.starts_with("[anon") => (Kind::Anonymous, name.clone()),
            other => (Kind::Kernel, format!("{other:?}")),
        };
        let pages = u32::try_from((end - start) / PAGE).unwrap_or(u32::MAX);
        // Without randomized addresses, the heap follows the variables without initial value. The
        // kernel calls both so, and makes one mapping of the two when they are locked.
        match layout.last_mut() {
            Some(last)
                if kind == Kind::Heap
                    && last.kind == kind
                    && last.end() == start
                    && last.access == access =>
            {
                last.pages = last.pages.saturating_add(pages);
                continue;
            }
            _ => {}
        }
        let index = u32::try_from(layout.len()).unwrap_or(u32::MAX);
        layout.push(Mapping {
            index,
            kind,
            name,
            start,
            pages,
            access,
        });
    }
    layout
}

fn kind_of_file(path: &Path, program: &Path, access: Access) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_library = name.ends_with(".so") || name.contains(".so.");
    match access {
        _ if path != program && is_library && name.starts_with("libm.") => Kind::MathLibrary,
        _ if path != program && is_library => Kind::Library,
        _ if path != program => Kind::File,
        Access { execute: true, .. } => Kind::Text,
        Access { write: true, .. } => Kind::Data,
        _ => Kind::ReadOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;
    use procfs::process::MemoryMaps;

    const MAPS: &str = "\
00400000-0047f000 r-xp 00000000 00:02 100                                /usr/bin/tool
0048e000-00490000 r--p 0007e000 00:02 100                                /usr/bin/tool
00490000-00492000 rw-p 00080000 00:02 100                                /usr/bin/tool
00492000-00498000 rw-p 00000000 00:00 0 
1f0ed000-1f1b0000 rw-p 00000000 00:00 0                                  [heap]
7fa2000000-7fa2001000 rw-p 00000000 00:00 0 
7fa3000000-7fa3010000 r-xp 00000000 00:02 7                              /lib/aarch64-linux-gnu/libm.so.6
7fa3100000-7fa3110000 r-xp 00000000 00:02 8                              /lib/aarch64-linux-gnu/libc.so.6
7fa3110000-7fa3111000 rw-p 00010000 00:02 8                              /lib/aarch64-linux-gnu/libc.so.6
7fa3111000-7fa3112000 rw-p 00000000 00:00 0 
7fa3120000-7fa3121000 r--s 00000000 00:02 9                              /usr/share/table
7fa31ce000-7fa31d0000 r--p 00000000 00:00 0                              [vvar]
7fa31d0000-7fa31d1000 r-xp 00000000 00:00 0                              [vdso]
7fe57a7000-7fe57c8000 rw-p 00000000 00:00 0                              [stack]
";

    #[test]
    fn mappings_have_the_papers_kinds() {
        let maps = MemoryMaps::from_read(MAPS.as_bytes()).unwrap();
        let layout = layout(&maps.0, Path::new("/usr/bin/tool"));
        let letters: String = layout.iter().map(|mapping| mapping.kind.letter()).collect();
        assert_eq!(letters, "trbbhamcccfkks");
        assert_eq!((layout[4].pages, layout[4].start), (195, 0x1f0e_d000));
        assert_eq!(layout[3].name, "/usr/bin/tool [bss]");
        assert!(layout[10].access.shared && !layout[9].access.shared);
    }

    #[test]
    fn pages_of_a_stack_are_counted_from_its_end() {
        let maps = MemoryMaps::from_read(MAPS.as_bytes()).unwrap();
        let mut layout = layout(&maps.0, Path::new("/usr/bin/tool"));
        assert_eq!(address(&layout[4], 2), 0x1f0e_f000);
        assert_eq!(address(&layout[13], 0), 0x7f_e57c_7000);
        // It grows.
        layout[13].start -= 3 * PAGE;
        layout[13].pages += 3;
        assert_eq!(address(&layout[13], 35), layout[13].start);
        assert_eq!(address(&layout[13], 0), 0x7f_e57c_7000);
        for mapping in [&layout[4], &layout[13]] {
            for offset in 0..mapping.pages {
                let name = page(mapping, address(mapping, offset));
                assert_eq!((name.vma, name.offset), (mapping.index, offset));
            }
        }
    }

    #[test]
    fn a_heap_that_the_kernel_joins_to_what_is_before_it_is_the_same() {
        let parts = "00492000-00498000 rw-p 00000000 00:00 0                                  [heap]\n\
            00498000-0062b000 rw-p 00000000 00:00 0                                  [heap]\n\
            7fe57a7000-7fe57c8000 rw-p 00000000 00:00 0                              [stack]\n";
        let joined = "00492000-0062b000 rw-p 00000000 00:00 0                                  [heap]\n\
            7fe57a7000-7fe57c8000 rw-p 00000000 00:00 0                              [stack]\n";
        let of = |maps: &str| {
            layout(
                &MemoryMaps::from_read(maps.as_bytes()).unwrap().0,
                Path::new("/usr/bin/tool"),
            )
        };
        assert_eq!(of(parts), of(joined));
        assert_eq!((of(parts)[0].pages, of(parts)[1].index), (409, 1));
    }
}
