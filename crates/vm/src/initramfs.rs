//! The initramfs for a kernel that needs modules to mount its root.
//!
//! Debian's kernels from 6.12 on have virtio and virtiofs built in and mount the host's `/` themselves; 6.1 has them
//! as modules. Debian's own initramfs would bring udev and look for disks. This one is a static busybox, those modules
//! in load order, and a script of a few lines. It is packed for each run, in a few milliseconds, so that no stale
//! version stays in a cache.

use std::fs;
use std::path::{Path, PathBuf};

use crate::deb::{self, PackageRequest, Release, Suite};
use crate::{Cache, Error, Result};

/// What must be there before the guest has a root, and for the ports over which it answers.
const MODULES: [&str; 3] = ["virtio_pci", "virtiofs", "virtio_console"];
/// The modes of the two kinds of entries: a folder, and a file that may be run.
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// What goes into the archive.
#[derive(Clone, Debug)]
pub(crate) struct Early {
    busybox: PathBuf,
    /// In the order in which they load.
    modules: Vec<PathBuf>,
}

impl Early {
    /// The modules in `folder` (`…/lib/modules/<release>`) that the kernel needs and has not built in, or `None` if it
    /// needs none.
    pub(crate) fn fetch(cache: &Cache, folder: &Path) -> Result<Option<Self>> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(Error::file("read", path))
        };
        let (built_in, index) = (read("modules.builtin")?, read("modules.dep")?);
        let order = load_order(&built_in, &index);
        let order = order.map_err(|reason| Error::Kernel { path: folder.to_owned(), reason })?;
        if order.is_empty() {
            return Ok(None);
        }
        let request = PackageRequest {
            name: "busybox",
            packages: &["busybox-static"],
            suite: Suite::Stable,
            release: Release::Own,
            keep: &["busybox-static"],
        };
        let busybox = deb::fetch(cache, &request)?.program(&["bin/busybox", "usr/bin/busybox"])?.path;
        Ok(Some(Self { busybox, modules: order.iter().map(|path| folder.join(path)).collect() }))
    }

    /// The archive, with the script's settings.
    pub(crate) fn archive(&self, settings: &[u8]) -> Result<Vec<u8>> {
        let read = |path: &Path| fs::read(path).map_err(Error::file("read", path));
        let mut archive = Archive::default();
        for folder in ["bin", "modules", "root"] {
            archive.add(folder, FOLDER, &[]);
        }
        archive.add("bin/busybox", FILE, &read(&self.busybox)?);
        for (number, path) in self.modules.iter().enumerate() {
            // The script takes them as the shell sorts them.
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            archive.add(&format!("modules/{number:02}-{name}"), FILE, &read(path)?);
        }
        archive.add("settings.sh", FILE, settings);
        archive.add("init", FILE, include_bytes!("guest/initramfs.sh"));
        Ok(archive.close())
    }
}

/// The files of [`MODULES`] that are not built in, each after its dependencies.
fn load_order<'a>(built_in: &str, index: &'a str) -> std::result::Result<Vec<&'a str>, String> {
    let mut order: Vec<&str> = Vec::new();
    for module in MODULES {
        if built_in.lines().any(|path| is(path, module)) {
            continue;
        }
        let entry = index.lines().find_map(|line| line.split_once(':').filter(|(path, _)| is(path, module)));
        let (path, needed) =
            entry.ok_or_else(|| format!("it has no module {module}, without which no guest starts"))?;
        // The index names the nearest first (depmod), so that the farthest is to be loaded first.
        for path in needed.split_whitespace().rev().chain([path]) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// Whether `path` is the file of `module`; file names have hyphens where modules have underscores.
fn is(path: &str, module: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".ko").is_some_and(|stem| stem.replace('-', "_") == module)
}

/// A cpio archive in the format `newc` (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let length = |bytes: usize| u32::try_from(bytes).expect("a module has less than 4 GiB");
        // inode, mode, user, group, links, time, size, device (2), its own device (2), length of the name, check sum.
        let fields =
            [self.entries, mode, 0, 0, 1, 0, length(content.len()), 0, 0, 0, 0, length(name.len() + 1), 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn close(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "kernel/fs/fuse/virtiofs.ko: kernel/fs/fuse/fuse.ko kernel/drivers/virtio/virtio.ko\n\
                         kernel/drivers/char/virtio-console.ko: kernel/drivers/virtio/virtio.ko\n\
                         kernel/drivers/virtio/virtio_pci.ko: kernel/ring.ko kernel/drivers/virtio/virtio.ko\n";

    #[test]
    fn modules_come_after_what_they_need() {
        let order = load_order("", INDEX).unwrap();
        let names: Vec<&str> = order.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
        let expected =
            ["virtio.ko", "ring.ko", "virtio_pci.ko", "fuse.ko", "virtiofs.ko", "virtio-console.ko"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_built_in_is_left_out_and_what_is_nowhere_is_named() {
        let built_in = "kernel/a/virtio_pci.ko\nkernel/b/virtiofs.ko\nkernel/c/virtio_console.ko\n";
        assert_eq!(load_order(built_in, "").unwrap(), Vec::<&str>::new());
        assert!(load_order("kernel/a/virtio_pci.ko\n", "").unwrap_err().contains("virtiofs"));
    }

    #[test]
    fn archive_is_what_the_kernel_reads() {
        let mut archive = Archive::default();
        archive.add("bin", FOLDER, &[]);
        archive.add("bin/x", FILE, b"#!/bin/sh\n");
        let bytes = archive.close();
        let entry = |name: &str, mode: &str, size: &str| {
            let at =
                bytes.windows(name.len() + 1).position(|w| w == [name.as_bytes(), b"\0"].concat()).unwrap();
            let header = std::str::from_utf8(&bytes[at - 110..at]).unwrap();
            assert!((at - 110).is_multiple_of(4), "a header begins at a multiple of four");
            assert_eq!((&header[..6], &header[14..22], &header[54..62]), ("070701", mode, size));
            at + name.len() + 1
        };
        entry("bin", "000041ed", "00000000");
        let content = entry("bin/x", "000081ed", "0000000a").next_multiple_of(4);
        assert_eq!(&bytes[content..content + 10], b"#!/bin/sh\n");
        entry("TRAILER!!!", "00000000", "00000000");
    }
}
