//! What becomes of a case.

use std::fmt;

use serde::Serialize;

/// The end of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The plugin does what the sentence says.
    Passed,
    /// The plugin does otherwise.
    Failed(Box<Fault>),
    /// The sentence is not about this plugin in this configuration.
    #[expect(missing_docs, reason = "the name says it")]
    NotApplicable { reason: String },
    /// The case itself could not be done on this machine.
    #[expect(missing_docs, reason = "the name says it")]
    Undecided { reason: String },
}

/// How a plugin failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What was expected and what was found.
    pub why: String,
    /// The call that shows it, if it is one.
    #[serde(flatten)]
    pub exchange: Option<Exchange>,
    /// A script that shows it by hand, for a POSIX shell as root. What it makes is gone when it ends.
    pub by_hand: String,
}

/// One call of a plugin, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// The variables of the protocol that were set.
    pub environment: Vec<(String, String)>,
    /// What it was given on its standard input.
    pub input: String,
    /// How the plugin's process ended.
    pub ended: Ended,
    /// Its standard output: the result, or the error object.
    pub stdout: String,
    /// Its standard error, where plugins log.
    pub stderr: String,
}

/// How a plugin's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this status.
    Status(i32),
    /// By the signal of this number.
    Signal(i32),
    /// It was killed, because it did not end in time.
    TimedOut,
}

/// What a case says: nothing if all is as it should be.
pub(crate) type Judged<T = ()> = Result<T, Stop>;

/// Why a case ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The plugin is at fault. `call` is the number of the call in the transcript that shows it.
    Failed { why: String, call: Option<usize> },
    /// There is nothing to judge.
    NotApplicable(String),
    /// The case cannot be done here.
    Undecided(String),
}

impl Stop {
    /// A fault that no single call shows.
    pub(crate) fn failed(why: impl Into<String>) -> Stop {
        Stop::Failed { why: why.into(), call: None }
    }

    pub(crate) fn not_applicable(why: impl Into<String>) -> Stop {
        Stop::NotApplicable(why.into())
    }

    pub(crate) fn undecided(why: &impl ToString) -> Stop {
        Stop::Undecided(why.to_string())
    }
}

impl From<linux::Error> for Stop {
    fn from(error: linux::Error) -> Stop {
        Stop::undecided(&error)
    }
}

impl From<plan::ApplyError> for Stop {
    fn from(error: plan::ApplyError) -> Stop {
        Stop::undecided(&error)
    }
}

impl From<plan::JournalError> for Stop {
    fn from(error: plan::JournalError) -> Stop {
        Stop::undecided(&error)
    }
}

impl From<linux::NameError> for Stop {
    fn from(error: linux::NameError) -> Stop {
        Stop::undecided(&error)
    }
}

impl Ended {
    /// Whether that means success.
    pub fn is_success(self) -> bool {
        self == Ended::Status(0)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Status(status) => write!(f, "exit status {status}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
            Ended::TimedOut => f.write_str("no end in time"),
        }
    }
}
