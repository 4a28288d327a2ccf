//! One command on another kernel: start the file server and QEMU, wait, collect.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::deb::Suite;
use crate::nic::Switch;
use crate::process::Process;
use crate::qemu::{Boot, names};
use crate::run::{Run, Watch, collect, console, is_unheard};
use crate::workdir::Workdir;
use crate::{Accelerator, Cache, Error, Flavour, Kernel, Limits, Output, Qemu, Result, guest, kvm};

/// How long the file server may take to listen.
const SERVER_START_MAX: Duration = Duration::from_secs(10);
/// How often a guest is booted whose emulator fails, for one command.
const BOOTS_MAX: u32 = 3;
/// The time limit for a boot under KVM. A kernel that hangs there never recovers.
const KVM_TRIAL: Duration = Duration::from_secs(20);

/// For guests that run tests: arguments of the kernel that leave out what Debian's do against attackers, which no
/// test is about. They clear fresh memory, check what is copied from and to programs, move the stack at each system
/// call, and ask security modules that have no policy. Without a fifth level of page tables, which the emulator would
/// walk too, and without the self-tests of ciphers.
pub const UNGUARDED: &str = "init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off lsm= no5lvl \
                             cryptomgr.notests=1";

/// A kernel and an emulator, ready to run commands.
#[derive(Clone, Debug)]
pub struct Vm {
    kernel: Kernel,
    qemu: Qemu,
    accelerator: Accelerator,
    /// More words for the kernel's command line.
    kernel_arguments: String,
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
        Ok(Self { kernel, qemu, accelerator: Accelerator::Emulation, kernel_arguments: String::new() })
    }

    /// Boots the kernel with more arguments, for what it decides at boot alone: `ipv6.disable=1`.
    #[must_use]
    pub fn with_kernel_arguments(mut self, arguments: &str) -> Self {
        arguments.clone_into(&mut self.kernel_arguments);
        self
    }

    /// Boots once under KVM, and uses KVM if that works. An existing `/dev/kvm` proves little: under some hypervisors
    /// it opens, and the guest hangs before its first line. The cache keeps the answer for an hour.
    #[must_use]
    pub fn tried_with_kvm(mut self, cache: &Cache) -> Self {
        let usable = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        if usable && kvm::works(cache, || self.boots_under_kvm()) {
            self.accelerator = Accelerator::Kvm;
        }
        self
    }

    fn boots_under_kvm(&self) -> bool {
        let under_kvm = Self { accelerator: Accelerator::Kvm, ..self.clone() };
        let limits = Limits { time: KVM_TRIAL, ..Limits::default() };
        under_kvm.run(&Command::new("true"), &limits).is_ok_and(|output| output.status == 0)
    }

    /// What executes the guest's instructions where time is real.
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
    /// QEMU itself was seen to die of an assertion (in `iotlb_to_section`), and to lose a timer without which the
    /// kernel waits for ever. Then the command begins again in another guest; there are three guests at most.
    ///
    /// # Errors
    /// [`Error::Died`] if the kernel panicked, [`Error::TimedOut`] and [`Error::TooMuchOutput`] at a limit,
    /// [`Error::Emulator`] if QEMU failed; all of them carry what was written until then. Other errors if the guest
    /// could not be started.
    pub fn run(&self, command: &Command, limits: &Limits) -> Result<Output> {
        self.run_in_guests(command, limits, &mut |_: &[u8]| {}, &|_| true)
    }

    /// Like [`Vm::run`], and passes the command's output to `watch` while it runs. A command that has written something
    /// does not begin again.
    ///
    /// # Errors
    /// Those of [`Vm::run`], and [`Error::Stopped`] if the watch asks to stop.
    pub fn run_watched(&self, command: &Command, limits: &Limits, watch: &mut dyn Watch) -> Result<Output> {
        self.run_in_guests(command, limits, watch, &is_unheard)
    }

    /// Runs `command` in one guest, and in another if the emulator fails and `may_repeat` agrees,
    /// given the run's folder.
    fn run_in_guests(
        &self,
        command: &Command,
        limits: &Limits,
        watch: &mut dyn Watch,
        may_repeat: &dyn Fn(&Path) -> bool,
    ) -> Result<Output> {
        let deadline = Instant::now() + limits.time;
        let mut boots = 0;
        loop {
            let workdir = Workdir::create(&std::env::temp_dir(), "hgvm")?;
            let folder = workdir.path();
            guest::write(&workdir, &self.kernel, command)?;
            let ended = self.boot(folder, limits, deadline, watch);
            boots += 1;
            let Err(error @ Error::Emulator { .. }) = ended else {
                return ended.and_then(|()| collect(folder, limits));
            };
            // The status is the guest's last word: with it, the emulator failed when all was done.
            match collect(folder, limits) {
                Err(_) if boots < BOOTS_MAX && may_repeat(folder) => {}
                result => return result.map_err(|_| error),
            }
        }
    }

    /// Boots once, and waits for QEMU's end.
    fn boot(&self, folder: &Path, limits: &Limits, deadline: Instant, watch: &mut dyn Watch) -> Result<()> {
        let log = folder.join(names::LOG);
        let log = File::options().create(true).append(true).open(&log).map_err(Error::file("open", &log))?;
        let mut server = Process::start(&self.qemu.file_server(folder), "qemu-system-common", &log)?;
        wait_for_server(&mut server, folder)?;
        let boot = Boot { kernel: &self.kernel, arguments: &self.kernel_arguments };
        let guest = self.qemu.guest(&boot, limits, self.accelerator, folder);
        let start = || Process::start(&guest, "qemu-system-x86", &log);
        let switch = Switch::of(&limits.nics, &limits.join)?;
        let guest = match &switch {
            None => start(),
            Some(switch) => switch.start(start),
        }?;
        Run::new(folder, limits, deadline, guest, server).finish(watch)
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
