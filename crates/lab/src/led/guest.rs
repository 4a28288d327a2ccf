//! A race in a virtual machine: the same program races there, and its events and record come back line by line.
//!
//! The guest sees this machine's files, so that program, nginx and plugins are at their usual paths; its network is its
//! own. Its hostgap says two kinds of things on stdout: events, as JSON, and the lines of its record as they are
//! written. So progress shows here as that of any race, and a guest that dies leaves the rounds that it had finished.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::cpu::Scheduling;
use record::{Experiment, Machines, WorkloadKind, Writer};
use vm::{Accelerator, Join, Limits, Timing, Vm, Watch};

use super::outward::Listener;
use crate::cards;
use crate::cni::PluginDirs;
use crate::race::Finished;
use crate::{Event, LabError};

/// A race says something with every trial. Between its words lie at most the boot and the building of all topologies,
/// which emulation makes minutes of.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// The greatest length of a race in a guest.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Loaded before the race. Hosts of containers have the first, by Docker or by what Kubernetes demands; nothing loads
/// it by itself. The other comes with the first rule that needs it, and its parameters then appear in every namespace.
const MODULES: &str = "br_netfilter nf_conntrack";
/// Loaded before the race where there is such a module: AES by the processor's own instructions. On a machine udev
/// loads it for the processor; a guest has no udev, and IPsec would encrypt by tables in memory.
const PROCESSOR_MODULES: &str = "aesni_intel";
/// Loaded before a race of messages by RDMA verbs. The kernel knows no RDMA before, and nothing loads it by itself.
const RDMA_MODULES: &str = " rdma_rxe ib_uverbs";
/// How many lines of the guest's stderr an error quotes.
const STDERR_LINES_MAX: usize = 6;

/// A race that runs in a virtual machine.
#[derive(Debug)]
pub struct GuestRace<'a> {
    /// The virtual machine to boot.
    pub vm: &'a Vm,
    /// What is raced there: [`Experiment::on`] its kernel.
    pub experiment: &'a Experiment,
    /// The record file to write; it must not exist yet. Meanwhile the experiment lies beside it, for the guest to read.
    pub record: PathBuf,
    /// The path of this executable, which the guest starts.
    pub own: PathBuf,
    /// The nginx to use, where not the one in `PATH`.
    pub nginx: Option<PathBuf>,
    /// Where CNI plugins are searched.
    pub plugins: &'a PluginDirs,
    /// Policy of the threads of client and server.
    pub scheduling: Scheduling,
    /// Set from outside to end the race.
    pub stop: Arc<AtomicBool>,
}

impl GuestRace<'_> {
    /// Runs it. What the guest had finished is in the record file, whatever happens.
    ///
    /// # Errors
    /// Those of the virtual machine, and [`LabError::Guest`] if the race in there failed.
    pub fn run(self, emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let (release, limits) = (self.vm.kernel().release.clone(), self.limits()?);
        emit(Event::Booting { release: release.clone(), how: self.describe() });
        let writer = Writer::create(&self.record)?;
        emit(Event::Recording { path: self.record.clone() });
        let file = self.record.with_file_name("experiment.toml");
        std::fs::write(&file, for_guest(self.experiment)?.to_toml())
            .map_err(LabError::file("write", &file))?;
        let command = self.command(&file)?;
        let started = Instant::now();
        let mut guest = Guest {
            listener: Listener::new(writer, emit),
            stop: &self.stop,
            line: Vec::new(),
            stderr_lines: VecDeque::new(),
        };
        let outcome = self.vm.run_watched(&command, &limits, &mut guest);
        // What was asked is in the record.
        let removed = std::fs::remove_file(&file).map_err(LabError::file("remove", &file));
        let finished = guest.finish(outcome, release);
        let concluded = guest.listener.conclude(started, finished)?;
        removed.map(|()| concluded)
    }

    fn machines(&self) -> Machines {
        self.experiment.vm.clone().unwrap_or_default()
    }

    /// The machine in words, for the record.
    fn describe(&self) -> String {
        if self.experiment.exact() {
            return "QEMU, one virtual CPU whose clock counts instructions".to_owned();
        }
        if self.machines().counts() {
            return "QEMU, one virtual CPU whose clock counts instructions: a nanosecond each, and no time for sleep, so \
                    that what waits for the wire takes as long as on any machine"
                .to_owned();
        }
        match self.vm.accelerator() {
            Accelerator::Kvm => "QEMU with KVM".to_owned(),
            Accelerator::Emulation => {
                "QEMU in software emulation: times mean little, and ratios not much more".to_owned()
            }
        }
    }

    fn limits(&self) -> Result<Limits, LabError> {
        let machines = self.machines();
        let timing =
            if machines.counts() { Timing::Counted } else { Timing::RealTime { cpus: machines.cpus } };
        // Histograms of every trial come back; the limit is against a guest gone mad.
        let output_bytes = 4 << 30;
        let memory_mib = machines.memory_mib;
        let nics = cards::of_machine(self.experiment)?;
        let (time, silence, join) = (TIME_MAX, SILENCE_MAX, Join::Pairs);
        Ok(Limits { time, silence, memory_mib, timing, output_bytes, nics, join })
    }

    fn command(&self, experiment: &Path) -> Result<Command, LabError> {
        let file = std::fs::canonicalize(experiment).map_err(LabError::file("resolve", experiment))?;
        let driver =
            self.experiment.underlay.card.map_or_else(String::new, |card| format!(" {}", card.driver()));
        let rdma = if self.experiment.workload.kind == WorkloadKind::Verbs { RDMA_MODULES } else { "" };
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(format!(
                "modprobe --all {MODULES}{driver}{rdma}; modprobe --quiet --all {PROCESSOR_MODULES}; exec \"$@\""
            ))
            .arg("race");
        command.arg(&self.own).arg("race").arg(file).arg("--in-guest").arg(self.describe());
        command.args(["--out", "/run/results", "--cni-bin"]).arg(self.plugins.to_string());
        if let Some(nginx) = &self.nginx {
            command.arg("--nginx").arg(nginx);
        }
        if self.scheduling == Scheduling::Normal {
            command.arg("--no-realtime");
        }
        command.env("HOME", "/root");
        command.env("PATH", path(std::env::var_os("PATH").as_deref()));
        Ok(command)
    }
}

/// Where the guest looks for programs: it sees this machine's files, so that those of a directory of
/// the user's are found.
fn path(own: Option<&OsStr>) -> OsString {
    let mut path = OsString::from("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        path.push(":");
        path.push(own);
    }
    path
}

/// The experiment for another current directory.
fn for_guest(experiment: &Experiment) -> Result<Experiment, LabError> {
    let mut experiment = experiment.clone();
    for file in experiment.candidates.iter_mut().filter_map(|candidate| candidate.cni.as_mut()) {
        let absolute = std::path::absolute(&*file).map_err(LabError::file("resolve", Path::new(&*file)))?;
        *file = absolute.display().to_string();
    }
    Ok(experiment)
}

/// What is heard of the guest.
struct Guest<'a> {
    listener: Listener<'a>,
    stop: &'a AtomicBool,
    /// What of a line has come so far.
    line: Vec<u8>,
    /// The last lines of stderr.
    stderr_lines: VecDeque<String>,
}

impl Watch for Guest<'_> {
    fn stdout(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.ends_with(b"\n") {
                self.line.pop();
                let line = std::mem::take(&mut self.line);
                self.listener.take(&line);
            }
        }
    }

    fn stderr(&mut self, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines().filter(|line| !line.is_empty()) {
            self.stderr_lines.push_back(line.to_owned());
        }
        while self.stderr_lines.len() > STDERR_LINES_MAX {
            self.stderr_lines.pop_front();
        }
    }

    fn stops(&mut self) -> bool {
        self.listener.has_failed() || self.stop.load(Ordering::Relaxed)
    }
}

impl Guest<'_> {
    /// What became of the race.
    fn finish(&mut self, outcome: vm::Result<vm::Output>, release: String) -> Result<Finished, LabError> {
        if let Some(failed) = self.listener.failure() {
            return Err(failed);
        }
        match outcome {
            Err(vm::Error::Stopped { .. }) => Ok(Finished::Stopped),
            Err(error) => Err(error.into()),
            Ok(output) if output.status == 0 => Ok(Finished::Whole),
            Ok(output) => {
                let stderr_lines: Vec<&str> =
                    self.stderr_lines.iter().map(|line| line.trim_start_matches("hostgap: ")).collect();
                Err(LabError::Guest { release, status: output.status, printed: stderr_lines.join("; ") })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use record::Line;

    use super::*;
    use crate::Outward;

    fn header() -> Line {
        let machine = record::Machine { kernel: "6.12".to_owned(), ..record::Machine::default() };
        Line::Header(Box::new(record::Header {
            schema: record::SCHEMA,
            hostgap: "0".to_owned(),
            started_unix_s: 1,
            seed: 7,
            experiment: Experiment::default(),
            machine,
            server: "nginx".to_owned(),
            entrants: vec![],
            pair: None,
        }))
    }

    /// Hands everything over in small pieces, as it comes from a port.
    fn listen(words: &[u8], record: &Path) -> (Vec<Event>, Result<Finished, LabError>, Vec<String>) {
        let mut events = Vec::new();
        let mut emit = |event| events.push(event);
        let stop = AtomicBool::new(false);
        let listener = Listener::new(Writer::create(record).unwrap(), &mut emit);
        let mut guest = Guest { listener, stop: &stop, line: Vec::new(), stderr_lines: VecDeque::new() };
        for piece in words.chunks(7) {
            guest.stdout(piece);
        }
        guest.stderr(b"round 1/3 done\nhostgap: nothing to race\n");
        let output = vm::Output { status: 4, stdout: vec![], stderr: vec![], files: Default::default() };
        let finished = guest.finish(Ok(output), "6.12".to_owned());
        let stderr_lines = guest.stderr_lines.into_iter().collect();
        (events, finished, stderr_lines)
    }

    #[test]
    fn what_one_side_says_the_other_writes_down() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
        let mut words = b"modprobe: not our business\n".to_vec();
        let mut outward = Outward::new(&theirs);
        let building = Event::Building { build: 0, of: Some(3) };
        outward.emit(&building, &mut words).unwrap();
        let mut writer = Writer::create(&theirs).unwrap();
        writer.append(&header()).unwrap();
        let round = Event::Round { done: 1, of: Some(3), left: Duration::from_secs(9) };
        outward.emit(&round, &mut words).unwrap();
        writer.append(&Line::Loads(vec![])).unwrap();
        writer.append(&Line::End { wall_s: 1.0, stopped: None }).unwrap();
        outward.lines(&mut words).unwrap();

        let (events, finished, stderr_lines) = listen(&words, &ours);
        assert_eq!(events[0], building);
        assert!(matches!(events[1], Event::Round { done: 1, of: Some(3), .. }));
        let expected = std::fs::read(&theirs).unwrap();
        let end = expected.split_inclusive(|byte| *byte == b'\n').next_back().unwrap().len();
        assert_eq!(std::fs::read(&ours).unwrap(), expected[..expected.len() - end], "all but the end");
        let error = finished.unwrap_err();
        assert!(matches!(&error, LabError::Guest { status: 4, .. }));
        assert!(error.to_string().ends_with("nothing to race"), "{error}");
        assert_eq!(stderr_lines.len(), 2);
    }

    #[test]
    fn the_guest_looks_where_the_user_looks_too() {
        let path = |own: Option<&str>| path(own.map(OsStr::new)).into_string().unwrap();
        assert!(path(Some("/opt/ovs:/usr/bin")).ends_with("/sbin:/bin:/opt/ovs:/usr/bin"));
        assert!(path(None).ends_with(":/bin") && path(Some("")).ends_with(":/bin"));
    }

    #[test]
    fn a_torn_line_of_the_record_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (_, finished, _) =
            listen(b"record {\"crc32\":\"00000000\",\"line\":{}}\n", &dir.path().join("r"));
        assert!(matches!(finished, Err(LabError::Record(_))), "{finished:?}");
    }
}
