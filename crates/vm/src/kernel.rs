//! A Debian kernel in the cache: its image, uncompressed if we can, and its modules.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::run;
use crate::deb::{self, PackageRequest, PackagedProgram, Release, Suite};
use crate::initramfs::Early;
use crate::local;
use crate::{Cache, Error, Result, bzimage};

/// Which build of Debian's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: 34 MB, all the network's software modules, few drivers.
    Cloud,
    /// With all drivers (igb for SR-IOV, `rdma_rxe`): 106 MB.
    Full,
}

/// A kernel ready to boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The release that `uname -r` will print in the guest.
    pub release: String,
    /// The file that QEMU boots: the uncompressed ELF file, or the packaged image if that unpacks itself.
    pub image: PathBuf,
    /// The folder that holds `lib/modules/<release>` with the modules and their index.
    pub modules: PathBuf,
    /// `kmod`, to load modules before the guest has a usable root.
    pub(crate) kmod: PackagedProgram,
    /// What it needs to reach its root, if that is not built in.
    pub(crate) early: Option<Early>,
}

impl Kernel {
    /// Finds the newest kernel of one of Debian 12's suites in the cache, or fetches it: 6.1 from [`Suite::Stable`],
    /// 6.12 (or what follows it) from [`Suite::Backports`]. The cache may hold both.
    ///
    /// # Errors
    /// Those of [`deb::fetch`], and [`Error::Kernel`] if the image cannot be unpacked or lacks what a guest needs.
    pub fn fetch(cache: &Cache, suite: Suite, flavour: Flavour) -> Result<Self> {
        let package = match flavour {
            Flavour::Cloud => "linux-image-cloud-amd64",
            Flavour::Full => "linux-image-amd64",
        };
        let name = match (suite, flavour) {
            (Suite::Stable, Flavour::Cloud) => "kernel-cloud-stable",
            (Suite::Stable, Flavour::Full) => "kernel-full-stable",
            (Suite::Backports, Flavour::Cloud) => "kernel-cloud",
            (Suite::Backports, Flavour::Full) => "kernel-full",
        };
        // An installation would bring more (initramfs tools, udev); only the kernel itself is needed.
        let keep = ["linux-image-"];
        let request =
            PackageRequest { name, packages: &[package], suite, release: Release::Own, keep: &keep };
        let unpacked = deb::fetch(cache, &request)?;
        let folder = unpacked.folders().iter().find(|folder| folder.join("boot").is_dir());
        let folder = folder.ok_or_else(|| unpacked.absent("boot/vmlinuz"))?;
        let kmod = kmod(cache)?;
        let _lock = cache.lock("kernel")?;
        Self::make_ready(cache, folder, kmod)
    }

    /// A kernel of the user: a bzImage or an ELF file, and the folder of its modules. That folder is
    /// `/lib/modules/<release>`, or a folder that contains `lib/modules/<release>`. It is not written to.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the file is not a kernel, [`Error::Modules`] if the folder does not belong to that kernel,
    /// is not indexed, or lacks a module that a guest needs.
    pub fn local(cache: &Cache, image: &Path, modules: &Path) -> Result<Self> {
        let content = fs::read(image).map_err(Error::file("read", image))?;
        let bad = |reason: String| Error::Kernel { path: image.to_owned(), reason };
        let is_elf = content.starts_with(b"\x7fELF");
        let elf = if is_elf { None } else { bzimage::vmlinux(&content).map_err(bad)? };
        let release = bzimage::release(&content).map_err(bad)?;
        let modules = local::modules(modules, &release)?;
        let _lock = cache.lock("kernel")?;
        let folder = cache.folder(&format!("local/{:08x}", local::name(&content, &modules)))?;
        local::link(&folder, &modules, &release)?;
        let unpacked = folder.join("image");
        if !unpacked.is_file() {
            cache.write(&unpacked, elf.as_deref().unwrap_or(&content))?;
        }
        let early = Early::fetch(cache, &modules)?;
        Ok(Self { release, image: unpacked, modules: folder, kmod: kmod(cache)?, early })
    }

    /// Unpacks the image and indexes the modules, once; the image is written last and so vouches for both.
    fn make_ready(cache: &Cache, folder: &Path, kmod: PackagedProgram) -> Result<Self> {
        let (release, packaged) = image(&folder.join("boot"))?;
        // Current packages use lib/, future ones usr/lib/.
        let moved = folder.join("usr");
        let modules = if moved.join("lib/modules").is_dir() { moved } else { folder.to_owned() };
        let image = folder.join("boot/image");
        if !image.is_file() {
            let mut depmod = Command::new(&kmod.path);
            depmod.arg0("depmod").env("LD_LIBRARY_PATH", &kmod.libraries);
            depmod.arg("--basedir").arg(&modules).arg(&release);
            run("index the kernel's modules", "kmod", &mut depmod)?;
            let packed = fs::read(&packaged).map_err(Error::file("read", &packaged))?;
            let elf = bzimage::vmlinux(&packed);
            let elf = elf.map_err(|reason| Error::Kernel { path: packaged, reason })?;
            cache.settle()?;
            cache.write(&image, &elf.unwrap_or(packed))?;
        }
        let early = Early::fetch(cache, &modules.join("lib/modules").join(&release))?;
        Ok(Self { release, image, modules, kmod, early })
    }
}

/// What loads modules in the guest.
fn kmod(cache: &Cache) -> Result<PackagedProgram> {
    let (suite, release) = (Suite::Stable, Release::Own);
    let request = PackageRequest { name: "kmod", packages: &["kmod"], suite, release, keep: &[] };
    deb::fetch(cache, &request)?.program(&["bin/kmod", "usr/bin/kmod"])
}

/// The release and the path of the one `vmlinuz-<release>` in a folder.
fn image(boot: &Path) -> Result<(String, PathBuf)> {
    let entries = fs::read_dir(boot).map_err(Error::file("list", boot))?;
    let found = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let release = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        Some((release, path))
    });
    let none = || Error::Kernel { path: boot.to_owned(), reason: "there is no vmlinuz in it".into() };
    found.max().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_read_from_the_image_s_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(image(folder.path()).unwrap_err().to_string().contains("no vmlinuz"));
        fs::write(folder.path().join("config-6.12.1"), "").unwrap();
        fs::write(folder.path().join("vmlinuz-6.12.1"), "").unwrap();
        assert_eq!(image(folder.path()).unwrap().0, "6.12.1");
    }
}
