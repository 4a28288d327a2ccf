//! The server's program, and the version of HTTP.

use serde::{Deserialize, Serialize};

/// Which HTTP a request is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HttpVersion {
    /// The connection ends with the answer, unasked.
    #[serde(rename = "1.0")]
    Http10,
    /// The connection persists unless one side asks to close it.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

/// The program that answers the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// nginx if it is installed, else our own responder; the report names it. For `tcp-rr` and `udp-rr` it is our own
    /// responder, for streams a receiver in this process.
    #[default]
    Auto,
    /// nginx; an error if it is not installed.
    Nginx,
    /// The responder of the crate `load`.
    Hostgap,
}

impl HttpVersion {
    /// The name in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "1.0",
            HttpVersion::Http11 => "1.1",
        }
    }
}

impl std::str::FromStr for HttpVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpVersion, String> {
        let found = [HttpVersion::Http10, HttpVersion::Http11].into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| format!("`{text}` is no version of HTTP: 1.0 or 1.1 is expected"))
    }
}
