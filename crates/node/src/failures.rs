//! What goes wrong, with the codes that a container runtime understands.

use std::fmt::Display;
use std::io;

use cni::{ErrorCode, Failure};
use ipam::IpamError;
use plan::{ApplyError, BookError, JournalError, Plan, Set, Step, StepError};

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
    let details = failed.and_then(|placed| match (&placed.step, placed.step.link()) {
        (Step::LoadGuard(_), _) => Some(
            "with `\"anti_spoofing\": false` the network needs no program, and its containers can pose as others"
                .to_owned(),
        ),
        (_, Some(link)) if is_unknown_link(why) => {
            let kind = link.kind.name();
            let option = kind.to_uppercase();
            Some(format!(
                "this kernel has no links of type {kind}: module {kind} is missing, or the kernel is built without \
                 CONFIG_{option}; `hostgap paths` says what it can do"
            ))
        }
        (step, _) => missing_part(step, why),
    });
    Failure { details, ..refused(error) }
}

/// What the kernel says where it lacks a part of traffic control, and with the redirect of what arrives at a
/// link the module that has the part, and its option. The words are as old as the oldest kernel that is
/// supported (`net/sched/sch_api.c`, `cls_api.c`, `act_api.c`).
const REDIRECT_PARTS: [(&str, &str, &str); 3] = [
    (UNKNOWN_QDISC, "sch_ingress", "CONFIG_NET_SCH_INGRESS"),
    ("TC classifier not found", "cls_u32", "CONFIG_NET_CLS_U32"),
    ("Failed to load TC action module", "act_mirred", "CONFIG_NET_ACT_MIRRED"),
];
const UNKNOWN_QDISC: &str = "Specified qdisc kind is unknown";

/// Which part of the kernel a limit on rates lacks, and what does without.
fn missing_part(step: &Step, why: &StepError) -> Option<String> {
    let StepError::Kernel(error) = why else { return None };
    let reason = error.reason();
    let says = |words: &str| reason.trim_end_matches('.').ends_with(words);
    let (what, module, option, key) = match step {
        Step::AddRedirect { .. } => {
            let part = REDIRECT_PARTS.iter().find(|(words, ..)| says(words));
            let (_, module, option) = part?;
            ("lead what arrives at a link to another", *module, *option, "`ingressRate`")
        }
        Step::Set(Set::RootQdisc(_)) if says(UNKNOWN_QDISC) => {
            ("hold a link to a rate", "sch_tbf", "CONFIG_NET_SCH_TBF", "`ingressRate` and `egressRate`")
        }
        _ => return None,
    };
    Some(format!(
        "this kernel cannot {what}: module {module} is missing, or the kernel is built without {option}; without {key} the \
         container needs no such module, and has no limit"
    ))
}

/// Whether the kernel does not know links of that type, nor any module for them. Its words for that are as old as the
/// oldest kernel that is supported.
fn is_unknown_link(why: &StepError) -> bool {
    matches!(why, StepError::Kernel(error) if error.reason().ends_with("Unknown device type"))
}

pub(crate) fn of_addresses(error: &IpamError) -> Failure {
    let code = match error {
        // Both pass when another container goes.
        IpamError::NoneLeft { .. } | IpamError::Taken { .. } => ErrorCode::TRY_AGAIN_LATER,
        IpamError::BadKey { .. } | IpamError::HasAlready { .. } => ErrorCode::INVALID_ENVIRONMENT,
        IpamError::NotInRange { .. } | IpamError::Gateway { .. } | IpamError::SecondOfSet { .. } => {
            ErrorCode::INVALID_NETWORK_CONFIG
        }
        IpamError::File { .. }
        | IpamError::Reserve { .. }
        | IpamError::BadNetwork { .. }
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

#[cfg(test)]
mod tests {
    use plan::Place;

    use super::*;

    /// The details of a failed step of this plan, where the kernel gave a reason.
    fn details(step: Step, reason: &str) -> Option<String> {
        let mut plan = Plan::new();
        plan.push(&Place::Host, step);
        let command = plan.steps[0].commands().join("\n");
        let why = StepError::Kernel(linux::Error::new("do it", io::Error::other(reason)));
        of_plan(&plan, &ApplyError::Step { command, place: Box::new(Place::Host), why }).details
    }

    #[test]
    fn a_part_that_the_kernel_lacks_is_named() {
        let [from, to] = ["eth0", "hgi1"].map(|name| linux::IfName::new(name).unwrap());
        let redirect = || Step::AddRedirect { from: from.clone(), to: to.clone() };
        for (says, module, option) in REDIRECT_PARTS {
            let details = details(redirect(), &format!("no such file or directory: {says}")).unwrap();
            assert!(
                details.contains(&format!("module {module} is missing")) && details.contains(option),
                "{details}"
            );
        }
        assert_eq!(details(redirect(), "no such file or directory"), None);
        assert_eq!(details(redirect(), "file exists"), None);
    }
}
