//! What can go wrong in the lab, and what to try.

use std::path::{Path, PathBuf};

use linux::features::Unmet;

/// A failure of the lab. The text fits after "could not race: ".
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process may not build namespaces.
    #[error(transparent)]
    Privileges(linux::Error),
    /// The kernel lacks what every topology is made of.
    #[error("this kernel lacks a feature that every topology needs: {0}")]
    NoTopology(Unmet),
    /// Clients are to call by IPv6 on a kernel without it.
    #[error("clients cannot call by IPv6: this kernel has none")]
    NoIpv6,
    /// A candidate that was named cannot run here.
    #[error("{path} cannot run here: {reasons}")]
    CannotRun {
        /// Its name.
        path: String,
        /// Why, joined.
        reasons: String,
    },
    /// No such data path.
    #[error("there is no data path {name:?}{}", record::did_you_mean(nearest.as_ref().map(|path| format!("{path:?}"))))]
    UnknownPath {
        /// What was asked.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// A candidate asks for a setting that there is not.
    #[error("the settings of {candidate}: {source}")]
    Settings {
        /// Whose.
        candidate: String,
        /// Which, and why.
        source: tune::TuneError,
    },
    /// A file is no network configuration.
    #[error("could not use the CNI configuration {}: {why}", file.display())]
    Conflist {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A plugin is not there.
    #[error("the CNI plugin {plugin:?} is in none of the directories {dirs}")]
    NoPlugin {
        /// The name of its executable.
        plugin: String,
        /// The directories, with colons.
        dirs: String,
    },
    /// A plugin failed, or its answer cannot be parsed.
    #[error("{call} failed in {candidate}: {why}")]
    Plugin {
        /// Whose.
        candidate: String,
        /// "ADD of ptp for the server's pod".
        call: String,
        /// The plugin's own words, where it had some.
        why: String,
    },
    /// The plugins succeeded, but clients cannot reach the server.
    #[error("the CNI plugins of {candidate} {what}")]
    Unreachable {
        /// Whose.
        candidate: String,
        /// What they did, and what to write instead.
        what: String,
    },
    /// The experiment asks for something impossible.
    #[error("{what}: {why}")]
    Experiment {
        /// The setting.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// nginx was asked for and is not there.
    #[error("nginx was requested but is not installed ({why})")]
    NoNginx {
        /// What was tried.
        why: String,
    },
    /// A server ended or never answered.
    #[error("the server of {candidate} {what}{}", if log.is_empty() { String::new() } else { format!(": {log}") })]
    Server {
        /// Whose server.
        candidate: String,
        /// What happened to it.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// A data path stopped carrying traffic.
    #[error("data path {candidate} broke: {what}")]
    Broken {
        /// Which.
        candidate: String,
        /// What was seen.
        what: String,
    },
    /// No virtual machine could be had, or it died.
    #[error(transparent)]
    Vm(#[from] vm::Error),
    /// The race in a virtual machine ended with an error of its own.
    #[error("the race on Linux {release}: {said}")]
    Guest {
        /// The guest's kernel.
        release: String,
        /// The exit status of its hostgap.
        status: u8,
        /// What that said last.
        said: String,
    },
    /// Something could not be taken down; its journal is kept.
    #[error("could not take down {candidate}: {failures}")]
    NotUndone {
        /// Which.
        candidate: String,
        /// The steps that failed and why, joined.
        failures: String,
    },
    /// A file of ours could not be handled.
    #[error("could not {verb} {path}: {source}")]
    File {
        /// "create", "write", …
        verb: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The specification of a topology is not sound.
    #[error(transparent)]
    Spec(#[from] datapath::SpecError),
    /// A topology could not be built.
    #[error("could not build {candidate}: {source}")]
    Build {
        /// Whose.
        candidate: String,
        /// Why.
        source: Box<plan::ApplyError>,
    },
    /// It cannot be checked whether a topology is still what was built.
    #[error("could not check the path of {candidate}: {source}")]
    Look {
        /// Whose.
        candidate: String,
        /// Why.
        source: Box<plan::StepError>,
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
    #[error("could not load {candidate}: {source}")]
    Load {
        /// Through which data path.
        candidate: String,
        /// Why.
        source: Box<load::LoadError>,
    },
    /// The record file could not be written.
    #[error(transparent)]
    Record(#[from] record::RecordError),
}

impl LabError {
    /// An error maker for a file: `fs::read(&path).map_err(LabError::file("read", &path))`.
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.to_owned();
        move |source| LabError::File { verb, path, source }
    }
}
