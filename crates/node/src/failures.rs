//! What goes wrong, with the codes that a container runtime understands.

use std::fmt::Display;
use std::io;

use cni::{ErrorCode, Failure};
use ipam::IpamError;
use plan::BookError;

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
    Failure::new(ErrorCode::IO_FAILURE, format!("{attempted}: {error}"))
}

/// A name of which no unit can be made is the caller's fault.
pub(crate) fn of_book(error: &BookError) -> Failure {
    let code = match error {
        BookError::BadId { .. } => ErrorCode::INVALID_ENVIRONMENT,
        _ => ErrorCode::IO_FAILURE,
    };
    Failure::new(code, error.to_string())
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
