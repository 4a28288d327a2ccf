//! A private apt: the host's mirrors and keys, but its own lists, cache and sources inside our cache.
//!
//! It asks apt which packages would be needed here (a simulated installation), and to download them. For another
//! release than the host's, apt is made to believe that nothing is installed. It installs no package and does not touch
//! the host's own apt.

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
    release: Release,
}

/// A file in the folder of an apt that believes that nothing is installed.
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
        if let Release::Next = release {
            cache.write(&folder.join(NOTHING_INSTALLED), b"")?;
        }
        let path = folder.join("sources/hostgap.sources");
        let apt = Self { folder, codename: codename.to_owned(), release };
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            cache.write(&path, text.as_bytes())?;
            apt.update()?;
        } else if apt.lists_are_old() {
            let updated = apt.update();
            // Without a mirror the old lists may still do: what they name may be in the cache already.
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

    /// The packages to unpack for `request`: those named, and what they need that is not installed.
    pub(crate) fn resolve(&self, request: &PackageRequest) -> Result<Vec<Package>> {
        let mut command = self.command();
        command.args(["install", "--simulate", "--reinstall", "--no-install-recommends"]);
        if let Suite::Backports = request.suite {
            command.args(["-t", &format!("{}-backports", self.codename)]);
        }
        command.args(request.packages);
        let text = run(&format!("resolve {}", request.packages.join(" ")), "apt", &mut command)?;
        let mut packages: Vec<Package> = text.lines().filter_map(parse_inst).collect();
        packages.retain(|package| request.wants(&package.name));
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
        let set = |name: &str, value: &Path| {
            let mut option = OsString::from(format!("{name}="));
            option.push(value);
            option
        };
        for (name, folder) in [
            ("Dir::Etc::sourceparts", "sources"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", ""),
            ("Dir::Cache::archives", "archives"),
        ] {
            command.arg("-o").arg(set(name, &self.folder.join(folder)));
        }
        command.args(["-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Acquire::Languages=none"]);
        command.args(["-o", "Acquire::Retries=3"]);
        if let Release::Next = self.release {
            command.arg("-o").arg(set("Dir::State::status", &self.folder.join(NOTHING_INSTALLED)));
        }
        command
    }
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
