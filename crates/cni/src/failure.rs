//! What a plugin prints when it fails: the error object (section 5, "Error").

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Version;

/// Why a plugin failed, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is. The specification demands it, and not every plugin says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What happened, in short.
    #[serde(rename = "msg")]
    pub message: String,
    /// More about it than fits into a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// The kind of a failure. Codes below 100 are the specification's own; others mean what their plugin says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The plugin does not speak the version of the request.
    pub const INCOMPATIBLE_VERSION: ErrorCode = ErrorCode(1);
    /// The configuration has a field, or a value of one, that the plugin does not support.
    pub const UNSUPPORTED_FIELD: ErrorCode = ErrorCode(2);
    /// The container is unknown or gone. A runtime need not clean up after it.
    pub const UNKNOWN_CONTAINER: ErrorCode = ErrorCode(3);
    /// A variable of the environment is missing or invalid.
    pub const INVALID_ENVIRONMENT: ErrorCode = ErrorCode(4);
    /// The plugin could not read its input, or another file.
    pub const IO_FAILURE: ErrorCode = ErrorCode(5);
    /// The input is not what the plugin can decode.
    pub const DECODING_FAILURE: ErrorCode = ErrorCode(6);
    /// The configuration can be decoded and makes no sense.
    pub const INVALID_NETWORK_CONFIG: ErrorCode = ErrorCode(7);
    /// The failure is likely to pass.
    pub const TRY_AGAIN_LATER: ErrorCode = ErrorCode(11);
    /// An answer to STATUS: ADD cannot be done.
    pub const NOT_AVAILABLE: ErrorCode = ErrorCode(50);
    /// An answer to STATUS: ADD cannot be done, and containers that are attached may not reach all that they should.
    pub const LIMITED: ErrorCode = ErrorCode(51);
}

impl Failure {
    /// A failure of a plugin of ours.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure { code: Some(code), message: message.into(), details: None }
    }

    /// The error object that a plugin prints, in a version.
    pub fn to_json(&self, version: Version) -> Value {
        let mut object = serde_json::to_value(self).expect("its keys are texts");
        object["cniVersion"] = version.as_str().into();
        object
    }

    /// The error object that a plugin printed. `None`: what it printed is none, or has no message.
    pub fn read(printed: &str) -> Option<Failure> {
        let failure: Failure = serde_json::from_str(printed).ok()?;
        (!failure.message.trim().is_empty()).then_some(failure)
    }
}

/// All of it in a line, as the end of a message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.trim())?;
        if let Some(details) = self.details.as_deref().map(str::trim).filter(|details| !details.is_empty()) {
            write!(f, ": {details}")?;
        }
        self.code.map_or(Ok(()), |code| write!(f, " (code {})", code.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(printed: &str, expected: Option<&str>) {
        let text = Failure::read(printed).map(|failure| failure.to_string());
        assert_eq!(text.as_deref(), expected, "{printed}");
    }

    #[test]
    fn an_error_object_is_printed_whole() {
        let whole = r#"{"cniVersion":"1.0.0","code":11,"msg":"no range","details":"set one\n"}"#;
        check(whole, Some("no range: set one (code 11)"));
        assert_eq!(Failure::read(whole).unwrap().code, Some(ErrorCode::TRY_AGAIN_LATER));
        check(r#"{"code":999,"msg":"x"}"#, Some("x (code 999)"));
        check(r#"{"code":null,"msg":" x ","details":null}"#, Some("x"));
    }

    #[test]
    fn what_has_no_message_is_none() {
        for printed in ["", "7", "oh", r#"{"code":7}"#, r#"{"code":7,"msg":null}"#, r#"{"code":7,"msg":" "}"#]
        {
            check(printed, None);
        }
    }
}
