//! Output: results on stdout, messages on stderr.
//!
//! Names of links, files and candidates and the texts of records could contain terminal escapes. So all output to a
//! terminal passes [`terminal::safe`] here, or in `report` for its tables, which have colours.
//!
//! A reader may close its end at any time (`hostgap paths | head -1`); then the macros of the standard library panic.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use ::report::terminal;

/// Whether a stream is a terminal with colours and lines that can be redrawn. An editor's shell or a serial console has
/// TERM=dumb, and would show the escapes as text.
pub(crate) fn takes_orders(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Whether help and messages of the command line are coloured. clap checks for a terminal itself, but assumes colours
/// for every terminal of a CI job (`CI`).
pub(crate) fn colours_of_help() -> clap::ColorChoice {
    if is_dumb() { clap::ColorChoice::Never } else { clap::ColorChoice::Auto }
}

/// Whether the result is coloured (<https://no-color.org>).
pub(crate) fn has_colours() -> bool {
    takes_orders(&std::io::stdout()) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The result could not be written to stdout.
#[derive(Debug)]
pub(crate) struct OutputError(std::io::Error);

impl OutputError {
    /// The reader closed its end, which is no error.
    pub(crate) fn is_unheard(&self) -> bool {
        self.0.kind() == std::io::ErrorKind::BrokenPipe
    }
}

impl From<std::io::Error> for OutputError {
    fn from(error: std::io::Error) -> OutputError {
        OutputError(error)
    }
}

impl Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "write the result to standard output: {}", self.0)
    }
}

impl std::error::Error for OutputError {}

/// A line of the result. If it cannot be written, the error ends the command; [`crate::exit::print_error`] does not
/// report it if the reader has closed its end.
pub(crate) fn result(line: impl Display) -> Result<(), OutputError> {
    text(&format!("{}\n", terminal::safe(&line.to_string())))
}

/// What a command that has changed something prints after that: a reader that has closed its end does not change what
/// became of the work, nor the exit code that says so.
pub(crate) fn after_work(printed: Result<(), OutputError>) -> Result<(), OutputError> {
    match printed {
        Err(error) if error.is_unheard() => Ok(()),
        printed => printed,
    }
}

/// Text that is already safe for a terminal.
pub(crate) fn text(text: &str) -> Result<(), OutputError> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(OutputError)
}

/// A line on stderr. It is no error if it cannot be written.
pub(crate) fn aside(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", terminal::safe(&line.to_string()));
}
