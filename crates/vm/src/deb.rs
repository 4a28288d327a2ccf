//! Debian packages, unpacked into the cache and never installed.
//!
//! Each package gets its own folder, named after its version; the answer to a request is a list of such folders. It is
//! remembered until the host's own packages change: they decide which packages are missing, and a host that has got
//! newer ones is to race the newer kernel.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, Package, run};
pub use crate::package_request::{PackageRequest, Release, Suite};
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
    /// What starts it, if its C library is among the packages: the host's loader starts programs with the host's alone.
    loader: Option<PathBuf>,
}

impl PackagedProgram {
    /// The program, to be given arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let Some(loader) = &self.loader else {
            let mut command = Command::new(&self.path);
            if !self.libraries.is_empty() {
                command.env("LD_LIBRARY_PATH", &self.libraries);
            }
            return command;
        };
        let mut command = Command::new(loader);
        // Not in the environment, where the host's programs would find them too.
        command.arg("--library-path").arg(&self.libraries).arg(&self.path);
        command
    }
}

/// Where the package of the C library has the program that starts programs.
const LOADERS: [&str; 2] = ["usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"];

/// Fetches and unpacks the packages of `request`, or finds them in the cache.
///
/// # Errors
/// If the machine runs no supported Debian release, if apt is missing or cannot reach its mirror, or if the cache
/// cannot be written.
pub fn fetch(cache: &Cache, request: &PackageRequest) -> Result<Unpacked> {
    let _lock = cache.lock("fetch")?;
    let deb = cache.folder("deb")?;
    let memo = cache.folder("sets")?.join(request.name);
    let key = request.key();
    if let Some(unpacked) = remembered(&memo, &key, &deb) {
        return Ok(unpacked);
    }
    let apt = Apt::open(cache, request.release)?;
    let packages = unpack_all(cache, &apt, request, &deb).or_else(|error| match error {
        // A version that left the archive since the lists were fetched.
        Error::Failed { .. } => {
            cache.has_room()?;
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
    let folders: Vec<PathBuf> = lines.filter(|name| !name.is_empty()).map(|name| deb.join(name)).collect();
    (!folders.is_empty() && folders.iter().all(|folder| folder.is_dir())).then_some(Unpacked { folders })
}

fn unpack_all(cache: &Cache, apt: &Apt, request: &PackageRequest, deb: &Path) -> Result<Vec<Package>> {
    let packages = apt.resolve(request)?;
    let place = |package: &Package| deb.join(package.folder_name());
    let absent: Vec<&Package> = packages.iter().filter(|package| !place(package).is_dir()).collect();
    if absent.is_empty() {
        return Ok(packages);
    }
    cache.has_room()?;
    let staging = cache.stage()?;
    apt.download(&absent, staging.path())?;
    for package in &absent {
        let file = staging.path().join(package.file_name());
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&file).arg(staging.path().join(package.folder_name()));
        run(&format!("unpack {}", file.display()), "dpkg", &mut command)?;
    }
    cache.settle()?;
    absent.iter().try_for_each(|package| staging.publish(&package.folder_name(), &place(package)))?;
    Ok(packages)
}

impl PackageRequest<'_> {
    /// Whether a package belongs to the answer.
    pub(crate) fn wants(&self, name: &str) -> bool {
        // Within one release the host's own C library serves, and its loader starts no other.
        let refused = self.release == Release::Own && matches!(name, "libc6" | "libc-bin");
        !refused && (self.keep.is_empty() || self.keep.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// Whether what is installed here serves, and is not fetched. Of another release nothing does; and where parts are
    /// picked from the packages, they are to be whole: an installed dependency of the one named would be left out.
    pub(crate) fn uses_the_host(&self) -> bool {
        self.release == Release::Own && self.keep.is_empty()
    }

    /// What the answer depends on: the question, and the state of the host's packages.
    fn key(&self) -> String {
        let status = fs::metadata("/var/lib/dpkg/status");
        let state = match self.release {
            Release::Own => status.map_or(0, |metadata| metadata.mtime()),
            Release::Next => 0,
        };
        let (packages, keep) = (self.packages.join(","), self.keep.join(","));
        let beside = if self.uses_the_host() { "host" } else { "nothing" };
        format!("{packages} {:?} {:?} {keep} beside {beside} {state}", self.suite, self.release)
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
        let loader = LOADERS.iter().find_map(|path| self.find(path).next());
        Ok(PackagedProgram { path, libraries: self.libraries(), loader })
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
    use std::ffi::OsStr;

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
        assert_eq!(program.command().get_program(), program.path);
        let message = unpacked.program(&["usr/bin/y"]).unwrap_err().to_string();
        assert!(message.contains("usr/bin/y") && message.contains("one_1 two_2"), "{message}");
    }

    #[test]
    fn program_is_started_by_the_loader_of_its_own_c_library() {
        let folder = tempfile::tempdir().unwrap();
        let (one, libc) = (folder.path().join("one_1"), folder.path().join("libc6_2"));
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("x"), "").unwrap();
        fs::create_dir_all(libc.join("usr/lib64")).unwrap();
        fs::create_dir_all(libc.join("usr/lib/x86_64-linux-gnu")).unwrap();
        fs::write(libc.join("usr/lib64/ld-linux-x86-64.so.2"), "").unwrap();
        let unpacked = Unpacked { folders: vec![one.clone(), libc.clone()] };
        let command = unpacked.program(&["x"]).unwrap().command();
        assert_eq!(command.get_program(), libc.join("usr/lib64/ld-linux-x86-64.so.2"));
        let libraries = libc.join("usr/lib/x86_64-linux-gnu");
        let expected = [OsStr::new("--library-path"), libraries.as_os_str(), one.join("x").as_os_str()]
            .map(OsStr::to_owned);
        assert!(command.get_args().eq(&expected));
        assert_eq!(command.get_envs().count(), 0);
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
        fs::write(&memo, "key\n\n").unwrap();
        assert!(remembered(&memo, "key", folder.path()).is_none());
        fs::write(&memo, "key\n").unwrap();
        assert!(remembered(&memo, "key", folder.path()).is_none());
    }

    #[test]
    fn libc_of_another_build_is_never_mixed_in() {
        let (suite, release) = (Suite::Stable, Release::Own);
        let all = PackageRequest { name: "x", packages: &["x"], suite, release, keep: &[] };
        assert!(all.wants("libaio1") && !all.wants("libc6"));
        let kernel = PackageRequest { keep: &["linux-image-"], ..all.clone() };
        assert!(kernel.wants("linux-image-6.12.95+deb12-amd64") && !kernel.wants("udev"));
        let next = PackageRequest { release: Release::Next, ..all };
        assert!(next.wants("libaio1t64") && next.wants("libc6"));
    }
}
