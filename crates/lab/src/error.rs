//! What can go wrong in the lab, and what to try.

use std::path::{Path, PathBuf};

use linux::features::Unmet;
use serde::{Deserialize, Serialize};

/// What kind of failure an error is. Another machine says it of what it could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It failed for a reason that is none of the others.
    #[default]
    Failure,
    /// The input is wrong, or names what is not there.
    Input,
    /// A privilege, a kernel feature or a program is missing.
    Lack,
}

/// A failure of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process may not build namespaces.
    #[error(transparent)]
    Privileges(linux::Error),
    /// The kernel lacks what every topology is made of.
    #[error("build a topology: this kernel lacks a feature that all of them need: {0}")]
    NoTopology(Unmet),
    /// Clients are to call by IPv6 on a kernel without it.
    #[error("clients cannot call by IPv6: this kernel has none")]
    NoIpv6,
    /// A candidate that was named cannot run here.
    #[error("run {path} here: {reasons}")]
    CannotRun {
        /// The name of the data path.
        path: String,
        /// The reasons, joined by semicolons.
        reasons: String,
    },
    /// A data path has a name that there is not.
    #[error("find data path {name:?}: there is none{}", record::did_you_mean(nearest.as_ref().map(|path| format!("{path:?}"))))]
    UnknownPath {
        /// The name that was given.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// A candidate asks for a setting that there is not.
    #[error("use the settings of {candidate}: {why}")]
    Settings {
        /// The name of the candidate.
        candidate: String,
        /// The setting, and what is wrong with it.
        why: tune::TuneError,
    },
    /// A file is no network configuration.
    #[error("use the CNI configuration {}: {why}", file.display())]
    Conflist {
        /// The path of the file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A plugin is not there.
    #[error("find a CNI plugin: {plugin:?} is in none of the directories {dirs}")]
    NoPlugin {
        /// The name of its executable.
        plugin: String,
        /// The directories, with colons.
        dirs: String,
    },
    /// A plugin failed, or its answer cannot be parsed.
    #[error("do {call} in {candidate}: {why}")]
    Plugin {
        /// The name of the candidate.
        candidate: String,
        /// "ADD of ptp for the server's pod".
        call: String,
        /// The plugin's own words, where it had some.
        why: String,
    },
    /// The plugins succeeded, but clients cannot reach the server.
    #[error("go on: the CNI plugins of {candidate} {what}")]
    Unreachable {
        /// The name of the candidate.
        candidate: String,
        /// What they did, and what to write instead.
        what: String,
    },
    /// The experiment asks for something impossible.
    #[error("race as asked: {what}: {why}")]
    Experiment {
        /// The setting of the experiment.
        what: String,
        /// The reason why it cannot be done.
        why: String,
    },
    /// nginx was asked for and is not there.
    #[error("start a server: nginx was requested but is not installed ({why})")]
    NoNginx {
        /// Where it was looked for, or how it failed.
        why: String,
    },
    /// A server, or a proxy in front of one, ended or never answered.
    #[error("go on: {whose} {what}{}", if log.is_empty() { String::new() } else { format!(": {log}") })]
    Server {
        /// Which of whose: "the server of docker".
        whose: String,
        /// What happened to it.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// A data path stopped carrying traffic.
    #[error("go on: data path {candidate} broke: {what}")]
    Broken {
        /// The name of the candidate.
        candidate: String,
        /// What the client or the server noticed.
        what: String,
    },
    /// Frames could not be made or received.
    #[error("{what}: {why}")]
    Packets {
        /// The attempt, fit to follow "could not".
        what: String,
        /// The kernel's reason, or this program's.
        why: String,
    },
    /// Another race has this machine, and the caller does not wait.
    #[error("take the machine for a race: another race (process {pid}) has it")]
    Busy {
        /// The process of the other race.
        pid: u32,
    },
    /// Something failed on another machine, or on the way to it.
    #[error("use {machine}: {why}")]
    Machine {
        /// As the user names it.
        machine: String,
        /// What and why, in its words.
        why: String,
        /// What to try, where it is known.
        remedy: Option<String>,
        /// What kind of failure it is there.
        fault: Fault,
    },
    /// One of several clients' machines did not do its part, and the process there is started anew for the next one.
    #[error("use {machine}: {why}")]
    ClientLost {
        /// As the user names it.
        machine: String,
        /// Why, in words.
        why: String,
    },
    /// No virtual machine could be had, or it died.
    #[error(transparent)]
    Vm(#[from] vm::Error),
    /// The race in a virtual machine ended with an error of its own.
    #[error("race on Linux {release}: {printed}")]
    Guest {
        /// The release of the guest's kernel.
        release: String,
        /// The exit status of its hostgap.
        status: u8,
        /// The last lines that it printed.
        printed: String,
    },
    /// Something could not be taken down; its journal is kept.
    #[error("take down {candidate}: {failures}")]
    NotUndone {
        /// The name of the candidate.
        candidate: String,
        /// The steps that failed and why, joined.
        failures: String,
    },
    /// A file of ours could not be handled.
    #[error("{verb} {path}: {why}")]
    File {
        /// The attempt, a verb: "create", "write", …
        verb: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error that the operating system returned.
        why: std::io::Error,
    },
    /// The specification of a topology is not sound.
    #[error("plan a topology: {0}")]
    Spec(datapath::SpecError),
    /// What a candidate asks for does not fit together.
    #[error("plan the topology of {candidate}: {why}")]
    Plan {
        /// The name of the candidate.
        candidate: String,
        /// What of it, and the reason.
        why: datapath::SpecError,
    },
    /// A topology could not be built.
    #[error("build {candidate}: {why}")]
    Build {
        /// The name of the candidate.
        candidate: String,
        /// The step that failed, and its reason.
        why: Box<plan::ApplyError>,
    },
    /// It cannot be checked whether a topology is still what was built.
    #[error("check the path of {candidate}: {why}")]
    Look {
        /// The name of the candidate.
        candidate: String,
        /// What could not be read, and the reason.
        why: Box<plan::StepError>,
    },
    /// A journal could not be written or read.
    #[error(transparent)]
    Journal(#[from] plan::JournalError),
    /// A unit of the lab's book could not be begun, found or ended.
    #[error(transparent)]
    Book(#[from] plan::BookError),
    /// The kernel refused something outside a plan.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// The generator could not run.
    #[error("load {candidate}: {why}")]
    Load {
        /// The name of the candidate.
        candidate: String,
        /// What the generator could not do.
        why: Box<load::LoadError>,
    },
    /// The record file could not be written.
    #[error(transparent)]
    Record(#[from] record::RecordError),
}

impl LabError {
    /// What to try, where one of the crates below knows it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            LabError::Vm(error) => error.remedy(),
            LabError::Journal(error) => error.remedy(),
            LabError::Book(error) => error.remedy(),
            LabError::Load { why, .. } => why.remedy(),
            LabError::Record(error) => error.remedy(),
            LabError::Busy { .. } => Some("try again when it has ended"),
            LabError::Machine { remedy, .. } => remedy.as_deref(),
            LabError::Privileges(_)
            | LabError::NoTopology(_)
            | LabError::NoIpv6
            | LabError::CannotRun { .. }
            | LabError::UnknownPath { .. }
            | LabError::Settings { .. }
            | LabError::Conflist { .. }
            | LabError::NoPlugin { .. }
            | LabError::Plugin { .. }
            | LabError::Unreachable { .. }
            | LabError::Experiment { .. }
            | LabError::NoNginx { .. }
            | LabError::Server { .. }
            | LabError::Broken { .. }
            | LabError::Packets { .. }
            | LabError::ClientLost { .. }
            | LabError::Guest { .. }
            | LabError::NotUndone { .. }
            | LabError::File { .. }
            | LabError::Spec(_)
            | LabError::Plan { .. }
            | LabError::Build { .. }
            | LabError::Look { .. }
            | LabError::Linux(_) => None,
        }
    }

    /// Where it is the candidate that could not be built or reached, that it broke: others may stand.
    pub(crate) fn of_candidate(self) -> LabError {
        match self {
            LabError::Build { candidate, why } => LabError::Broken { candidate, what: why.to_string() },
            LabError::Plan { candidate, why } => LabError::Broken { candidate, what: why.to_string() },
            LabError::Load { candidate, why } => {
                LabError::Broken { candidate, what: format!("could not {why}") }
            }
            error => error,
        }
    }

    /// The same where this machine has the client's half alone: it says so, as those of other machines are named.
    pub(crate) fn of_own_half(self) -> LabError {
        match self {
            LabError::Build { candidate, why } => {
                LabError::Broken { candidate, what: format!("on the client's machine: {why}") }
            }
            LabError::Plan { candidate, why } => {
                LabError::Broken { candidate, what: format!("on the client's machine: {why}") }
            }
            error => error,
        }
    }

    /// Where it is a specification that is not sound, whose it is.
    #[must_use]
    pub fn of_plan(self, candidate: &str) -> LabError {
        match self {
            LabError::Spec(why) => LabError::Plan { candidate: candidate.to_owned(), why },
            error => error,
        }
    }

    /// Where its connections or its objects did not come, that it broke; what this process could not do
    /// is no candidate's fault.
    pub(crate) fn of_answers(self) -> LabError {
        let is_its_own = |why: &load::LoadError| {
            matches!(
                why,
                load::LoadError::Connect { .. }
                    | load::LoadError::ConnectTimeout { .. }
                    | load::LoadError::Download { .. }
            )
        };
        match self {
            LabError::Load { candidate, why } if is_its_own(&why) => {
                LabError::Load { candidate, why }.of_candidate()
            }
            error => error,
        }
    }

    /// A failure on another machine, or on the way to it, for no reason that the user could have known.
    pub(crate) fn of_machine(machine: String, why: String) -> LabError {
        LabError::Machine { machine, why, remedy: None, fault: Fault::Failure }
    }

    /// What was asked of another machine is not there.
    pub(crate) fn not_there(machine: String, why: String) -> LabError {
        LabError::Machine { machine, why, remedy: None, fault: Fault::Input }
    }

    /// An error maker for a file: `fs::read(&path).map_err(LabError::file("read", &path))`.
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.to_owned();
        move |why| LabError::File { verb, path, why }
    }
}

impl From<datapath::SpecError> for LabError {
    fn from(error: datapath::SpecError) -> LabError {
        LabError::Spec(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others may stand, so that it leaves the race and does not end it.
    #[test]
    fn what_cannot_be_planned_at_a_visit_is_the_candidate_s_fault() {
        let spec = || datapath::SpecError { what: "xps_cpus = 0;1".into(), why: "there is 1 queue".into() };
        let plan = || LabError::from(spec()).of_plan("docker");
        assert_eq!(plan().to_string(), "plan the topology of docker: xps_cpus = 0;1: there is 1 queue");
        let broken = |error: LabError| match error {
            LabError::Broken { candidate, what } => (candidate, what),
            other => panic!("{other}"),
        };
        let of = |what: &str| ("docker".to_owned(), what.to_owned());
        assert_eq!(broken(plan().of_candidate()), of("xps_cpus = 0;1: there is 1 queue"));
        let own = of("on the client's machine: xps_cpus = 0;1: there is 1 queue");
        assert_eq!(broken(plan().of_own_half()), own);
    }
}
