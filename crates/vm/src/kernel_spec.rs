//! Parsing of a kernel's name: `debian:6.12`, or an image and the folder of its modules.

use std::path::{Path, PathBuf};

use crate::deb::Suite;
use crate::{Cache, Error, Flavour, Kernel, Result, Vm};

/// What stands before a version of Debian's.
const DEBIAN: &str = "debian:";

/// Debian 12's kernels, oldest first, and where they come from.
const VERSIONS: [(&str, Suite); 2] = [("6.1", Suite::Stable), ("6.12", Suite::Backports)];

/// A kernel as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSpec {
    /// A package of Debian 12.
    Debian {
        /// Its version's first two numbers.
        version: &'static str,
        /// The archive of Debian's that has it.
        suite: Suite,
    },
    /// A kernel image of the user.
    Image {
        /// A bzImage or an ELF file.
        image: PathBuf,
        /// The folder of its modules: `/lib/modules/<release>`, or what `lib/modules/<release>` is in.
        modules: PathBuf,
    },
}

impl KernelSpec {
    /// Reads a name. One with a slash is the path of an image, for which `modules` names the folder.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names that there are, and [`Error::Modules`] for an image without a folder.
    pub fn parse(name: &str, modules: Option<&Path>) -> Result<Self> {
        if name.contains('/') {
            let image = PathBuf::from(name);
            return match modules {
                Some(modules) => Ok(Self::Image { image, modules: modules.to_owned() }),
                None => Err(Error::Modules {
                    path: PathBuf::new(),
                    reason: format!("{name} is an image, which needs the folder of its modules beside it"),
                }),
            };
        }
        let version = name.strip_prefix(DEBIAN);
        let found = VERSIONS.iter().find(|(known, _)| Some(*known) == version);
        found.map(|(version, suite)| Self::Debian { version, suite: *suite }).ok_or_else(|| Error::Unknown {
            name: name.to_owned(),
            known: format!("there are {}, and images by their path, /boot/vmlinuz-6.9.3", names().join(", ")),
        })
    }

    /// Fetches the missing parts of the kernel and of QEMU; of Debian's kernel this build.
    ///
    /// # Errors
    /// If packages cannot be fetched, if the archive no longer has the requested version of the kernel, or if image
    /// and modules do not belong together.
    pub fn fetch(&self, cache: &Cache, flavour: Flavour) -> Result<Vm> {
        match self {
            Self::Debian { version, suite } => {
                let kernel = Kernel::fetch(cache, *suite, flavour)?;
                let (name, release) = (format!("{DEBIAN}{version}"), &kernel.release);
                if !release.starts_with(&format!("{version}.")) {
                    return Err(Error::Unknown {
                        name,
                        known: format!("the archive has {release} there now"),
                    });
                }
                Vm::with(cache, kernel)
            }
            Self::Image { image, modules } => Vm::with(cache, Kernel::local(cache, image, modules)?),
        }
    }
}

/// What can be typed without a path.
pub fn names() -> Vec<String> {
    VERSIONS.iter().map(|(version, _)| format!("{DEBIAN}{version}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_packages_and_paths_for_images() {
        let wanted = KernelSpec::parse("debian:6.1", None).unwrap();
        assert_eq!(wanted, KernelSpec::Debian { version: "6.1", suite: Suite::Stable });
        let modules = Path::new("/m");
        let wanted = KernelSpec::parse("./bzImage", Some(modules)).unwrap();
        assert_eq!(wanted, KernelSpec::Image { image: "./bzImage".into(), modules: modules.into() });
    }

    #[test]
    fn an_unknown_kernel_is_refused_with_those_there_are() {
        for name in ["6.12", "debian:5.10", "debian:6.1.0", "debian:", "ubuntu:6.8", ""] {
            let message = KernelSpec::parse(name, None).unwrap_err().to_string();
            assert!(message.contains("debian:6.1, debian:6.12"), "{name}: {message}");
        }
        let message = KernelSpec::parse("/boot/vmlinuz", None).unwrap_err().to_string();
        assert!(message.contains("needs the folder of its modules"), "{message}");
    }
}
