//! What a user can try about a failure on another machine, which says it with its words.

use crate::LabError;

/// What to try where the user of a machine may not change its network.
const NEEDS_ROOT: &str = "log in as root (ssh://root@…), or have it started with --sudo";

/// What to try there, where it is known.
pub(crate) fn remedy(error: &LabError) -> Option<String> {
    let text = match error {
        LabError::Privileges(_) => NEEDS_ROOT,
        LabError::CannotRun { .. } => {
            "`hostgap paths` lists what each data path needs and, on the machine itself, what that has"
        }
        LabError::NoNginx { .. } => {
            "install nginx there, or use hostgap's own responder with --server hostgap"
        }
        other => other.remedy()?,
    };
    Some(text.to_owned())
}
