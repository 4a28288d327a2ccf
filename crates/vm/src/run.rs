//! A guest under way: what its command writes, when it must end, what it left behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::apt::run;
use crate::boot::{BootWatch, has_begun};
use crate::limits::Limits;
use crate::process::Process;
use crate::qemu::names;
use crate::{Error, Result};

/// How long to sleep between two checks of the guest's output.
const TICK: Duration = Duration::from_millis(100);
/// What an emulator did that has lost a timer, to follow its name.
const LOST_TIMER: &str = "lost a timer, without which the guest waits for ever";
/// How much of the console an error shows.
const CONSOLE_LINES: usize = 80;

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

/// A guest under way.
pub(crate) struct Run<'a> {
    folder: &'a Path,
    limits: &'a Limits,
    deadline: Instant,
    guest: Process,
    server: Process,
    /// Bytes of stdout and stderr that were handed on.
    seen: [u64; 2],
    heard: Instant,
    boot: BootWatch,
    stdout: Vec<u8>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        folder: &'a Path,
        limits: &'a Limits,
        deadline: Instant,
        guest: Process,
        server: Process,
    ) -> Self {
        let heard = Instant::now();
        let boot = BootWatch::new();
        Self { folder, limits, deadline, guest, server, seen: [0; 2], heard, boot, stdout: Vec::new() }
    }

    /// Returns when the guest has powered off; any other end is an error.
    pub(crate) fn finish(mut self, watch: &mut dyn Watch) -> Result<()> {
        loop {
            let ended = self.guest.wait(TICK);
            self.read_on(watch)?;
            if let Some(status) = ended {
                return match status.signal() {
                    Some(signal) => Err(self.emulator_failed(format!("died by signal {signal}"))),
                    None => Ok(()),
                };
            }
            // A boot may go on for a while without that timer, so that its loss shows only under the command.
            if self.boot.says_timer_is_lost(self.folder)
                || !has_begun(self.folder) && self.boot.is_idle([&self.guest, &self.server])
            {
                return Err(self.emulator_failed(LOST_TIMER.to_owned()));
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
            if self.server.wait(Duration::ZERO).is_some() {
                // It ends with the guest, which may take a while to follow on a busy machine.
                if status(self.folder)?.is_some() {
                    return self.read_on(watch);
                }
                // Without its root the guest would hang until the time is up.
                if self.guest.wait(TICK * 10).is_none() {
                    return Err(Error::Died { console: console(self.folder), stdout: self.stdout });
                }
            }
        }
    }

    fn emulator_failed(self, how: String) -> Error {
        Error::Emulator { how, console: console(self.folder), stdout: self.stdout }
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
        size(self.folder, name)
    }
}

fn size(folder: &Path, name: &str) -> u64 {
    fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len())
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

/// Whether the command has written nothing yet.
pub(crate) fn is_unheard(folder: &Path) -> bool {
    size(folder, names::STDOUT) + size(folder, names::STDERR) == 0
}

/// What the command of a run left behind; an error if its status did not come.
pub(crate) fn collect(folder: &Path, limits: &Limits) -> Result<Output> {
    let stdout = read(&folder.join(names::STDOUT))?;
    let Some(status) = status(folder)? else {
        return Err(Error::Died { console: console(folder), stdout });
    };
    let stderr = read(&folder.join(names::STDERR))?;
    let files = unpack(folder, limits)?;
    Ok(Output { status, stdout, stderr, files })
}

/// The command's exit status, if it has come. It vouches for all else that the guest has written.
fn status(folder: &Path) -> Result<Option<u8>> {
    let written = read(&folder.join(names::STATUS))?;
    let written = String::from_utf8_lossy(&written);
    let last = written.strip_suffix('\n').and_then(|lines| lines.lines().next_back());
    Ok(last.and_then(|line| line.parse().ok()))
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
pub(crate) fn console(folder: &Path) -> String {
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
