//! QEMU and virtiofsd: where they come from, and how a guest is spelled on their command lines.
//!
//! QEMU is 11, from the backports of the release after the machine's. Version 7.2, Debian 12's own, corrupts the
//! flags around `cmpxchg16b` in software emulation and so crashes kernels from 6.12 on in their allocator. 10.0,
//! of Debian 12's backports, looks up a device by its number in a list that another CPU may have just replaced
//! (`iotlb_to_section` in system/physmem.c), as the guest does when it lays out its PCI devices. One of 80 boots
//! with four CPUs died of an assertion there, and a boot whose timer never came again is what a write to the
//! wrong device would look like. 11 keeps a pointer: 240 boots went well. virtiofsd is Debian 12's own: QEMU no
//! longer brings it along.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::deb::{self, PackageRequest, PackagedProgram, Release, Suite, Unpacked};
use crate::limits::{Accelerator, Limits, Timing};
use crate::{Cache, Kernel, Result, nic};

/// The emulator and the file server.
#[derive(Clone, Debug)]
pub struct Qemu {
    emulator: PackagedProgram,
    packages: Unpacked,
    virtiofsd: PackagedProgram,
}

/// A kernel and its command line.
pub(crate) struct Boot<'a> {
    pub(crate) kernel: &'a Kernel,
    /// More words for its command line.
    pub(crate) arguments: &'a str,
}

/// The files and sockets of a run, in its folder.
pub(crate) mod names {
    pub(crate) const SOCKET: &str = "virtiofs.sock";
    pub(crate) const CONSOLE: &str = "console";
    pub(crate) const LOG: &str = "log";
    pub(crate) const INIT: &str = "init";
    pub(crate) const INITRAMFS: &str = "initramfs";
    pub(crate) const STDOUT: &str = "stdout";
    pub(crate) const STDERR: &str = "stderr";
    pub(crate) const STATUS: &str = "status";
    pub(crate) const FILES: &str = "files";
    /// The virtio-serial ports, each named as the file it fills.
    pub(crate) const PORTS: [&str; 4] = [STDOUT, STDERR, STATUS, FILES];
}

/// The packages that QEMU needs; the others serve their installation. Names of libraries begin with
/// "lib", but for zlib's.
const QEMU_PACKAGES: [&str; 5] = ["qemu-", "lib", "zlib", "seabios", "ipxe-"];
/// The folders of QEMU's firmware in its packages.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
const MODULES: &str = "usr/lib/x86_64-linux-gnu/qemu";

impl Qemu {
    /// Finds QEMU and virtiofsd in the cache, or fetches them.
    ///
    /// # Errors
    /// Passes on those of [`deb::fetch`].
    pub fn fetch(cache: &Cache) -> Result<Self> {
        let request = PackageRequest {
            name: "qemu",
            packages: &["qemu-system-x86"],
            suite: Suite::Backports,
            release: Release::Next,
            keep: &QEMU_PACKAGES,
        };
        let packages = deb::fetch(cache, &request)?;
        let request = PackageRequest {
            name: "virtiofsd",
            packages: &["qemu-system-common"],
            suite: Suite::Stable,
            release: Release::Own,
            keep: &[],
        };
        let virtiofsd = deb::fetch(cache, &request)?.program(&["usr/lib/qemu/virtiofsd"])?;
        let emulator = packages.program(&["usr/bin/qemu-system-x86_64"])?;
        Ok(Self { emulator, packages, virtiofsd })
    }

    /// The file server that shares the host's `/` with the guest.
    pub(crate) fn file_server(&self, folder: &Path) -> Command {
        let mut command = self.virtiofsd.command();
        command.arg(joined("--socket-path=", &folder.join(names::SOCKET)));
        // Full caching is safe: the guest uses the host's files as they are at the start. The sandbox protects only
        // the server itself; the server still holds the whole root open, which is why the guest mounts it read-only.
        command.args([
            "-o",
            "source=/",
            "-o",
            "cache=always",
            "-o",
            "sandbox=chroot",
            "--thread-pool-size=2",
        ]);
        command
    }

    pub(crate) fn guest(
        &self,
        boot: &Boot<'_>,
        limits: &Limits,
        accelerator: Accelerator,
        folder: &Path,
    ) -> Command {
        let mut command = self.emulator.command();
        if let Some(modules) = self.packages.find(MODULES).next() {
            command.env("QEMU_MODULE_DIR", modules);
        }
        for firmware in FIRMWARE.iter().flat_map(|path| self.packages.find(path)) {
            command.arg("-L").arg(firmware);
        }
        command.args(["-machine", "q35", "-m", &format!("{}M", limits.memory_mib)]);
        processors(&mut command, limits.timing, accelerator);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-device", "virtio-rng-pci"]);
        command.arg("-serial").arg(joined("file:", &folder.join(names::CONSOLE)));
        command.arg("-kernel").arg(&boot.kernel.image);
        command.arg("-append").arg(command_line(boot.arguments, folder));
        if boot.kernel.early.is_some() {
            command.arg("-initrd").arg(folder.join(names::INITRAMFS));
        }
        file_system(&mut command, limits, folder);
        nic::arguments(&mut command, &limits.nics, &limits.join);
        command.args(["-device", "virtio-serial-pci"]);
        for port in names::PORTS {
            command.arg("-chardev").arg(joined(&format!("file,id={port},path="), &folder.join(port)));
            command.args(["-device", &format!("virtserialport,chardev={port},name={port}")]);
        }
        command
    }
}

/// All that QEMU emulates, but for fast `rep movsb` and `rep stosb`, and SMAP. The emulator takes a turn for each byte
/// of such an instruction, and a kernel that believes them fast clears and copies pages with them: a fifth of a guest's
/// time. With SMAP the kernel brackets each access to a program's memory with two instructions (`stac`, `clac`), of
/// which each ends a translated block, and between them the emulator looks addresses up in another table.
const EMULATED_CPU: &str = "max,erms=off,fsrm=off,fsrs=off,smap=off";

/// How many processors there are, and what their clock counts.
fn processors(command: &mut Command, timing: Timing, accelerator: Accelerator) {
    match timing {
        Timing::RealTime { cpus } => {
            let (accel, cpu) = match accelerator {
                Accelerator::Kvm => ("kvm", "host"),
                Accelerator::Emulation => ("tcg,thread=multi", EMULATED_CPU),
            };
            command.args(["-accel", accel, "-cpu", cpu, "-smp", &cpus.to_string()]);
        }
        // A shift of 0 is 2⁰ ns an instruction; without sleep the clock jumps over what the guest would sleep. The seed
        // is for what a guest takes from the processor as random: the same in each run.
        Timing::Counted => {
            command.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1"]);
            command.args(["-icount", "shift=0,sleep=off", "-seed", "1"]);
        }
    }
}

/// The guest's memory is shared with the file server, which writes into it.
fn file_system(command: &mut Command, limits: &Limits, folder: &Path) {
    let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", limits.memory_mib);
    command.args(["-object", &memory, "-numa", "node,memdev=memory"]);
    command.arg("-chardev").arg(joined("socket,id=files-of-host,path=", &folder.join(names::SOCKET)));
    command.args(["-device", "vhost-user-fs-pci,chardev=files-of-host,tag=root-of-host"]);
}

fn command_line(more: &str, folder: &Path) -> OsString {
    // Tests make and remove many namespaces, and each removal waits for RCU: expedited, it waits for no clock tick.
    // A panic or an oops ends the machine at once (-no-reboot): a test must not go on with a broken kernel.
    let text = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off nokaslr audit=0 apparmor=0 \
                random.trust_cpu=on no_timer_check net.ifnames=0 rcupdate.rcu_expedited=1 \
                rootfstype=virtiofs root=root-of-host ro";
    joined(&format!("{text} {more} init="), &folder.join(names::INIT))
}

fn joined(before: &str, path: &Path) -> OsString {
    let mut text = OsString::from(before);
    text.push(path);
    text
}
