//! Debian packages, unpacked into the cache and never installed.
//!
//! Each package gets its own folder, named after its version; the answer to a request is a list of such folders. It is
//! remembered until the host's own packages change, because they decide which packages are missing.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, Package, run};
pub use crate::request::{Request, Suite};
use crate::{Cache, Error, Result};

/// Packages that have been unpacked.
#[derive(Clone, Debug)]
pub struct Unpacked {
    folders: Vec<PathBuf>,
}

/// A program from unpacked packages, with the libraries it needs.
#[derive(Clone, Debug)]
pub struct PackagedProgram {
    /// Absolute path of the program in the cache.
    pub path: PathBuf,
    /// The value for `LD_LIBRARY_PATH`.
    pub libraries: OsString,
}

/// Fetches and unpacks the packages of `request`, or finds them in the cache.
///
/// # Errors
/// If the machine runs no supported Debian release, if apt is missing or cannot reach its mirror, or if the cache
/// cannot be written.
pub fn fetch(cache: &Cache, request: &Request) -> Result<Unpacked> {
    let _lock = cache.lock("fetch")?;
    let deb = cache.folder("deb")?;
    let memo = cache.folder("sets")?.join(request.name);
    let key = request.key();
    if let Some(unpacked) = remembered(&memo, &key, &deb) {
        return Ok(unpacked);
    }
    cache.has_room()?;
    let apt = Apt::open(cache)?;
    let packages = unpack_all(cache, &apt, request, &deb).or_else(|error| match error {
        // A version that left the archive since the lists were fetched.
        Error::Failed { .. } => {
            apt.update()?;
            unpack_all(cache, &apt, request, &deb)
        }
        error => Err(error),
    })?;
    let names: Vec<String> = packages.iter().map(Package::folder_name).collect();
    cache.write(&memo, format!("{key}\n{}\n", names.join("\n")).as_bytes())?;
    Ok(Unpacked { folders: names.iter().map(|name| deb.join(name)).collect() })
}

/// The answer from last time, if it was to the same question and is still there.
fn remembered(memo: &Path, key: &str, deb: &Path) -> Option<Unpacked> {
    let text = fs::read_to_string(memo).ok()?;
    let mut lines = text.lines();
    if lines.next()? != key {
        return None;
    }
    let folders: Vec<PathBuf> = lines.map(|name| deb.join(name)).collect();
    folders.iter().all(|folder| folder.is_dir()).then_some(Unpacked { folders })
}

fn unpack_all(cache: &Cache, apt: &Apt, request: &Request, deb: &Path) -> Result<Vec<Package>> {
    let packages = apt.resolve(request)?;
    for package in &packages {
        let place = deb.join(package.folder_name());
        if !place.is_dir() {
            unpack(cache, apt, package, &place)?;
        }
    }
    Ok(packages)
}

fn unpack(cache: &Cache, apt: &Apt, package: &Package, place: &Path) -> Result<()> {
    let staging = cache.stage()?;
    let file = apt.download(package, staging.path())?;
    let mut command = Command::new("dpkg-deb");
    command.arg("--extract").arg(&file).arg(staging.path().join("tree"));
    run(&format!("unpack {}", file.display()), "dpkg", &mut command)?;
    staging.publish("tree", place)
}

impl Request<'_> {
    /// Whether a package belongs to the answer.
    pub(crate) fn wants(&self, name: &str) -> bool {
        // A C library beside the host's loader does not start; within one release the host's own serves.
        let refused = matches!(name, "libc6" | "libc-bin");
        !refused && (self.keep.is_empty() || self.keep.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// What the answer depends on: the question, and the state of the host's packages.
    fn key(&self) -> String {
        let status = fs::metadata("/var/lib/dpkg/status");
        let state = status.map_or(0, |metadata| metadata.mtime());
        format!("{} {:?} {} {state}", self.packages.join(","), self.suite, self.keep.join(","))
    }
}

impl Unpacked {
    /// The folders, one a package.
    #[must_use]
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The packages' files or folders at `path`, relative to a root; several packages may have the same folder.
    pub fn find(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(move |folder| folder.join(path)).filter(|file| file.exists())
    }

    /// The program at the first of `paths` that exists.
    ///
    /// # Errors
    /// [`Error::Absent`] if none of them exists.
    pub fn program(&self, paths: &[&str]) -> Result<PackagedProgram> {
        let found = paths.iter().find_map(|path| self.find(path).next());
        let path = found.ok_or_else(|| self.absent(paths[0]))?;
        Ok(PackagedProgram { path, libraries: self.libraries() })
    }

    /// The error for a file that is missing from these packages.
    pub(crate) fn absent(&self, what: &str) -> Error {
        let names =
            self.folders.iter().filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        Error::Absent { what: what.into(), packages: names.collect::<Vec<_>>().join(" ") }
    }

    fn libraries(&self) -> OsString {
        let mut path = Vec::new();
        for folder in &self.folders {
            for sub in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
                let folder = folder.join(sub);
                if folder.is_dir() {
                    if !path.is_empty() {
                        path.push(b':');
                    }
                    path.extend(folder.into_os_string().into_vec());
                }
            }
        }
        OsString::from_vec(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_with_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one_1"), folder.path().join("two_2"));
        fs::create_dir_all(one.join("usr/bin")).unwrap();
        fs::write(one.join("usr/bin/x"), "").unwrap();
        fs::create_dir_all(two.join("lib/x86_64-linux-gnu")).unwrap();
        let unpacked = Unpacked { folders: vec![one.clone(), two.clone()] };
        let program = unpacked.program(&["bin/x", "usr/bin/x"]).unwrap();
        assert_eq!(program.path, one.join("usr/bin/x"));
        assert_eq!(program.libraries, two.join("lib/x86_64-linux-gnu"));
        let message = unpacked.program(&["usr/bin/y"]).unwrap_err().to_string();
        assert!(message.contains("usr/bin/y") && message.contains("one_1 two_2"), "{message}");
    }

    #[test]
    fn answer_is_remembered_only_for_the_same_question() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a_1")).unwrap();
        let memo = folder.path().join("memo");
        fs::write(&memo, "key\na_1\n").unwrap();
        assert!(remembered(&memo, "key", folder.path()).is_some());
        assert!(remembered(&memo, "other key", folder.path()).is_none());
        fs::remove_dir(folder.path().join("a_1")).unwrap();
        assert!(remembered(&memo, "key", folder.path()).is_none());
    }

    #[test]
    fn libc_of_another_build_is_never_mixed_in() {
        let all = Request { name: "x", packages: &["x"], suite: Suite::Stable, keep: &[] };
        assert!(all.wants("libaio1") && !all.wants("libc6"));
        let kernel = Request { keep: &["linux-image-"], ..all };
        assert!(kernel.wants("linux-image-6.12.95+deb12-amd64") && !kernel.wants("udev"));
    }
}
