//! What goes wrong, with the codes that a container runtime understands.

use std::fmt::Display;
use std::io;

use cni::{ErrorCode, Failure};
use ipam::IpamError;
use plan::{ApplyError, BookError, JournalError, Plan, Step, StepError};

/// The kernel refused a step, or could not be asked.
const REFUSED_BY_KERNEL: ErrorCode = ErrorCode(100);
/// Something is not as ADD left it.
const CHANGED: ErrorCode = ErrorCode(101);

pub(crate) fn refused(error: &impl Display) -> Failure {
    Failure::new(REFUSED_BY_KERNEL, error.to_string())
}

pub(crate) fn changed(why: impl Into<String>) -> Failure {
    Failure::new(CHANGED, why)
}

pub(crate) fn invalid_conf(why: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, why)
}

pub(crate) fn invalid_call(why: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::INVALID_ENVIRONMENT, why)
}

pub(crate) fn unsupported(why: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::UNSUPPORTED_FIELD, why)
}

pub(crate) fn of_file(attempted: &str, error: &io::Error) -> Failure {
    of_system(format!("{attempted}: {error}"), error)
}

/// A file that the system refused, with the whole text, and what to try.
fn of_system(text: String, why: &io::Error) -> Failure {
    let is_full = why.kind() == io::ErrorKind::StorageFull;
    let details = is_full.then(|| "make room on that file system".to_owned());
    Failure { details, ..Failure::new(ErrorCode::IO_FAILURE, text) }
}

/// A name of which no unit can be made is the caller's fault.
pub(crate) fn of_book(error: &BookError) -> Failure {
    match error {
        BookError::BadId { .. } => Failure::new(ErrorCode::INVALID_ENVIRONMENT, error.to_string()),
        BookError::File { why, .. } | BookError::Journal(JournalError::File { why, .. }) => {
            of_system(error.to_string(), why)
        }
        _ => Failure::new(ErrorCode::IO_FAILURE, error.to_string()),
    }
}

/// A journal that cannot be written. One that cannot be trusted keeps what it holds from being undone.
pub(crate) fn of_journal(error: &JournalError) -> Failure {
    match error {
        JournalError::File { why, .. } => of_system(error.to_string(), why),
        _ => refused(error),
    }
}

/// A plan that was not done to its end, and what does without the step that failed.
pub(crate) fn of_plan(plan: &Plan, error: &ApplyError) -> Failure {
    let (command, why) = match error {
        ApplyError::Journal(error) => return of_journal(error),
        ApplyError::Step { why: StepError::File { why, .. }, .. } => {
            return of_system(error.to_string(), why);
        }
        ApplyError::Step { command, why, .. } => (command, why),
        ApplyError::Injected { .. } => return refused(error),
    };
    let failed = plan.steps.iter().find(|placed| placed.commands().join("\n") == *command);
    let details = failed.and_then(|placed| match &placed.step {
        Step::LoadGuard(_) => Some(
            "with `\"anti_spoofing\": false` the network needs no program, and its containers can pose as others"
                .to_owned(),
        ),
        Step::AddLink(link) | Step::EnsureLink(link) | Step::AddLinkOn { link, .. } if is_unknown_link(why) => {
            let kind = link.kind.name();
            let option = kind.to_uppercase();
            Some(format!(
                "this kernel has no links of type {kind}: module {kind} is missing, or the kernel is built without \
                 CONFIG_{option}; `hostgap paths` says what it can do"
            ))
        }
        _ => None,
    });
    Failure { details, ..refused(error) }
}

/// Whether the kernel does not know links of that type, nor any module for them. Its words for that are as old as the oldest
/// kernel that is supported.
fn is_unknown_link(why: &StepError) -> bool {
    matches!(why, StepError::Kernel(error) if error.reason().ends_with("Unknown device type"))
}

pub(crate) fn of_addresses(error: &IpamError) -> Failure {
    let code = match error {
        IpamError::NoneLeft { .. } => ErrorCode::TRY_AGAIN_LATER,
        IpamError::BadKey { .. } | IpamError::HasAlready { .. } => ErrorCode::INVALID_ENVIRONMENT,
        IpamError::NotInRange { .. } | IpamError::Gateway { .. } | IpamError::SecondOfSet { .. } => {
            ErrorCode::INVALID_NETWORK_CONFIG
        }
        IpamError::File { .. }
        | IpamError::Reserve { .. }
        | IpamError::BadNetwork { .. }
        | IpamError::Taken { .. }
        | IpamError::Unreleased { .. } => ErrorCode::IO_FAILURE,
    };
    Failure { details: error.remedy().map(str::to_owned), ..Failure::new(code, error.to_string()) }
}

pub(crate) fn busy(container_id: &str, ifname: &str, pid: u32) -> Failure {
    Failure::new(
        ErrorCode::TRY_AGAIN_LATER,
        format!("process {pid} works on interface {ifname} of container {container_id}"),
    )
}

/// A failure, and that what was done before it could not be taken back.
pub(crate) fn with_consequence(failure: Failure, taken_back: Result<(), Failure>) -> Failure {
    let Err(consequence) = taken_back else { return failure };
    let left = format!("what was done could not be taken back: {consequence}");
    let details = failure.details.iter().cloned().chain([left]).collect::<Vec<_>>().join("; ");
    Failure { details: Some(details), ..failure }
}
