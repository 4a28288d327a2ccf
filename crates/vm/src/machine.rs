//! One command on another kernel: start the file server and QEMU, wait, collect.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::apt::run;
use crate::deb::Suite;
use crate::nic::{Nic, Switch};
use crate::process::Process;
use crate::qemu::{Boot, names};
use crate::workdir::Workdir;
use crate::{Cache, Error, Flavour, Kernel, Qemu, Result, guest};

/// How long to sleep between two checks of the guest's output.
const TICK: Duration = Duration::from_millis(100);
/// How long the file server may take to listen.
const SERVER_START_MAX: Duration = Duration::from_secs(10);
/// How much of the console an error shows.
const CONSOLE_LINES: usize = 80;

/// The time limit for a boot under KVM. A kernel that hangs there never recovers.
const KVM_TRIAL: Duration = Duration::from_secs(20);

/// A kernel and an emulator, ready to run commands.
#[derive(Clone, Debug)]
pub struct Vm {
    cache: Cache,
    kernel: Kernel,
    qemu: Qemu,
    accelerator: Accelerator,
    /// More words for the kernel's command line.
    kernel_arguments: String,
}

/// Who executes a guest's instructions in real time. Instructions are always counted by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// On the processor itself, by KVM.
    Kvm,
    /// QEMU's software emulation, about ten times slower. Durations measured in such a guest mean little.
    Emulation,
}

/// Watches while a command runs. A closure that takes bytes sees what goes to stdout.
pub trait Watch {
    /// What the command wrote to stdout since the last call.
    fn stdout(&mut self, bytes: &[u8]);
    /// What it wrote to stderr.
    fn stderr(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
    /// True ends the guest at once.
    fn stops(&mut self) -> bool {
        false
    }
}

impl<F: FnMut(&[u8])> Watch for F {
    fn stdout(&mut self, bytes: &[u8]) {
        self(bytes);
    }
}

/// What a guest may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Wall time from start to power off.
    pub time: Duration,
    /// Wall time without a word on stdout or stderr, after which the guest is taken for hung.
    pub silence: Duration,
    /// Memory, in MiB; files that the guest writes can take at most three quarters of it.
    pub memory_mib: u32,
    /// How many virtual CPUs, and what their clock counts.
    pub timing: Timing,
    /// Bytes on stdout and stderr together, and of the files in `/out`.
    pub output_bytes: u64,
    /// Network cards on one switch of their own. They need root's rights on the host.
    pub nics: Vec<Nic>,
}

/// What the guest's clocks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The guest's clock follows the host's.
    RealTime {
        /// The number of virtual CPUs.
        cpus: u32,
    },
    /// The guest's clock counts instructions: it has one virtual CPU, and each instruction takes one nanosecond,
    /// whatever load the host has. Time that the guest would sleep is skipped. So a time span is a count of
    /// instructions, plus sleep. It repeats in each run, except for the host's influence on operations that the guest
    /// waits for (mostly files). Caches, locks and waiting processors cost no time here. A second of it takes three or
    /// four seconds of the host's.
    ///
    /// Source: QEMU, docs/devel/tcg-icount.rst.
    Counted,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Output {
    /// The exit status as a shell reports it: 128 + n for a death by signal n.
    pub status: u8,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// The files it put into `/out`, by their path there.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Default for Limits {
    /// Five minutes, 2 GiB, two CPUs, 64 MiB of output, no network cards.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            silence: Duration::MAX,
            memory_mib: 2048,
            timing: Timing::RealTime { cpus: 2 },
            output_bytes: 64 << 20,
            nics: Vec::new(),
        }
    }
}

impl Vm {
    /// Fetches all parts of a guest, or finds them in the cache.
    ///
    /// # Errors
    /// If packages cannot be fetched (see [`deb::fetch`](crate::deb::fetch)) or the kernel cannot be unpacked.
    pub fn fetch(cache: &Cache, suite: Suite, flavour: Flavour) -> Result<Self> {
        Self::with(cache, Kernel::fetch(cache, suite, flavour)?)
    }

    /// The same with a kernel that is there already; only QEMU is fetched.
    ///
    /// # Errors
    /// If QEMU cannot be had.
    pub fn with(cache: &Cache, kernel: Kernel) -> Result<Self> {
        let qemu = Qemu::fetch(cache)?;
        Ok(Self {
            cache: cache.clone(),
            kernel,
            qemu,
            accelerator: Accelerator::Emulation,
            kernel_arguments: String::new(),
        })
    }

    /// Boots the kernel with more arguments, for what it decides at boot alone: `ipv6.disable=1`.
    #[must_use]
    pub fn with_kernel_arguments(mut self, arguments: &str) -> Self {
        arguments.clone_into(&mut self.kernel_arguments);
        self
    }

    /// Boots once under KVM, and uses KVM if that works. An existing `/dev/kvm` proves little: under some hypervisors
    /// it opens, and the guest hangs before its first line.
    #[must_use]
    pub fn tried_with_kvm(mut self) -> Self {
        let usable = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        if usable {
            self.accelerator = Accelerator::Kvm;
            let limits = Limits { time: KVM_TRIAL, ..Limits::default() };
            let worked = self.run(&Command::new("true"), &limits).is_ok_and(|output| output.status == 0);
            if !worked {
                self.accelerator = Accelerator::Emulation;
            }
        }
        self
    }

    /// Who executes the guest's instructions where time is real.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// The kernel it boots.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Boots, runs `command` with root's rights, and powers off.
    ///
    /// Of `command` the program, its arguments, its folder and the variables set on it are used; the environment of
    /// this process is not handed on. stdin is empty.
    ///
    /// # Errors
    /// [`Error::Died`] if the kernel panicked, [`Error::TimedOut`] and [`Error::TooMuchOutput`] at a limit; all three
    /// carry what was written until then. Other errors if the guest could not be started.
    pub fn run(&self, command: &Command, limits: &Limits) -> Result<Output> {
        self.run_watched(command, limits, &mut |_: &[u8]| {})
    }

    /// Like [`Vm::run`], and passes the command's output to `watch` while it runs.
    ///
    /// # Errors
    /// Those of [`Vm::run`], and [`Error::Stopped`] if the watch asks to stop.
    pub fn run_watched(&self, command: &Command, limits: &Limits, watch: &mut dyn Watch) -> Result<Output> {
        let deadline = Instant::now() + limits.time;
        let workdir = Workdir::create(&self.cache, &std::env::temp_dir())?;
        let folder = workdir.path();
        guest::write(&workdir, &self.kernel, command)?;
        let log = folder.join(names::LOG);
        let log = File::options().create(true).append(true).open(&log).map_err(Error::file("open", &log))?;

        let mut server = Process::start(&self.qemu.file_server(folder), "qemu-system-common", &log)?;
        wait_for_server(&mut server, folder)?;
        let boot = Boot { kernel: &self.kernel, arguments: &self.kernel_arguments };
        let guest = self.qemu.guest(&boot, limits, self.accelerator, folder);
        let start = || Process::start(&guest, "qemu-system-x86", &log);
        let switch = (!limits.nics.is_empty()).then(Switch::new).transpose()?;
        let guest = match &switch {
            None => start(),
            Some(switch) => switch.start(limits.nics.len(), start),
        }?;
        let heard = Instant::now();
        Run { folder, limits, deadline, guest, server, seen: [0; 2], heard, stdout: Vec::new() }
            .finish(watch)?;
        collect(folder, limits)
    }
}

/// QEMU connects once and does not try again, so the server must listen first.
fn wait_for_server(server: &mut Process, folder: &Path) -> Result<()> {
    let start = Instant::now();
    while !folder.join(names::SOCKET).exists() {
        if server.wait(Duration::from_millis(10)).is_some() || start.elapsed() > SERVER_START_MAX {
            return Err(Error::Died { console: console(folder), stdout: Vec::new() });
        }
    }
    Ok(())
}

/// A guest under way.
struct Run<'a> {
    folder: &'a Path,
    limits: &'a Limits,
    deadline: Instant,
    guest: Process,
    server: Process,
    /// Bytes of stdout and stderr that were handed on.
    seen: [u64; 2],
    heard: Instant,
    stdout: Vec<u8>,
}

impl Run<'_> {
    /// Returns when the guest has powered off; any other end is an error.
    fn finish(mut self, watch: &mut dyn Watch) -> Result<()> {
        loop {
            let ended = self.guest.wait(TICK).is_some();
            self.read_on(watch)?;
            if ended {
                return Ok(());
            }
            if self.heard.elapsed() > self.limits.silence {
                let (limit, console) = (self.limits.silence, console(self.folder));
                return Err(Error::Silent { limit, console, stdout: self.stdout });
            }
            if watch.stops() {
                return Err(Error::Stopped { stdout: self.stdout });
            }
            if self.size(names::STDOUT) + self.size(names::STDERR) > self.limits.output_bytes
                || self.size(names::FILES) > self.limits.output_bytes
            {
                return Err(Error::TooMuchOutput {
                    limit_bytes: self.limits.output_bytes,
                    stdout: self.stdout,
                });
            }
            if Instant::now() > self.deadline {
                let console = console(self.folder);
                return Err(Error::TimedOut { limit: self.limits.time, console, stdout: self.stdout });
            }
            // Without its root the guest would hang until the time is up.
            if self.server.wait(Duration::ZERO).is_some() && self.guest.wait(TICK * 10).is_none() {
                return Err(Error::Died { console: console(self.folder), stdout: self.stdout });
            }
        }
    }

    fn read_on(&mut self, watch: &mut dyn Watch) -> Result<()> {
        let before = self.seen;
        let stdout = &mut self.stdout;
        self.seen[0] += more(&self.folder.join(names::STDOUT), self.seen[0], &mut |bytes| {
            stdout.extend_from_slice(bytes);
            watch.stdout(bytes);
        })?;
        let stderr = self.folder.join(names::STDERR);
        self.seen[1] += more(&stderr, self.seen[1], &mut |bytes| watch.stderr(bytes))?;
        if self.seen != before {
            self.heard = Instant::now();
        }
        Ok(())
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.folder.join(name)).map_or(0, |metadata| metadata.len())
    }
}

/// Hands on what a file has from an offset to its end; how much that was. No file is an empty one.
fn more(path: &Path, from: u64, take: &mut dyn FnMut(&[u8])) -> Result<u64> {
    use std::os::unix::fs::FileExt;
    let Ok(file) = File::open(path) else { return Ok(0) };
    let mut buffer = [0; 64 * 1024];
    let mut taken = 0;
    loop {
        let length = file.read_at(&mut buffer, from + taken).map_err(Error::file("read", path))?;
        if length == 0 {
            return Ok(taken);
        }
        taken += length as u64;
        take(&buffer[..length]);
    }
}

fn collect(folder: &Path, limits: &Limits) -> Result<Output> {
    let stdout = read(&folder.join(names::STDOUT))?;
    let status = read(&folder.join(names::STATUS))?;
    let Ok(status) = String::from_utf8_lossy(&status).trim().parse() else {
        return Err(Error::Died { console: console(folder), stdout });
    };
    let stderr = read(&folder.join(names::STDERR))?;
    let files = unpack(folder, limits)?;
    Ok(Output { status, stdout, stderr, files })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        // QEMU makes the file when it starts; if it did not start, there is no output.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map_err(Error::file("read", path)),
    }
}

/// The files of the guest's `/out`, out of the archive that came over a port.
fn unpack(folder: &Path, limits: &Limits) -> Result<BTreeMap<String, Vec<u8>>> {
    let root = folder.join("out");
    fs::create_dir(&root).map_err(Error::file("make", &root))?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--no-same-owner").arg("--directory").arg(&root);
    tar.arg("--file").arg(folder.join(names::FILES));
    run("unpack the guest's files", "tar", &mut tar)?;
    let mut files = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))? {
            let path = entry.map_err(Error::file("list", &folder))?.path();
            let kind = fs::symlink_metadata(&path).map_err(Error::file("look at", &path))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(&root).expect("it was listed below the root");
                files.insert(name.to_string_lossy().into_owned(), read_bounded(&path, limits.output_bytes)?);
            }
        }
    }
    Ok(files)
}

/// A sparse file in the guest may be larger than the archive that brought it.
fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(Error::file("open", path))?;
    let mut content = Vec::new();
    file.take(bytes_max).read_to_end(&mut content).map_err(Error::file("read", path))?;
    Ok(content)
}

/// The end of the guest's console, and the messages of QEMU and the file server.
fn console(folder: &Path) -> String {
    let mut text = String::new();
    for name in [names::CONSOLE, names::LOG] {
        let content = fs::read(folder.join(name)).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        let lines: Vec<&str> = content.lines().collect();
        for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
