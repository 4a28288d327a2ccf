//! Exit codes, and how an error becomes a message with a hint.

use std::process::ExitCode;

use ::agent::check::CheckError;
use ::agent::migrate::MigrateError;
use ::lab::{Fault, LabError};
use ::load::LoadError;
use host::HostError;
use linux::features::Feature;
use node::choice::NoChoice;
use node::install::InstallError;
use plan::{Phase, TransactionError};

use crate::output;

/// The list for `--help` and the man page, in lines that a help of 100 columns does not break.
pub(crate) const HELP: &str = "\
Exit codes:
  0    it worked
  1    it failed: the message says what was attempted, on what, and why. Or the answer is no:
       `agent status` shows a node that is not reached or a Service that is not handled, `agent
       probe` an agent that is not well, `cni conformance` a case that failed or could not be
       judged
  2    the command line is wrong, or something that it names: a file that cannot be read or has
       the wrong content (a record, experiment, profile, plan, tree or CNI configuration), or a
       link, namespace or CPU that does not exist
  3    it ran, but the result is not what was asked for: a rate that was not reached,
       connections or a candidate that broke, a load without a trial that counts, a record or a
       tree with missing parts, a diagnosis that is not complete, nodes that do not answer
       `agent check`, settings that `tune rollback` left alone or `tune keep` cannot keep, warnings
       with `doctor --strict`
  4    it cannot run here, or on a machine or in a cluster that a race uses: a privilege, a kernel
       feature or a program is missing
  130  it was interrupted; finished parts are kept";

/// It failed for a reason that no other code names.
pub(crate) const FAILURE: u8 = 1;
/// The input is wrong.
pub(crate) const BAD_INPUT: u8 = 2;
/// It ran, but the result is not what was asked for.
pub(crate) const INVALID: u8 = 3;
/// It cannot run here.
pub(crate) const UNABLE: u8 = 4;
/// It was interrupted by a signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// An error that the user can fix by giving other input.
#[derive(Debug)]
pub(crate) struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// A command lacks the privilege to read or change the host.
#[derive(Debug)]
pub(crate) struct Unprivileged {
    error: linux::Error,
    /// What to try, and what of the command helps to decide that.
    hint: &'static str,
}

impl Unprivileged {
    /// For a command that shows or sets what a link has.
    pub(crate) fn to_see_queues(error: linux::Error) -> Unprivileged {
        let hint = "run it as root (sudo): the kernel shows the state of a link's queues only to root";
        Unprivileged { error, hint }
    }

    /// For a command that changes nothing but what it has made itself, and leaves nothing of that.
    pub(crate) fn in_own_namespaces(error: linux::Error) -> Unprivileged {
        let hint = "run it as root (sudo); it works only in network namespaces of its own, and removes them at the end";
        Unprivileged { error, hint }
    }
}

impl std::fmt::Display for Unprivileged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unprivileged {}

/// Help, a version, or what is wrong with the command line: clap has the words.
pub(crate) fn print_usage(error: &clap::Error) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(BAD_INPUT);
    match error.print() {
        Err(unwritten) if !error.use_stderr() => print_error(&output::OutputError::from(unwritten).into()),
        Ok(()) | Err(_) => ExitCode::from(code),
    }
}

/// Writes the message and a hint to stderr; the exit code gives the kind.
pub(crate) fn print_error(error: &anyhow::Error) -> ExitCode {
    // A reader that closed its end (`hostgap report … | head`) is not reported as an error; another broken pipe is.
    if is_unheard(error) {
        return ExitCode::SUCCESS;
    }
    output::aside(format_args!("hostgap: {}", sentence(error)));
    let (code, hint) = judge(error);
    if let Some(hint) = hint.or_else(|| remedy(error)) {
        output::aside(format_args!("hint: {hint}"));
    }
    ExitCode::from(code)
}

/// The message in one line. Every failure is the rest of "could not"; what is wrong with the input is a sentence.
fn sentence(error: &anyhow::Error) -> String {
    let attempts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let verb = if error.is::<BadInput>() { "" } else { "could not " };
    format!("{verb}{}", attempts.join(": "))
}

/// What to try, if the error itself knows.
fn remedy(error: &anyhow::Error) -> Option<&str> {
    None.or_else(|| error.downcast_ref().and_then(LabError::remedy))
        .or_else(|| error.downcast_ref().and_then(TransactionError::remedy))
        .or_else(|| error.downcast_ref().and_then(plan::JournalError::remedy))
        .or_else(|| error.downcast_ref().and_then(plan::BookError::remedy))
        .or_else(|| error.downcast_ref().and_then(::record::RecordError::remedy))
        .or_else(|| error.downcast_ref().and_then(LoadError::remedy))
        .or_else(|| error.downcast_ref().and_then(::agent::AgentError::remedy))
        .or_else(|| error.downcast_ref().and_then(::doctor::DoctorError::remedy))
        .or_else(|| error.downcast_ref().and_then(HostError::remedy))
        .or_else(|| error.downcast_ref().and_then(InstallError::remedy))
        .or_else(|| error.downcast_ref().and_then(NoChoice::remedy))
}

fn judge(error: &anyhow::Error) -> (u8, Option<&'static str>) {
    if error.is::<BadInput>()
        || error.is::<NoChoice>()
        || error.is::<::record::ExperimentError>()
        || matches!(error.downcast_ref(), Some(HostError::BadRequest(_)))
    {
        return (BAD_INPUT, None);
    }
    if let Some(error) = error.downcast_ref::<::doctor::DoctorError>() {
        return look(error);
    }
    if let Some(error) = error.downcast_ref::<::record::RecordError>() {
        return record(error);
    }
    if let Some(error) = error.downcast_ref::<::conformance::ConformanceError>() {
        return plugin(error);
    }
    if let Some(error) = error.downcast_ref::<LoadError>() {
        return (load(error), None);
    }
    if let Some(error) = error.downcast_ref::<InstallError>() {
        return (install(error), None);
    }
    if let Some(Unprivileged { hint, .. }) = error.downcast_ref() {
        return (UNABLE, Some(hint));
    }
    if let Some(error) = error.downcast_ref::<MigrateError>() {
        return (migrate(error), error.remedy());
    }
    if let Some(error) = error.downcast_ref::<CheckError>() {
        return check(error);
    }
    if let Some(error) = error.downcast_ref::<TransactionError>() {
        return transaction(error);
    }
    error.downcast_ref().map_or((FAILURE, None), race)
}

fn race(error: &LabError) -> (u8, Option<&'static str>) {
    let code = match error {
        // The guest has decided.
        LabError::Guest { status, .. } => *status,
        error => match error.fault() {
            Fault::Failure => FAILURE,
            Fault::Input => BAD_INPUT,
            Fault::Lack => UNABLE,
        },
    };
    (code, race_hint(error))
}

/// What to try, where commands or options are to be named.
fn race_hint(error: &LabError) -> Option<&'static str> {
    let hint = match error {
        LabError::Privileges(_) => "run it as root (sudo)",
        LabError::NoTopology(unmet) => without(unmet.feature),
        LabError::NoIpv6 => "call by IPv4, without --ipv6, or start the machine without ipv6.disable=1",
        LabError::CannotRun { .. } => {
            "`hostgap paths` lists what each data path needs and what this machine has"
        }
        LabError::NoPlugin { .. } => {
            "install it (Debian's package containernetworking-plugins has the CNI project's own, in /usr/lib/cni), or \
             give its directory with --cni-bin or CNI_PATH"
        }
        LabError::Conflist { .. } | LabError::Unreachable { .. } => {
            "docs/cni.md describes a configuration for both nodes, and scenarios/cni has examples; one for a single node \
             races with --same-node"
        }
        LabError::NoNginx { .. } => {
            "install nginx, give its path with --nginx, or use our own responder with --server hostgap"
        }
        LabError::Vm(error) => return machine(error),
        LabError::UnknownPath { .. } => "`hostgap paths` lists all data paths",
        LabError::NotUndone { .. } | LabError::Book(plan::BookError::NotUndone { .. }) => {
            "`hostgap clean` tries again; the journal of what was done is kept under /run/hostgap/lab"
        }
        // A guest has printed its hint already, and other machines say theirs with the failure.
        _ => return None,
    };
    Some(hint)
}

/// What to do where the machine lacks what every topology of a race needs.
fn without(feature: Feature) -> &'static str {
    match feature {
        Feature::Netem => {
            "delay, loss and rate of the wire need netem: load the module (modprobe sch_netem), or race on a kernel \
            that has it, --kernel debian:6.12"
        }
        Feature::Tbf => {
            "a line rate needs tbf: load the module (modprobe sch_tbf), or race on a kernel that has it, \
             --kernel debian:6.12"
        }
        _ => "load the module (modprobe veth) or use a kernel with CONFIG_VETH",
    }
}

/// A record that cannot be read is an error of the input; one that cannot be written is not.
fn record(error: &::record::RecordError) -> (u8, Option<&'static str>) {
    use ::record::RecordError;
    match error {
        RecordError::Unread { why, .. } if why.kind() == std::io::ErrorKind::IsADirectory => {
            (BAD_INPUT, Some("name the file in it: race.jsonl of a race, search.json of a search"))
        }
        RecordError::Unread { .. }
        | RecordError::Empty { .. }
        | RecordError::Damaged { .. }
        | RecordError::Newer { .. }
        | RecordError::Unknown { .. }
        | RecordError::NoSearch { .. }
        | RecordError::Inconsistent { .. } => (BAD_INPUT, None),
        RecordError::Io { .. } | RecordError::Unwritable { .. } => (FAILURE, None),
    }
}

/// The hint for a plugin that cannot be put to cases.
fn plugin(error: &::conformance::ConformanceError) -> (u8, Option<&'static str>) {
    use ::conformance::ConformanceError;
    match error {
        ConformanceError::NoPlugin { .. }
        | ConformanceError::Conf { .. }
        | ConformanceError::NotInConf { .. } => (BAD_INPUT, None),
        ConformanceError::Hidden { .. } => (BAD_INPUT, Some("copy it to another directory")),
        ConformanceError::NoDefault { .. } => (BAD_INPUT, Some("give its configuration with --conf FILE")),
        ConformanceError::NoPredecessor { .. } => {
            (BAD_INPUT, Some("give its directory with --path or CNI_PATH"))
        }
        ConformanceError::Linux(_) => (FAILURE, None),
    }
}

/// Whether the command line is the cause.
fn load(error: &LoadError) -> u8 {
    match error {
        LoadError::Target { .. }
        | LoadError::Rate(_)
        | LoadError::Shape(_)
        | LoadError::Spin(_)
        | LoadError::Tls { .. } => BAD_INPUT,
        LoadError::Connect { .. }
        | LoadError::ConnectTimeout { .. }
        | LoadError::Files { .. }
        | LoadError::Linux(_)
        | LoadError::Download { .. }
        | LoadError::System { .. } => FAILURE,
    }
}

/// What is in the way of an installation is named on the command line or could be; the kernel's lacks are not.
fn install(error: &InstallError) -> u8 {
    match error {
        InstallError::Conf(_)
        | InstallError::FileName(_)
        | InstallError::ForeignConflist(_)
        | InstallError::OtherNetwork { .. }
        | InstallError::Configured { .. }
        | InstallError::ForeignProgram(_) => BAD_INPUT,
        InstallError::Unmet { .. } | InstallError::NoAntiSpoofing { .. } | InstallError::NoTcx => UNABLE,
        InstallError::NotWhole(_)
        | InstallError::Unknown(_)
        | InstallError::Node { .. }
        | InstallError::File { .. } => FAILURE,
    }
}

/// What is in the way of a migration is on the node, but for a name and an attach.
fn migrate(error: &MigrateError) -> u8 {
    match error {
        MigrateError::Named { .. } | MigrateError::Bridge => BAD_INPUT,
        MigrateError::Install(error) => install(error),
        _ => FAILURE,
    }
}

/// The hint for a diagnosis that could not read its input.
fn look(error: &::doctor::DoctorError) -> (u8, Option<&'static str>) {
    use ::doctor::DoctorError;
    match error {
        DoctorError::Linux(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
            (UNABLE, Some("another namespace needs root (sudo); this one does not"))
        }
        DoctorError::Linux(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            (BAD_INPUT, Some("`ip netns` lists the namespaces"))
        }
        DoctorError::Tree { .. } | DoctorError::Occupied { .. } => (BAD_INPUT, None),
        DoctorError::Unread(_) => (BAD_INPUT, Some("`hostgap collect DIR` writes such a tree")),
        DoctorError::Linux(_) | DoctorError::Unwritten(_) => (FAILURE, None),
    }
}

/// The hint for a check that could not ask.
fn check(error: &CheckError) -> (u8, Option<&'static str>) {
    match error {
        CheckError::Kernel(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
            (UNABLE, Some("run it as root (sudo), or with CAP_NET_RAW: it sends echo requests"))
        }
        CheckError::Kernel(_) | CheckError::Changed(_) => (FAILURE, None),
        CheckError::Status(_) => {
            (FAILURE, Some("`hostgap agent run` writes it; --network and --status-dir say which"))
        }
        CheckError::Unknown { .. } => (BAD_INPUT, None),
    }
}

/// The hint for a tuning that could not be started or ended.
fn transaction(error: &TransactionError) -> (u8, Option<&'static str>) {
    match error {
        TransactionError::Stands { phase: Phase::Unconfirmed { .. }, .. } => {
            (FAILURE, Some("`hostgap tune confirm` keeps it, `hostgap tune rollback` undoes it"))
        }
        TransactionError::Stands { .. } => {
            (FAILURE, Some("only one tuning can be active: undo it first with `hostgap tune rollback`"))
        }
        TransactionError::NoRoom { .. } => {
            (FAILURE, Some("free some space, or keep the journal elsewhere with --state DIR"))
        }
        TransactionError::Damaged { .. } | TransactionError::Journal(_) => (
            FAILURE,
            Some(
                "`hostgap tune rollback` undoes what the journal proves, and says so if that may not be all; with --discard \
                it forgets the tuning; a restart of the machine undoes all of it",
            ),
        ),
        _ => (FAILURE, None),
    }
}

/// The hint for a virtual machine that could not be started, or died.
fn machine(error: &vm::Error) -> Option<&'static str> {
    use vm::Error;
    const SPACE: &str = "free some space, or put the cache on a larger disk with HOSTGAP_CACHE=DIR; with both kernels it holds \
                         about 0.7 gigabytes";
    match error {
        Error::Space { .. } => Some(SPACE),
        Error::File { why, .. } if why.kind() == std::io::ErrorKind::StorageFull => Some(SPACE),
        Error::Unsupported { .. } | Error::Program { .. } | Error::Failed { .. } | Error::Absent { .. } => {
            Some("QEMU and Debian's kernels come from Debian 12's archive, by apt; no package is installed")
        }
        _ => None,
    }
}

fn is_unheard(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<output::OutputError>().is_some_and(output::OutputError::is_unheard))
}
