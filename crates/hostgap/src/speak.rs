//! The two ways of speaking: results on stdout, the conversation on stderr.
//!
//! A reader may close its end at any time (`hostgap paths | head -1`). The macros of the standard library panic then.

use std::fmt::Display;
use std::io::Write;

/// A line of the result. A closed stdout is an error that ends the command, and that [`crate::exit::tell`] knows.
pub(crate) fn result(line: impl Display) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

/// A line of the conversation. Nobody needs to be listening.
pub(crate) fn aside(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
