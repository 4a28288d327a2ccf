//! Why something in the cloud could not be done.

/// Why something in the cloud could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no answer, or one that makes no sense.
    #[error("{attempt}: {why}")]
    Unanswered {
        /// What was attempted, and where.
        attempt: String,
        /// The reason, in words.
        why: String,
    },
    /// The cloud refused the call.
    #[error("{attempt}: {code}: {message}")]
    Refused {
        /// The call and what it is about, fit to follow "could not".
        attempt: String,
        /// The call's name, which a role has to allow.
        action: &'static str,
        /// The status of the answer by HTTP.
        status: u16,
        /// The cloud's code of the reason: `UnauthorizedOperation`.
        code: String,
        /// What the cloud's answer says beside its code, in English.
        message: String,
    },
    /// The table takes no more routes.
    #[error("add {prefix} to route table {table}: it is full, with {routes} routes (RouteLimitExceeded)")]
    Full {
        /// The cloud's name of the table: `rtb-0123456789abcdef0`.
        table: String,
        /// The prefix of this node's pods.
        prefix: String,
        /// How many routes it has that count.
        routes: usize,
    },
    /// There are no credentials to make a call with.
    #[error("find credentials for calls of the cloud: {0}")]
    Credentials(String),
    /// The cloud does not know this machine by what the agent knows.
    #[error("find {what}: {why}")]
    #[expect(missing_docs, reason = "the names say it")]
    Missing { what: String, why: String },
    /// What was made for this node was made elsewhere than calls go now, and would be forgotten.
    #[error("keep routes in {now}: {path} records what was made in {recorded}")]
    #[expect(missing_docs, reason = "the names say it")]
    Elsewhere { path: String, recorded: String, now: String },
    /// The login does not see the place in which something was made: the keys may be of another account.
    #[error("take back what was made in {what}: this login sees neither it nor its network, {recorded}")]
    #[expect(missing_docs, reason = "the names say it")]
    Unseen { what: String, recorded: String, path: String },
    /// What was made cannot be known.
    #[error("read the record of what was made in the cloud, {path}: {why}")]
    #[expect(missing_docs, reason = "the names say it")]
    Unreadable { path: String, why: String },
    /// What is made could not be taken back some day.
    #[error("record what is made in {path}: {why}")]
    #[expect(missing_docs, reason = "the names say it")]
    Record { path: String, why: String },
}

/// What to do about a quota of routes.
pub(super) const RAISE_QUOTA: &str = "raise the quota \"Routes per route table\" of Amazon VPC (L-93826ACB)";
/// The codes by which AWS says that there are too many calls.
const THROTTLED: [&str; 4] =
    ["RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException"];
/// The codes by which it says that credentials have ended or are no longer good.
const STALE: [&str; 4] = ["RequestExpired", "ExpiredToken", "AuthFailure", "InvalidClientTokenId"];

impl CloudError {
    /// Whether the cloud gave this reason.
    pub(crate) fn is(&self, expected: &str) -> bool {
        matches!(self, CloudError::Refused { code, .. } if code == expected)
    }

    /// Whether there were too many calls: by all of the account, so the next had better be late.
    pub(crate) fn is_throttled(&self) -> bool {
        matches!(self, CloudError::Refused { code, .. } if THROTTLED.contains(&code.as_str()))
    }

    /// Whether nothing was made for sure. A server that fails may have done its work before.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self, CloudError::Refused { status, .. } if (400..500).contains(status))
    }

    /// What one error has in common with another one for the same reason: the call, what it was about, and the code.
    pub(crate) fn kind(&self) -> String {
        match self {
            CloudError::Refused { attempt, code, .. } => format!("{attempt}: {code}"),
            other => other.to_string(),
        }
    }

    /// Whether other credentials may do.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, CloudError::Refused { code, .. } if STALE.contains(&code.as_str()))
    }

    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<String> {
        match self {
            CloudError::Full { .. } => Some(format!(
                "{RAISE_QUOTA}, let fewer nodes share the table, or use the backend vxlan, which needs no route"
            )),
            CloudError::Refused { code, action, .. } if code == "UnauthorizedOperation" => {
                Some(format!("let the node's role do ec2:{action}; docs/agent.md has the whole policy"))
            }
            CloudError::Credentials(_) => Some(
                "give the instance a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned(),
            ),
            CloudError::Elsewhere { path, .. } => Some(format!(
                "`hostgap agent down` takes that back there first; if it is another machine's, delete {path}"
            )),
            CloudError::Unseen { path, .. } => Some(format!(
                "call with credentials of that account; if the network is deleted, delete {path}"
            )),
            CloudError::Unreadable { path, .. } => Some(format!(
                "mend {path}, or take back by hand the routes to this node and the source/destination check of its \
                 interface, and delete it"
            )),
            CloudError::Refused { .. }
            | CloudError::Unanswered { .. }
            | CloudError::Missing { .. }
            | CloudError::Record { .. } => None,
        }
    }

    /// The whole of it in one line, for the log and the state.
    pub(crate) fn in_words(&self) -> String {
        let remedy = self.remedy().map(|remedy| format!("; {remedy}"));
        format!("could not {self}{}", remedy.unwrap_or_default())
    }
}
