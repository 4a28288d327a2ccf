//! What kind of failure an error is, which decides the exit code wherever the race ran.

use crate::LabError;
use crate::error::Fault;

impl LabError {
    /// What kind of failure it is.
    pub fn fault(&self) -> Fault {
        match self {
            LabError::UnknownPath { .. }
            | LabError::Settings { .. }
            | LabError::Conflist { .. }
            | LabError::Unreachable { .. }
            | LabError::Experiment { .. }
            | LabError::Spec(_)
            | LabError::Plan { .. } => Fault::Input,
            LabError::Privileges(_)
            | LabError::NoTopology(_)
            | LabError::NoIpv6
            | LabError::CannotRun { .. }
            | LabError::NoPlugin { .. }
            | LabError::NoNginx { .. } => Fault::Lack,
            LabError::Machine { fault, .. } => *fault,
            LabError::Vm(error) => of_vm(error),
            LabError::Plugin { .. }
            | LabError::Server { .. }
            | LabError::Broken { .. }
            | LabError::Packets { .. }
            | LabError::Busy { .. }
            | LabError::ClientLost { .. }
            | LabError::Guest { .. }
            | LabError::NotUndone { .. }
            | LabError::File { .. }
            | LabError::Build { .. }
            | LabError::Look { .. }
            | LabError::Journal(_)
            | LabError::Book(_)
            | LabError::Linux(_)
            | LabError::Load { .. }
            | LabError::Record(_) => Fault::Failure,
        }
    }
}

fn of_vm(error: &vm::Error) -> Fault {
    use vm::Error;
    match error {
        Error::Unknown { .. } | Error::Modules { .. } | Error::Kernel { .. } => Fault::Input,
        Error::Unsupported { .. } | Error::Program { .. } | Error::Failed { .. } | Error::Absent { .. } => {
            Fault::Lack
        }
        _ => Fault::Failure,
    }
}
