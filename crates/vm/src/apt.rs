//! A private apt: the host's mirrors and keys, but its own lists, cache and sources inside our cache.
//!
//! It asks apt which packages would be needed here (a simulated installation), and to download them. Where nothing
//! that is installed here serves, as of another release, apt is made to believe that nothing is. It installs no package
//! and does not touch the host's own apt.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::package_request::{PackageRequest, Release, Suite};
use crate::{Cache, Error, Result, sources};

/// After this, lists are fetched again: packages of a point release leave the archive when the next one comes.
const LISTS_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// apt with a private configuration.
pub(crate) struct Apt {
    folder: PathBuf,
    codename: String,
    /// What dpkg knows of the host's packages.
    host: PathBuf,
}

/// The host's own.
const INSTALLED: &str = "/var/lib/dpkg/status";
/// A file in the private folder, for an apt that is to believe that nothing is installed.
const NOTHING_INSTALLED: &str = "status";

/// One package in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) arch: String,
}

impl Apt {
    /// Opens the private apt in `cache`; its lists are fetched if there are none or old ones.
    ///
    /// The caller holds the cache's lock.
    pub(crate) fn open(cache: &Cache, release: Release) -> Result<Self> {
        let (own, next) = codenames(Path::new("/etc/os-release"))?;
        let etc_apt = Path::new("/etc/apt");
        let (name, codename, text) = match release {
            Release::Own => ("apt", own, sources::with_backports(etc_apt, own)?),
            Release::Next => ("apt-next", next, sources::of_another(etc_apt, own, next)?),
        };
        let folder = cache.folder(name)?;
        for part in ["sources", "lists/partial", "archives/partial"] {
            cache.folder(&format!("{name}/{part}"))?;
        }
        cache.write(&folder.join(NOTHING_INSTALLED), b"")?;
        let path = folder.join("sources/hostgap.sources");
        let apt = Self { folder, codename: codename.to_owned(), host: INSTALLED.into() };
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            cache.has_room()?;
            cache.write(&path, text.as_bytes())?;
            apt.update()?;
        } else if apt.lists_are_old() {
            let updated = cache.has_room().and_then(|()| apt.update());
            // Without a mirror, or room, the old lists may still do: what they name may be in the cache already.
            if !apt.stamp().exists() {
                updated?;
            }
        }
        Ok(apt)
    }

    /// Fetches the lists of packages.
    pub(crate) fn update(&self) -> Result<()> {
        let mut command = self.command();
        // A list that cannot be fetched is an error: by default apt would go on with a warning.
        command.args(["update", "-o", "APT::Update::Error-Mode=any"]);
        run("fetch lists of packages", "apt", &mut command)?;
        let stamp = self.stamp();
        fs::write(&stamp, "").map_err(Error::file("write", &stamp))
    }

    /// The packages to unpack for `request`: those named, and what they need that does not serve as it is installed.
    pub(crate) fn resolve(&self, request: &PackageRequest) -> Result<Vec<Package>> {
        let mut command = self.command();
        let alone = self.folder.join(NOTHING_INSTALLED);
        let status = if request.uses_the_host() { &self.host } else { &alone };
        command.arg("-o").arg(option("Dir::State::status", status));
        command.args(["install", "--simulate", "--reinstall", "--no-install-recommends"]);
        if let Suite::Backports = request.suite {
            command.args(["-t", &format!("{}-backports", self.codename)]);
        }
        command.args(request.packages);
        let attempt = format!("resolve {}", request.packages.join(" "));
        let text = run(&attempt, "apt", &mut command)?;
        let mut packages: Vec<Package> = text.lines().filter_map(parse_inst).collect();
        packages.retain(|package| request.wants(&package.name));
        // apt passes over a package whose installed version is in no list, and succeeds.
        let left_out = request.packages.iter().find(|name| packages.iter().all(|found| found.name != **name));
        if let Some(name) = left_out {
            let why = text.lines().find(|line| line.contains(name) && line.contains("not possible"));
            let why = why.unwrap_or("it says nothing of it");
            let stderr = format!("its answer lacks {name}: {why}");
            return Err(Error::Failed {
                attempt,
                program: "apt-get".into(),
                status: "success".into(),
                stderr,
            });
        }
        Ok(packages)
    }

    /// Downloads packages into the folder `into`, each as [`Package::file_name`].
    pub(crate) fn download(&self, packages: &[&Package], into: &Path) -> Result<()> {
        let names: Vec<String> = packages.iter().map(|package| package.qualified_name()).collect();
        let mut command = self.command();
        command.arg("download").args(&names).current_dir(into);
        run(&format!("download {}", names.join(" ")), "apt", &mut command)?;
        Ok(())
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("updated")
    }

    fn lists_are_old(&self) -> bool {
        let modified = fs::metadata(self.stamp()).and_then(|metadata| metadata.modified());
        modified.map_or(true, |time| time.elapsed().is_ok_and(|age| age > LISTS_AGE_MAX))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-q").env("LC_ALL", "C").stdin(Stdio::null());
        for (name, folder) in [
            ("Dir::Etc::sourceparts", "sources"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", ""),
            ("Dir::Cache::archives", "archives"),
        ] {
            command.arg("-o").arg(option(name, &self.folder.join(folder)));
        }
        command.args(["-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Acquire::Languages=none"]);
        command.args(["-o", "Acquire::Retries=3"]);
        command
    }
}

/// An option of apt's that is a path.
fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(format!("{name}="));
    option.push(value);
    option
}

/// Runs a helper to its end and returns its stdout.
pub(crate) fn run(attempt: &str, package: &'static str, command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|why| Error::Program { program: program.clone(), package, why })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("W:")).collect();
    let stderr = errors[errors.len().saturating_sub(8)..].join("\n");
    Err(Error::Failed { attempt: attempt.into(), program, status: output.status.to_string(), stderr })
}

/// The names of the machine's release and of the next one, if its packages are known here.
fn codenames(os_release: &Path) -> Result<(&'static str, &'static str)> {
    let text = fs::read_to_string(os_release).unwrap_or_default();
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    let id = field("ID").unwrap_or_else(|| "an unknown system".into());
    let release = field("VERSION_CODENAME").unwrap_or_default();
    if id == "debian" && release == "bookworm" && cfg!(target_arch = "x86_64") {
        return Ok(("bookworm", "trixie"));
    }
    let found = format!("{id} {release} on {}", std::env::consts::ARCH);
    Err(Error::Unsupported { found, needed: "Debian 12 (bookworm) and its backports on x86_64" })
}

/// `Inst NAME [OLD] (VERSION SUITE [ARCH])`
fn parse_inst(line: &str) -> Option<Package> {
    let rest = line.strip_prefix("Inst ")?;
    let (name, rest) = rest.split_once(' ')?;
    let (inside, _) = rest.split_once('(')?.1.split_once(')')?;
    let (version, suites) = inside.split_once(' ')?;
    let arch = suites.rsplit_once('[')?.1.trim_end_matches(']');
    let name = name.split(':').next()?;
    Some(Package { name: name.into(), version: version.into(), arch: arch.into() })
}

impl Package {
    /// A folder name; escaped as apt escapes file names, since a colon would split a search path.
    pub(crate) fn folder_name(&self) -> String {
        format!("{}_{}_{}", self.name, self.version.replace(':', "%3a"), self.arch)
    }

    /// The name that apt gives to the downloaded package.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.deb", self.folder_name())
    }

    /// How apt is asked for exactly this package.
    fn qualified_name(&self) -> String {
        // Packages of architecture `all` are not found under that qualifier.
        let arch = if self.arch == "all" { String::new() } else { format!(":{}", self.arch) };
        format!("{}{arch}={}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, &str, &str)>) {
        let found = parse_inst(line);
        let found = found.as_ref().map(|p| (p.name.as_str(), p.version.as_str(), p.arch.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn simulated_installations_are_read() {
        check(
            "Inst libaio1 (0.3.113-4 Debian:12.15/oldstable [amd64])",
            Some(("libaio1", "0.3.113-4", "amd64")),
        );
        check(
            "Inst systemd [252.38-1] (254.26-1~bpo12+1 Debian Backports:oldstable-backports [amd64]) []",
            Some(("systemd", "254.26-1~bpo12+1", "amd64")),
        );
        check("Inst libc6:i386 (2.36-9 Debian:12.15/oldstable [i386])", Some(("libc6", "2.36-9", "i386")));
        check("Conf libaio1 (0.3.113-4 Debian:12.15/oldstable [amd64])", None);
        check("Reading package lists...", None);
    }

    /// An archive of Debian's kernel and of kmod, on a host that has the former and a newer one of the latter.
    fn host_with_kernel() -> (tempfile::TempDir, Apt) {
        let package = |name: &str, version: &str, more: &str| {
            format!(
                "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x\nDescription: x\n{more}"
            )
        };
        let image = "linux-image-6.1.0-9-cloud-amd64";
        let depends = format!("Depends: {image}\n");
        let kernels = [package("linux-image-cloud-amd64", "6.1.9", &depends), package(image, "6.1.9", "")];
        let file = |text: String| format!("{text}Filename: ./x.deb\nSize: 1\nSHA256: {}\n", "0".repeat(64));
        let listed = kernels.clone().map(file).into_iter().chain([file(package("kmod", "30-1", ""))]);
        let newer = [package("kmod", "30-2", ""), package("libkmod2", "30-2", "")];
        let installed = |text: &String| format!("{text}Status: install ok installed\n");
        let host: Vec<String> = kernels.iter().chain(&newer).map(installed).collect();
        let root = tempfile::tempdir().unwrap();
        // apt reads archives as another user.
        fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for part in ["sources", "lists/partial", "archives/partial"] {
            fs::create_dir_all(root.path().join(part)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("Packages", &listed.collect::<Vec<_>>().join("\n"));
        write("installed", &host.join("\n"));
        write(NOTHING_INSTALLED, "");
        let sources = format!("Types: deb\nURIs: file:{}\nSuites: ./\nTrusted: yes\n", root.path().display());
        write("sources/hostgap.sources", &sources);
        let (folder, host) = (root.path().to_owned(), root.path().join("installed"));
        let apt = Apt { folder, codename: "bookworm".into(), host };
        apt.update().unwrap();
        (root, apt)
    }

    #[test]
    fn a_kernel_is_fetched_whole_also_where_it_is_installed() {
        let (_root, apt) = host_with_kernel();
        let (suite, release) = (Suite::Stable, Release::Own);
        let packages = &["linux-image-cloud-amd64"];
        let request = PackageRequest { name: "x", packages, suite, release, keep: &["linux-image-"] };
        let found = apt.resolve(&request).unwrap();
        let mut names: Vec<&str> = found.iter().map(|package| package.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["linux-image-6.1.0-9-cloud-amd64", "linux-image-cloud-amd64"]);
    }

    #[test]
    fn an_answer_without_what_was_asked_for_is_none() {
        let (root, apt) = host_with_kernel();
        let (suite, release) = (Suite::Stable, Release::Own);
        let request = PackageRequest { name: "x", packages: &["kmod"], suite, release, keep: &[] };
        let error = apt.resolve(&request).unwrap_err();
        let says = "Reinstallation of kmod is not possible";
        assert!(matches!(&error, Error::Failed { .. }) && error.to_string().contains(says), "{error}");
        // The lists that have it.
        let packages = fs::read_to_string(root.path().join("Packages")).unwrap();
        fs::write(root.path().join("Packages"), packages.replace("30-1", "30-2")).unwrap();
        apt.update().unwrap();
        assert_eq!(apt.resolve(&request).unwrap()[0].version, "30-2");
    }

    #[test]
    fn epoch_does_not_split_a_search_path() {
        let package = Package { name: "qemu".into(), version: "1:10.0.2+ds-2".into(), arch: "amd64".into() };
        assert_eq!(package.folder_name(), "qemu_1%3a10.0.2+ds-2_amd64");
        assert_eq!(package.qualified_name(), "qemu:amd64=1:10.0.2+ds-2");
        let data = Package { arch: "all".into(), ..package };
        assert_eq!(data.qualified_name(), "qemu=1:10.0.2+ds-2");
    }

    #[test]
    fn an_error_on_other_systems_says_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("os-release");
        fs::write(&path, "ID=ubuntu\nVERSION_CODENAME=noble\n").unwrap();
        let message = codenames(&path).unwrap_err().to_string();
        assert!(message.contains("ubuntu noble") && message.contains("bookworm"), "{message}");
        fs::write(&path, "ID=debian\nVERSION_CODENAME=\"bookworm\"\n").unwrap();
        assert_eq!(codenames(&path).unwrap(), ("bookworm", "trixie"));
    }
}
