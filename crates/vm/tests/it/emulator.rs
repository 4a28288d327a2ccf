//! An emulator that dies by itself, as QEMU was seen to do while a kernel booted.

#![expect(
    clippy::unwrap_used,
    reason = "every line of this file is test code, also outside #[test] functions"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use vm::{Error, Vm};

use crate::boot::{limits, shell, text, with_vm};

#[test]
fn an_emulator_that_dies_while_it_boots_is_started_once_more() {
    with_vm(|vm| {
        let output = while_emulators_die(1, || vm.run(&shell("echo done"), &limits())).unwrap();
        assert_eq!(text(&output.stdout), "done\n");
    });
}

#[test]
fn an_emulator_that_always_dies_is_an_error() {
    with_vm(|vm| {
        let error = while_emulators_die(3, || vm.run(&shell("echo done"), &limits())).unwrap_err();
        assert!(matches!(error, Error::Emulator { .. }), "{error}");
    });
}

/// What a kernel says when the emulator has lost the timer that would wake up a CPU.
const LOST_TIMER: &str =
    "rcu: rcu_preempt kthread timer wakeup didn't happen for 5246 jiffies! g-1119 f0x0\n";

#[test]
fn an_emulator_that_loses_a_timer_while_it_boots_is_started_once_more() {
    with_vm(|vm| {
        let run = || vm.run(&shell("echo done"), &limits());
        let output = while_emulators(1, lose_timer, run).unwrap();
        assert_eq!(text(&output.stdout), "done\n");
    });
}

/// What follows from the loss: a guest that does nothing more, but for what its kernel says.
fn lose_timer(pid: Pid, console: &Path) {
    kill_process(pid, Signal::STOP).unwrap();
    let mut console = File::options().append(true).open(console).unwrap();
    console.write_all(LOST_TIMER.as_bytes()).unwrap();
}

/// The watch has heard from the command, so it is not begun again.
#[test]
fn an_emulator_that_fails_under_a_watched_command_is_an_error() {
    with_vm(|vm| {
        let dies = |pid: Pid, _: &Path| kill_process(pid, Signal::ABORT).unwrap();
        fails_under_a_watched_command(vm, "died by signal 6", dies);
        fails_under_a_watched_command(vm, "lost a timer, without which the guest waits for ever", lose_timer);
    });
}

fn fails_under_a_watched_command(vm: &Vm, how: &str, befall: impl Fn(Pid, &Path)) {
    let mut befall_it = |_: &[u8]| {
        let (pid, console) = emulator().unwrap();
        befall(pid, &console);
    };
    let error = vm.run_watched(&shell("echo begun; sleep 600"), &limits(), &mut befall_it).unwrap_err();
    let Error::Emulator { how: found, stdout, .. } = error else { panic!("{error}") };
    assert_eq!((found.as_str(), text(&stdout).as_str()), (how, "begun\n"));
}

/// Nothing was reported by the first one, and it left nothing behind.
#[test]
fn a_command_without_a_watcher_starts_again() {
    with_vm(|vm| {
        let folder = tempfile::tempdir().unwrap();
        let failed = folder.path().join("failed");
        let command = shell(&format!(
            "if test -e {}; then echo again; else echo begun; sleep 600; fi",
            failed.display()
        ));
        let loses_timer_at_last = |pid: Pid, console: &Path| {
            let stdout = console.with_file_name("stdout");
            while fs::read(&stdout).is_ok_and(|heard| heard.is_empty()) || !stdout.exists() {
                assert!(console.exists(), "the guest ended without a word");
                thread::sleep(Duration::from_millis(5));
            }
            File::create(&failed).unwrap();
            lose_timer(pid, console);
        };
        let output = while_emulators(1, loses_timer_at_last, || vm.run(&command, &limits())).unwrap();
        assert_eq!((output.status, text(&output.stdout).as_str()), (0, "again\n"));
    });
}

#[test]
fn a_boot_that_comes_to_a_halt_is_started_once_more() {
    with_vm(|vm| {
        let halts = |pid: Pid, _: &Path| kill_process(pid, Signal::STOP).unwrap();
        let output = while_emulators(1, halts, || vm.run(&shell("echo done"), &limits())).unwrap();
        assert_eq!(text(&output.stdout), "done\n");
    });
}

/// Runs `work`. Meanwhile the first `count` emulators of this process are aborted as soon as they have
/// started.
fn while_emulators_die<T>(count: usize, work: impl FnOnce() -> T) -> T {
    while_emulators(count, |pid, _| kill_process(pid, Signal::ABORT).unwrap(), work)
}

/// The same with something else that happens to them, given the process and its console's file.
fn while_emulators<T>(count: usize, befall: impl Fn(Pid, &Path) + Send, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let culprit = scope.spawn(move || befall_emulators(count, befall, &is_done));
        let result = work();
        drop(done);
        assert_eq!(culprit.join().unwrap(), count, "emulators to which it happened");
        result
    })
}

/// Returns to how many emulators it happened.
fn befall_emulators(count: usize, befall: impl Fn(Pid, &Path), is_done: &Receiver<()>) -> usize {
    let mut met = Vec::new();
    while met.len() < count && is_done.try_recv() == Err(TryRecvError::Empty) {
        match emulator().filter(|(pid, console)| !met.contains(pid) && console.exists()) {
            Some((pid, console)) => {
                befall(pid, &console);
                met.push(pid);
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    met.len()
}

/// The emulator of this process, and the file of its console, which is named after the process that started
/// it.
fn emulator() -> Option<(Pid, PathBuf)> {
    let beginning = format!("file:{}/hgvm-{}-", std::env::temp_dir().display(), std::process::id());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let console_of = |pid: i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        let mut arguments = arguments.split('\0');
        // QEMU's own loader starts it; before that, setpriv has its arguments.
        arguments.next().filter(|program| program.ends_with("/ld-linux-x86-64.so.2"))?;
        let console = arguments.find(|argument| argument.starts_with(&beginning))?;
        Some((Pid::from_raw(pid)?, PathBuf::from(console.strip_prefix("file:")?)))
    };
    pids.into_iter().find_map(console_of)
}
